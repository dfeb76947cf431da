//! [`ObjectBuffer`]: the bytes of an object, in any owner (ORC: `MemoryBuffer`).

use std::fmt;
use std::ops::{Deref, Range};

use crate::sync::Arc;

/// Shared, read-only bytes: all bytes of an owner, or a range of them. A clone copies a reference.
#[derive(Clone, Default)]
pub struct ObjectBuffer {
    /// `None` for an empty buffer.
    owner: Option<Arc<dyn AsRef<[u8]> + Send + Sync>>,
    range: Range<usize>,
}

impl ObjectBuffer {
    /// The bytes of an owner: a vector, a mapped file, a static array. `as_ref` must return the same bytes each time.
    pub fn new(bytes: impl AsRef<[u8]> + Send + Sync + 'static) -> ObjectBuffer {
        let range = 0..bytes.as_ref().len();
        ObjectBuffer { owner: Some(Arc::new(bytes)), range }
    }

    /// A range of these bytes. Nothing is copied: the part shares the owner, which lives as long as any part. `None` if
    /// the range does not lie within these bytes.
    pub fn part(&self, range: Range<usize>) -> Option<ObjectBuffer> {
        let (start, end) = (self.range.start.checked_add(range.start)?, self.range.start.checked_add(range.end)?);
        let lies_within = start <= end && end <= self.range.end;
        lies_within.then(|| ObjectBuffer { owner: self.owner.clone(), range: start..end })
    }
}

impl Deref for ObjectBuffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // An owner that returns fewer bytes than before yields an empty object, which the reader refuses.
        self.owner.as_deref().and_then(|owner| owner.as_ref().get(self.range.clone())).unwrap_or(&[])
    }
}

impl From<Vec<u8>> for ObjectBuffer {
    fn from(bytes: Vec<u8>) -> ObjectBuffer {
        ObjectBuffer::new(bytes)
    }
}

impl From<&[u8]> for ObjectBuffer {
    /// Copies the bytes.
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
    fn a_part_shares_its_owner_and_stays_within_its_range() {
        let full = ObjectBuffer::from((0..10).collect::<Vec<u8>>());
        let part = full.part(2..8).unwrap();
        let inner = part.part(1..3).unwrap();
        assert_eq!((&*part, &*inner), (&[2, 3, 4, 5, 6, 7][..], &[3, 4][..]));
        assert!(std::ptr::eq(&full[3], &inner[0]), "nothing is copied");
        drop((full, part.clone()));
        assert_eq!(&*inner, [3, 4], "the owner is alive");
        #[allow(clippy::reversed_empty_ranges)]
        for outside in [0..7, 7..7, 5..4, usize::MAX..usize::MAX, 1..usize::MAX] {
            assert!(part.part(outside.clone()).is_none(), "{outside:?}");
        }
        assert!(part.part(6..6).is_some_and(|empty| empty.is_empty()));
    }
}
