//! What a commit and a rollback return, and [`PatchVersion`]: the description of one version.

use crate::session::Removal;

/// The result of a commit.
#[derive(Debug)]
#[must_use = "the tickets say what still keeps the replaced versions in memory"]
pub struct Committed {
    /// The number of the committed version. Versions are numbered from 1, in the order in which they were linked.
    pub version: u64,
    /// The removals of versions that are neither current nor in the history after the commit.
    pub retired: Vec<Removal>,
}

/// The result of a rollback.
#[derive(Debug)]
#[must_use = "the tickets say what still keeps the undone version in memory"]
pub struct RolledBack {
    /// The number of the version whose commit was undone.
    pub version: u64,
    /// The removal of that version. Empty if the version stays because it was the first to define a function.
    pub retired: Vec<Removal>,
}

/// One version of patched functions that is in memory.
#[derive(Debug, Clone)]
pub struct PatchVersion {
    /// Its number.
    pub version: u64,
    /// The patchable functions that it defines.
    pub functions: Vec<String>,
    /// Those of its functions that callers reach.
    pub current: Vec<String>,
    /// Whether it was removed for good, and something still keeps it in memory.
    pub is_retired: bool,
    /// What keeps a retired version in memory, in words ([`Removal::obstacles`]).
    pub held_by: Vec<String>,
}
