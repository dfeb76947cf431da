//! `jittison check`: links objects at fixed addresses, runs nothing, and holds the result against rules.

use std::fs;

use crate::args::CheckArgs;
use crate::check::{Image, Rules, check};
use crate::link::link_all;
use crate::offline::{Linked, LinkedObject, LinkedSection, Options, session};
use crate::run::{add, told};

/// Links the objects, and says which rules do not hold.
pub fn check_objects(args: &CheckArgs) -> Result<(), String> {
    let path = args.rules.display();
    let source = fs::read_to_string(&args.rules).map_err(|problem| format!("{path}: {problem}"))?;
    let rules = Rules::parse(&source).map_err(|none| format!("{path}: {none}"))?;
    let options = Options { base: args.base, absolute: args.absolute.clone(), phony_externals: args.phony_externals };
    let (jit, recorder) = session(&options)?;
    let tracker = jit.main_dylib().create_tracker().map_err(told)?;
    let objects = args.objects.iter().map(|object| add(&jit, &tracker, object)).collect::<Result<Vec<_>, _>>()?;
    link_all(jit.main_dylib(), &objects)?;
    let failures = recorder.with(|linked| check(&rules, linked));
    if failures.is_empty() {
        return Ok(());
    }
    let told: Vec<String> = failures.iter().map(|failure| format!("{path}:{failure}")).collect();
    Err(told.join("\n"))
}

impl Image for Linked {
    fn symbol(&self, name: &str) -> Option<u64> {
        self.symbols.get(name).copied()
    }

    fn bytes_at(&self, address: u64) -> Option<&[u8]> {
        let sections = self.objects.iter().flat_map(|object| &object.sections);
        let hit = |section: &&LinkedSection| {
            address.checked_sub(section.address).is_some_and(|offset| offset < section.bytes.len() as u64)
        };
        let section = sections.into_iter().find(hit)?;
        Some(&section.bytes[(address - section.address) as usize..])
    }

    fn section(&self, file: &str, section: &str) -> Result<u64, String> {
        let wanted = match section {
            // What LLVM's tests call them.
            "$__GOT" => ".got",
            "$__STUBS" => ".plt",
            other => other,
        };
        let found = self.object(file)?.sections.iter().find(|linked| linked.name == wanted);
        found.map(|linked| linked.address).ok_or_else(|| format!("`{file}` has no section `{section}` in memory"))
    }

    fn got_entry(&self, file: &str, symbol: &str) -> Result<u64, String> {
        let found = self.object(file)?.slots.get(symbol).copied();
        found.ok_or_else(|| format!("`{symbol}` has no GOT slot in `{file}`"))
    }

    fn stub(&self, file: &str, symbol: &str) -> Result<u64, String> {
        let found = self.object(file)?.stubs.get(symbol).copied();
        found.ok_or_else(|| format!("`{symbol}` has no stub in `{file}`"))
    }
}

impl Linked {
    fn object(&self, file: &str) -> Result<&LinkedObject, String> {
        let found = self.objects.iter().find(|object| object.file == file);
        found.ok_or_else(|| format!("no object `{file}` was linked"))
    }
}
