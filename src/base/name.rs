//! [`Name`]: a shared symbol name.
//!
//! One allocation, counted; it is freed with its last user, so a million names defined and removed leave nothing.
//! There is no pool to sweep: a lookup compares text by hash and never interns, so looking for a name that does
//! not exist allocates nothing.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;

use crate::sync::Arc;

/// A symbol name. Cheap to clone; hashes and compares as its text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

impl Name {
    /// A name with this text.
    pub fn new(text: &str) -> Name {
        Name(Arc::from(text))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Deref for Name {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

// Lets tables keyed by `Name` be searched with a `&str`: `Hash` and `Eq` of the two agree by construction.
impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Name {
    fn from(text: &str) -> Name {
        Name::new(text)
    }
}

impl From<String> for Name {
    fn from(text: String) -> Name {
        Name(Arc::from(text))
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
