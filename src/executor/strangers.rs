//! [`Strangers`]: connections that have not proved their token yet.
//!
//! Each has a thread, so there are [`MOST`] at once. A further one closes one of them: the oldest of the address that has most. So an address
//! cannot keep out others, and within one, a controller needs a moment only to send its token.

use std::io;
use std::net::{IpAddr, Shutdown, TcpStream};

use crate::sync::{Arc, Condvar, Mutex};

/// The connections.
pub(super) struct Strangers {
    list: Mutex<List>,
    has_gone: Condvar,
}

struct List {
    next: u64,
    /// The oldest first.
    present: Vec<Connection>,
}

struct Connection {
    number: u64,
    address: IpAddr,
    /// Closes it. `None`: that is done, and its thread is about to end.
    end: Option<TcpStream>,
}

/// The place of a connection in the list, until it is dropped.
pub(super) struct Stranger {
    number: u64,
    strangers: Arc<Strangers>,
}

impl Strangers {
    pub(super) fn new() -> Arc<Strangers> {
        let list = Mutex::new(List { next: 0, present: Vec::new() });
        Arc::new(Strangers { list, has_gone: Condvar::new() })
    }

    /// Adds a connection. If there are [`MOST`], closes one and waits until its thread has dropped its place.
    ///
    /// # Errors
    /// There is no descriptor to close it later.
    pub(super) fn admit(self: &Arc<Self>, connection: &TcpStream, address: IpAddr) -> io::Result<Stranger> {
        let end = Some(connection.try_clone()?);
        let mut list = self.list.lock();
        while list.present.len() >= MOST {
            list.close_one();
            self.has_gone.wait(&mut list);
        }
        let number = list.next;
        list.next += 1;
        list.present.push(Connection { number, address, end });
        Ok(Stranger { number, strangers: self.clone() })
    }
}

impl List {
    /// Closes one, unless one is about to go.
    fn close_one(&mut self) {
        if self.present.iter().all(|connection| connection.end.is_some())
            && let Some(index) = surplus(&self.present.iter().map(|other| other.address).collect::<Vec<_>>())
            && let Some(connection) = self.present[index].end.take()
        {
            // It fails only if the connection is closed already.
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.strangers.list.lock().present.retain(|connection| connection.number != self.number);
        self.strangers.has_gone.notify_all();
    }
}

/// The first index of the address that is most frequent; of several, the one that comes first.
fn surplus(addresses: &[IpAddr]) -> Option<usize> {
    let count = |address: &IpAddr| addresses.iter().filter(|other| *other == address).count();
    (0..addresses.len()).max_by_key(|index| (count(&addresses[*index]), std::cmp::Reverse(*index)))
}

/// The most connections at once.
const MOST: usize = 64;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_the_address_that_has_most_is_closed() {
        let of = |numbers: &[u8]| -> Vec<IpAddr> { numbers.iter().map(|number| [10, 0, 0, *number].into()).collect() };
        assert_eq!(surplus(&of(&[])), None);
        assert_eq!(surplus(&of(&[1, 2, 3])), Some(0));
        assert_eq!(surplus(&of(&[1, 2, 3, 2])), Some(1));
        assert_eq!(surplus(&of(&[1, 2, 2, 1])), Some(0));
    }
}
