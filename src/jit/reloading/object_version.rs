//! [`ObjectVersion`]: the description of one version of an object.

/// One version of an object that is in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ObjectVersion {
    /// The name of the object.
    pub object: String,
    /// Its number; 0 is the version that was added.
    pub version: u64,
    /// The number of its functions.
    pub functions: usize,
    /// The size of its functions, in bytes.
    pub code_bytes: u64,
    /// Whether a newer version of the object runs.
    pub is_replaced: bool,
    /// What keeps a replaced version in memory, in words. Of a removed one,
    /// [`Removal::obstacles`](crate::session::Removal::obstacles). Empty for the version that runs.
    pub held_by: Vec<String>,
}

/// What a version has of functions.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CodeSize {
    pub(super) functions: usize,
    pub(super) bytes: u64,
}

impl ObjectVersion {
    pub(super) fn new(object: &str, version: u64, size: CodeSize) -> ObjectVersion {
        let CodeSize { functions, bytes: code_bytes } = size;
        ObjectVersion {
            object: object.to_string(),
            version,
            functions,
            code_bytes,
            is_replaced: false,
            held_by: Vec::new(),
        }
    }

    pub(super) fn replaced(self, held_by: Vec<String>) -> ObjectVersion {
        ObjectVersion { is_replaced: true, held_by, ..self }
    }
}
