//! Measures and maps of code memory.

use std::collections::HashMap;

use jittison::base::SegmentKind;
use pyo3::prelude::*;

/// Bytes of code memory that a tracker or a dylib owns.
#[pyclass(frozen, get_all, eq, module = "jittison")]
#[derive(PartialEq)]
pub(crate) struct MemoryUsage {
    /// The number of allocations, of links and of stubs.
    allocations: u64,
    /// Requested machine code.
    code: u64,
    /// Requested constants and tables.
    read_only: u64,
    /// Requested data.
    data: u64,
    /// Reserved for all of them, with padding.
    reserved: u64,
    /// The allocation records themselves.
    metadata: u64,
    /// Bytes that are free when it is removed: reserved and metadata.
    total: u64,
}

impl From<jittison::MemoryUsage> for MemoryUsage {
    fn from(usage: jittison::MemoryUsage) -> MemoryUsage {
        let total = usage.total();
        let jittison::MemoryUsage { allocations, code, read_only, data, reserved, metadata } = usage;
        MemoryUsage { allocations, code, read_only, data, reserved, metadata, total }
    }
}

#[pymethods]
impl MemoryUsage {
    fn __repr__(&self) -> String {
        let MemoryUsage { code, read_only, data, total, .. } = self;
        format!("<jittison.MemoryUsage: {code} code, {read_only} read-only, {data} data; {total} bytes in all>")
    }
}

/// What a session holds of code memory, in bytes.
#[pyclass(frozen, get_all, module = "jittison")]
pub(crate) struct MemoryStatistics {
    /// Mapped windows.
    windows: usize,
    /// The number of allocations.
    allocations: usize,
    /// Requested by the allocations.
    live_bytes: u64,
    /// Reserved for the allocations.
    reserved_bytes: u64,
    /// In open slabs.
    opened_bytes: u64,
    /// Free in open slabs.
    free_bytes: u64,
    /// The number of contiguous free ranges.
    free_ranges: usize,
    /// In pages that the kernel may have backed.
    resident_bytes: u64,
    /// Returned to the kernel so far.
    returned_bytes: u64,
    /// In pages of the frame table that the kernel has backed.
    frame_table_bytes: u64,
    /// Tables and records of the allocator, on the heap.
    metadata_bytes: u64,
    /// By pool: "code", "read-only", "data".
    pools: HashMap<&'static str, Py<PoolStatistics>>,
}

/// What one pool of code memory holds, in bytes.
#[pyclass(frozen, get_all, module = "jittison")]
pub(crate) struct PoolStatistics {
    /// Requested by allocations.
    requested: u64,
    /// Reserved for the allocations.
    reserved: u64,
    /// In open slabs.
    opened: u64,
    /// Free in open slabs.
    free: u64,
    /// The longest free range.
    largest_free: u64,
    /// In pages that the kernel may have backed.
    resident: u64,
    /// The share of the free bytes that is outside the longest free range.
    fragmentation: f64,
}

impl MemoryStatistics {
    pub(crate) fn new(py: Python<'_>, statistics: &jittison::MemoryStatistics) -> PyResult<MemoryStatistics> {
        let pool = |kind: SegmentKind| -> PyResult<_> {
            let pool = &statistics.pools[kind.index()];
            let fragmentation = pool.fragmentation();
            let jittison::PoolStatistics { requested, reserved, opened, free, largest_free, resident } = *pool;
            let pool = PoolStatistics { requested, reserved, opened, free, largest_free, resident, fragmentation };
            Ok((kind.name(), Py::new(py, pool)?))
        };
        Ok(MemoryStatistics {
            windows: statistics.windows,
            allocations: statistics.allocations,
            live_bytes: statistics.live_bytes,
            reserved_bytes: statistics.reserved_bytes,
            opened_bytes: statistics.opened_bytes,
            free_bytes: statistics.free_bytes,
            free_ranges: statistics.free_ranges,
            resident_bytes: statistics.resident_bytes,
            returned_bytes: statistics.returned_bytes,
            frame_table_bytes: statistics.frame_table_bytes,
            metadata_bytes: statistics.metadata_bytes,
            pools: SegmentKind::ALL.into_iter().map(pool).collect::<PyResult<_>>()?,
        })
    }
}

