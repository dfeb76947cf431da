//! [`HostFunctions`]: the functions that modules import, for linkers that need names and addresses.

use std::ffi::CString;

use jittison::base::ExecutorAddr;

use super::system_library::{SystemLibrary, build_shared_object, c_path};
use crate::measure::scenario::to_text;
use crate::measure::workload::Workload;

/// The runtime library, opened by the system's loader, and the C library's functions that the modules call.
pub struct HostFunctions {
    pub all: Vec<(CString, ExecutorAddr)>,
    /// Closed when no module can call it any more.
    _library: SystemLibrary,
}

impl HostFunctions {
    pub fn open(workload: &Workload) -> Result<HostFunctions, String> {
        let path = build_shared_object(workload.scratch.path(), "runtime", &workload.objects.runtime)?;
        let library = SystemLibrary::open(&c_path(&path)?, libc::RTLD_LOCAL)?;
        let mut all = Vec::new();
        for name in [c"rt_hash", c"rt_emit"] {
            all.push((name.to_owned(), library.symbol(name)?));
        }
        let of_c = [
            (c"memcmp", libc::memcmp as *const ()),
            (c"memset", libc::memset as *const ()),
            (c"strtoul", libc::strtoul as *const ()),
        ];
        all.extend(of_c.map(|(name, address)| (name.to_owned(), ExecutorAddr::new(address as u64))));
        Ok(HostFunctions { all, _library: library })
    }

    pub fn address(&self, name: &str) -> Result<ExecutorAddr, String> {
        let name = CString::new(name).map_err(to_text)?;
        let found = self.all.iter().find(|(other, _)| *other == name);
        found.map(|(_, address)| *address).ok_or_else(|| format!("{name:?} is not a host function"))
    }
}
