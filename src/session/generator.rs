//! [`DefinitionGenerator`]: the seam through which a dylib gets definitions that nobody has added yet.

use crate::error::Result;
use crate::session::JitDylib;

/// Supplies definitions on demand (ORC: `DefinitionGenerator`), for instance out of the process or an archive.
pub trait DefinitionGenerator: Send + Sync {
    /// A lookup did not find `names` in `dylib`: define those that this generator knows, into `dylib`.
    ///
    /// Leaving a name undefined is no error: the lookup goes on to the next generator and the next dylib. Called with
    /// no lock held, possibly from several threads at once; may call back into the session.
    fn generate(&self, dylib: &JitDylib, names: &[&str]) -> Result<()>;
}