#[pymethods]
impl MemoryStatistics {
    fn __repr__(&self) -> String {
        let MemoryStatistics { allocations, live_bytes, resident_bytes, .. } = self;
        format!(
            "<jittison.MemoryStatistics: {allocations} allocations, {live_bytes} bytes live, {resident_bytes} resident>"
        )
    }
}

/// A map of code memory: windows, pools, and who owns what. In a notebook it is a picture.
#[pyclass(frozen, module = "jittison")]
pub(crate) struct MemoryMap {
    map: jittison::MemoryMap,
}

impl From<jittison::MemoryMap> for MemoryMap {
    fn from(map: jittison::MemoryMap) -> MemoryMap {
        MemoryMap { map }
    }
}

#[pymethods]
impl MemoryMap {
    /// The map as a picture.
    fn to_svg(&self) -> String {
        self.map.to_svg()
    }

    /// The map as text.
    fn to_text(&self) -> String {
        self.map.to_text()
    }

    /// Bytes that are allocated.
    #[getter]
    fn live_bytes(&self) -> u64 {
        self.map.live_bytes()
    }

    /// Who owns memory.
    #[getter]
    fn tenants(&self) -> Vec<Tenant> {
        self.map.tenants.iter().map(Tenant::from).collect()
    }

    /// For notebooks.
    pub(crate) fn _repr_html_(&self) -> String {
        let svg = self.map.to_svg();
        // A document that is not XML has no prologue.
        let start = svg.find("<svg").unwrap_or(0);
        format!("<div style=\"overflow-x: auto\">{}</div>", &svg[start..])
    }

    /// For notebooks.
    fn _repr_svg_(&self) -> String {
        self.map.to_svg()
    }

    fn __str__(&self) -> String {
        self.map.to_text()
    }

    fn __repr__(&self) -> String {
        let (tenants, live_bytes) = (self.map.tenants.len(), self.map.live_bytes());
        format!("<jittison.MemoryMap: {tenants} tenants, {live_bytes} bytes live>")
    }
}

/// The memory of one object.
#[pyclass(frozen, get_all, module = "jittison")]
pub(crate) struct Tenant {
    /// The object.
    object: String,
    /// The tracker that owns it.
    owner: String,
    /// The dylib.
    dylib: String,
    /// By pool ("code", "read-only", "data"): where its memory starts, and the bytes.
    segments: HashMap<&'static str, (u64, u64)>,
}

impl From<&jittison::memory::Tenant> for Tenant {
    fn from(tenant: &jittison::memory::Tenant) -> Tenant {
        let segment = |kind: SegmentKind| {
            let (start, size) = tenant.segments[kind.index()];
            (kind.name(), (start.value(), size))
        };
        let segments = SegmentKind::ALL.into_iter().map(segment).filter(|(_, (_, size))| *size > 0).collect();
        let [object, owner, dylib] = [&tenant.name, &tenant.owner, &tenant.group].map(|name| name.to_string());
        Tenant { object, owner, dylib, segments }
    }
}

#[pymethods]
impl Tenant {
    fn __repr__(&self) -> String {
        format!("<jittison.Tenant {} of {:?}>", self.object, self.dylib)
    }
}

/// What is at an address of linked code.
#[pyclass(frozen, get_all, module = "jittison")]
pub(crate) struct CodeLocation {
    /// The function. None if no symbol covers the address.
    function: Option<String>,
    /// Bytes from the start of the function, or else of the object's segment.
    offset: u64,
    /// The object.
    object: String,
    /// The dylib.
    dylib: String,
}

impl From<jittison::CodeLocation> for CodeLocation {
    fn from(location: jittison::CodeLocation) -> CodeLocation {
        let (function, offset) = match &location.function {
            Some((name, offset)) => (Some(name.to_string()), *offset),
            None => (None, location.offset),
        };
        CodeLocation { function, offset, object: location.object.to_string(), dylib: location.dylib.to_string() }
    }
}

#[pymethods]
impl CodeLocation {
    fn __repr__(&self) -> String {
        let CodeLocation { function, offset, object, dylib } = self;
        let function = function.as_deref().unwrap_or("?");
        format!("<jittison.CodeLocation {function}+{offset:#x} in {object} of {dylib:?}>")
    }
}
