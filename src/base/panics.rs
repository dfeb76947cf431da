//! [`catch`], [`text_of`] and [`discard`]: handle a panic of the embedder's code.
//!
//! A panic carries a value of the embedder, and the destructor of that value may panic, too. Code that drops the value
//! directly lets that second panic escape in the middle of a removal or of a drop. [`discard`] drops it safely.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The payload of a panic, as `catch_unwind` returns it.
pub(crate) type Payload = Box<dyn Any + Send>;

/// Runs `body` and returns the text of its panic as an error. A panic must leave only values that `body` owns in an
/// inconsistent state.
pub(crate) fn catch<R>(body: impl FnOnce() -> R) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(body)).map_err(text_of)
}

/// Returns the message of a panic, and drops its payload. The caller must hold no lock, because the destructor of the payload
/// is the embedder's code.
#[cold]
pub(crate) fn text_of(panic: Payload) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("the panic carries no message").to_string();
    discard(panic);
    text
}

/// Drops the payload of a panic. If its destructor panics, the payload of that second panic is leaked.
pub(crate) fn discard(panic: Payload) {
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(second);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_message_of_a_panic_is_returned() {
        assert_eq!(catch(|| 7), Ok(7));
        assert_eq!(catch(|| -> u8 { panic!("plain") }), Err("plain".to_string()));
        assert_eq!(catch(|| -> u8 { panic!("number {}", 7) }), Err("number 7".to_string()));
        assert_eq!(catch(|| -> u8 { std::panic::panic_any(7) }), Err("the panic carries no message".to_string()));
    }

    #[test]
    fn a_payload_that_panics_when_dropped_lets_no_panic_escape() {
        struct Again;
        impl Drop for Again {
            fn drop(&mut self) {
                std::panic::panic_any(Again);
            }
        }
        let caught = catch_unwind(|| catch(|| std::panic::panic_any(Again)));
        assert!(matches!(caught, Ok(Err(_))));
    }
}
