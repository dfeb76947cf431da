//! [`ObjectBuffer`]: the bytes of an object, wherever they are kept.

use std::fmt;
use std::ops::Deref;

use crate::sync::Arc;

/// Shared, read-only bytes. Cheap to clone.
#[derive(Clone)]
pub struct ObjectBuffer(Arc<dyn AsRef<[u8]> + Send + Sync>);

impl ObjectBuffer {
    /// Bytes of any holder: a vector, a mapped file, a static array. Must give the same bytes each time.
    pub fn new(bytes: impl AsRef<[u8]> + Send + Sync + 'static) -> ObjectBuffer {
        ObjectBuffer(Arc::new(bytes))
    }
}

impl Deref for ObjectBuffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        (*self.0).as_ref()
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
