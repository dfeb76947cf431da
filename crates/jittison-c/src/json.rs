//! JSON: the map of code memory, with windows, their pools, and who owns which ranges; versions of patched functions; changes of
//! a reload. Addresses and sizes are numbers of bytes.

use std::fmt::Write;

use jittison::base::SegmentKind;
use jittison::link::Diff;
use jittison::memory::{PoolMap, Tenant, WindowMap};
use jittison::{MemoryMap, PatchVersion, Reload};

/// The map as one JSON object.
pub(crate) fn to_json(map: &MemoryMap) -> String {
    let windows = map.windows.iter().map(window);
    let tenants = map.tenants.iter().map(tenant);
    format!("{{\"windows\":{},\"tenants\":{}}}\n", list(windows), list(tenants))
}

fn window(window: &WindowMap) -> String {
    format!(
        "{{\"base\":{},\"size\":{},\"mapping\":{},\"frame_table_bytes\":{},\"pools\":{}}}",
        window.base.value(),
        window.size,
        quoted(window.description),
        window.frame_table_bytes,
        list(window.pools.iter().map(pool))
    )
}

fn pool(pool: &PoolMap) -> String {
    format!(
        "{{\"kind\":{},\"start\":{},\"size\":{},\"opened_bytes\":{},\"resident_bytes\":{},\"live_bytes\":{},\
         \"free_bytes\":{},\"largest_free\":{},\"allocations\":{}}}",
        quoted(pool.pool.name()),
        pool.start.value(),
        pool.size,
        pool.opened_bytes(),
        pool.resident_bytes(),
        pool.live_bytes(),
        pool.free_bytes(),
        pool.largest_free(),
        pool.allocations()
    )
}

fn tenant(tenant: &Tenant) -> String {
    let segment = |kind: SegmentKind| {
        let (start, size) = tenant.segments[kind.index()];
        format!("{{\"kind\":{},\"start\":{},\"size\":{size}}}", quoted(kind.name()), start.value())
    };
    let used = SegmentKind::ALL.into_iter().filter(|kind| tenant.segments[kind.index()].1 != 0);
    format!(
        "{{\"object\":{},\"owner\":{},\"dylib\":{},\"segments\":{}}}",
        quoted(&tenant.name),
        quoted(&tenant.owner),
        quoted(&tenant.group),
        list(used.map(segment))
    )
}

/// Versions of patched functions, as a JSON list.
pub(crate) fn versions_to_json(versions: &[PatchVersion]) -> String {
    let version = |version: &PatchVersion| {
        format!(
            "{{\"version\":{},\"is_retired\":{},\"functions\":{},\"current\":{},\"held_by\":{}}}",
            version.version,
            version.is_retired,
            texts(&version.functions),
            texts(&version.current),
            texts(&version.held_by)
        )
    };
    list(versions.iter().map(version)) + "\n"
}

/// What a reload changed, as one JSON object.
pub(crate) fn diff_to_json(diff: &Diff) -> String {
    format!("{{{}}}\n", diff_members(diff))
}

/// What was done with objects that were reloaded together.
pub(crate) fn reloads_to_json(reloads: &[Reload]) -> String {
    let reload = |of: &Reload| {
        format!(
            "{{\"object\":{},\"version\":{},\"code_bytes_before\":{},\"code_bytes\":{},\"stays\":{},{}}}",
            quoted(&of.object),
            of.version,
            of.code_bytes_before,
            of.code_bytes,
            of.stays,
            diff_members(&of.diff)
        )
    };
    list(reloads.iter().map(reload)) + "\n"
}

fn diff_members(diff: &Diff) -> String {
    format!(
        "\"changed\":{},\"added\":{},\"removed\":{},\"new_variables\":{},\"removed_variables\":{},\"moved_variables\":{},\"constants_changed\":{}",
        texts(&diff.changed),
        texts(&diff.added),
        texts(&diff.removed),
        texts(&diff.new_variables),
        texts(&diff.removed_variables),
        texts(&diff.moved_variables),
        diff.constants_changed
    )
}

fn texts(texts: &[String]) -> String {
    list(texts.iter().map(|text| quoted(text)))
}

fn list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(","))
}

/// A JSON string.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for char in text.chars() {
        match char {
            '"' | '\\' => quoted.extend(['\\', char]),
            char if char < ' ' => {
                let _ = write!(quoted, "\\u{:04x}", char as u32);
            }
            char => quoted.push(char),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_quotes_and_control_characters_are_escaped() {
        assert_eq!(quoted("a\"b\\c\nd\u{e9}"), "\"a\\\"b\\\\c\\u000ad\u{e9}\"");
    }
}
