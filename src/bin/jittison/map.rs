//! `jittison map`: links objects and prints the memory map of the library, as text, SVG or JSON.
//!
//! Each object is linked under its own tracker into one dylib. Nothing is run.

use std::fs;

use jittison::memory::{MemoryMap, MemoryRange, PoolMap, SlabFragmentation, SlabMap, Tenant, WindowMap};
use jittison::{Jit, ResourceTracker};
use serde_json::{Value, json};

use crate::add::add_object;
use crate::args::MapArgs;
use crate::link::link_all;
use crate::output::{message_of, print_result};
use crate::process::open_library;
use crate::run::DEFAULT_LIBRARIES;

/// Links the objects and prints the map.
pub fn map(args: &MapArgs) -> Result<(), String> {
    let libraries = args.libraries.iter().map(|name| open_library(&name.to_string_lossy()));
    let _libraries = libraries.collect::<Result<Vec<_>, _>>()?;
    let jit = DEFAULT_LIBRARIES
        .iter()
        .fold(Jit::builder(), |builder, name| builder.library(name))
        .build()
        .map_err(message_of)?;
    let mut trackers: Vec<ResourceTracker> = Vec::new();
    let mut objects = Vec::new();
    for path in &args.objects {
        let tracker = jit.main_dylib().create_tracker().map_err(message_of)?;
        objects.push(add_object(&jit, &tracker, path)?);
        // Keep the handle: when the last handle of a tracker is dropped, the default tracker owns its objects.
        trackers.push(tracker);
    }
    link_all(jit.main_dylib(), &objects)?;
    let map = jit.memory_map().ok_or("the memory manager provides no map")?;
    if let Some(path) = &args.svg {
        fs::write(path, map.to_svg()).map_err(|problem| format!("{}: {problem}", path.display()))?;
    }
    print_result(&text(args, &map)?)
}

fn text(args: &MapArgs, map: &MemoryMap) -> Result<String, String> {
    if !args.json {
        return Ok(map.to_text());
    }
    let windows: Vec<Value> = map.windows.iter().map(window).collect();
    let modules: Vec<Value> = map.tenants.iter().map(module).collect();
    let fragmented: Vec<Value> = map.fragmented_slabs().iter().map(slab_fragmentation).collect();
    let root = json!({ "windows": windows, "modules": modules, "fragmented_slabs": fragmented });
    Ok(serde_json::to_string_pretty(&root).map_err(|error| error.to_string())? + "\n")
}

fn window(window: &WindowMap) -> Value {
    json!({
        "base": window.base.value(),
        "size_bytes": window.size,
        "mapped": window.description,
        "frame_table_bytes": window.frame_table_bytes,
        "pools": window.pools.iter().map(pool).collect::<Vec<_>>(),
    })
}

fn pool(pool: &PoolMap) -> Value {
    json!({
        "pool": pool.pool.name(),
        "start": pool.start.value(),
        "size_bytes": pool.size,
        "opened_bytes": pool.opened_bytes(),
        "live_bytes": pool.live_bytes(),
        "free_bytes": pool.free_bytes(),
        "largest_free_bytes": pool.largest_free(),
        "fragmentation": pool.fragmentation(),
        "resident_bytes": pool.resident_bytes(),
        "fragmented_bytes": pool.fragmented_bytes(),
        "slabs": pool.slabs.iter().map(slab).collect::<Vec<_>>(),
        "ranges": pool.ranges.iter().map(range).collect::<Vec<_>>(),
    })
}

fn slab(slab: &SlabMap) -> Value {
    json!({
        "start": slab.start.value(),
        "size_bytes": slab.size,
        "shard": slab.shard,
        "live_bytes": slab.live_bytes,
        "free_bytes": slab.free_bytes,
        "resident_bytes": slab.resident_bytes,
        "fragmented_bytes": slab.fragmented_bytes,
        "returnable_bytes": slab.returnable_bytes,
        "largest_free_bytes": slab.largest_free,
        "allocations": slab.allocations,
    })
}

fn slab_fragmentation(slab: &SlabFragmentation) -> Value {
    json!({
        "slab": slab.slab.value(),
        "pool": slab.pool.name(),
        "fragmented_bytes": slab.fragmented_bytes,
        "live_bytes": slab.live_bytes,
        "requested_bytes": slab.requested_bytes,
        "modules": slab.tenants,
    })
}

fn range(range: &MemoryRange) -> Value {
    json!({
        "start": range.start.value(),
        "size_bytes": range.size,
        "is_live": range.is_live,
        "resident_bytes": range.resident_bytes,
        "module": range.tenant,
    })
}

fn module(tenant: &Tenant) -> Value {
    let segments: Vec<Value> =
        tenant.segments.iter().map(|(start, size)| json!({ "start": start.value(), "size_bytes": size })).collect();
    json!({ "name": &*tenant.name, "dylib": &*tenant.group, "tracker": &*tenant.owner, "segments": segments })
}
