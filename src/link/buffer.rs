//! [`ObjectBuffer`]: the bytes of an object, wherever they are kept.

use std::fmt;
use std::ops::{Deref, Range};

use crate::sync::Arc;

/// Shared, read-only bytes: all that a holder has, or a part of it. Cheap to clone.
#[derive(Clone, Default)]
pub struct ObjectBuffer {
    /// None, if there are no bytes.
    holder: Option<Arc<dyn AsRef<[u8]> + Send + Sync>>,
    range: Range<usize>,
}

impl ObjectBuffer {
    /// Bytes of any holder: a vector, a mapped file, a static array. Must give the same bytes each time.
    pub fn new(bytes: impl AsRef<[u8]> + Send + Sync + 'static) -> ObjectBuffer {
        let range = 0..bytes.as_ref().len();
        ObjectBuffer { holder: Some(Arc::new(bytes)), range }
    }

    /// A part of these bytes, which shares their holder: nothing is copied, and the holder lives as long as any part.
    /// `None` when the range does not lie within them.
    pub fn part(&self, range: Range<usize>) -> Option<ObjectBuffer> {
        let (start, end) = (self.range.start.checked_add(range.start)?, self.range.start.checked_add(range.end)?);
        let lies_within = start <= end && end <= self.range.end;
        lies_within.then(|| ObjectBuffer { holder: self.holder.clone(), range: start..end })
    }
}

impl Deref for ObjectBuffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // A holder that gives fewer bytes than before breaks its promise, and an object of no bytes is refused by name.
        self.holder.as_deref().and_then(|holder| holder.as_ref().get(self.range.clone())).unwrap_or(&[])
    }
}

impl From<Vec<u8>> for ObjectBuffer {
    fn from(bytes: Vec<u8>) -> ObjectBuffer {
        ObjectBuffer::new(bytes)
    }
}

impl From<&[u8]> for ObjectBuffer {
    /// Copies.
    fn from(bytes: &[u8]) -> ObjectBuffer {
        ObjectBuffer::new(bytes.to_vec())
    }
}

impl fmt::Debug for ObjectBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} object bytes", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_shares_its_holder_and_cannot_leave_it() {
        let whole = ObjectBuffer::from((0..10).collect::<Vec<u8>>());
        let part = whole.part(2..8).unwrap();
        let inner = part.part(1..3).unwrap();
        assert_eq!((&*part, &*inner), (&[2, 3, 4, 5, 6, 7][..], &[3, 4][..]));
        assert!(std::ptr::eq(&whole[3], &inner[0]), "nothing is copied");
        drop((whole, part.clone()));
        assert_eq!(&*inner, [3, 4], "the holder lives on");
        #[allow(clippy::reversed_empty_ranges)]
        for outside in [0..7, 7..7, 5..4, usize::MAX..usize::MAX, 1..usize::MAX] {
            assert!(part.part(outside.clone()).is_none(), "{outside:?}");
        }
        assert!(part.part(6..6).is_some_and(|empty| empty.is_empty()));
    }
}
