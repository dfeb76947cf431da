//! `jittison check`: links objects at fixed addresses, runs nothing, and checks rules about the result.
//!
//! The rules ask an [`Image`]; here that is what the links of [`offline`](crate::offline) recorded.

use std::fs;

use crate::add::add_object;
use crate::args::CheckArgs;
use crate::check::{Image, Rules, check};
use crate::link::link_all;
use crate::offline::{LinkedObject, LinkedSection, LinkedSet, Options, recording_session};
use crate::output::message_of;

/// Links the objects and evaluates the rules. The error lists the rules that do not hold.
pub fn check_objects(args: &CheckArgs) -> Result<(), String> {
    let path = args.rules.display();
    let source = fs::read_to_string(&args.rules).map_err(|problem| format!("{path}: {problem}"))?;
    let rules = Rules::parse(&source).map_err(|problem| format!("{path}: {problem}"))?;
    let (absolute, phony_externals) = (args.absolute.clone(), args.phony_externals);
    let options = Options { base: args.base, absolute, phony_externals, wrap: Vec::new() };
    let (jit, recorder) = recording_session(&options)?;
    let tracker = jit.main_dylib().create_tracker().map_err(message_of)?;
    let objects =
        args.objects.iter().map(|object| add_object(&jit, &tracker, object)).collect::<Result<Vec<_>, _>>()?;
    link_all(jit.main_dylib(), &objects)?;
    let failures = recorder.with(|linked| check(&rules, linked));
    if failures.is_empty() {
        return Ok(());
    }
    let messages: Vec<String> = failures.iter().map(|failure| format!("{path}:{failure}")).collect();
    Err(messages.join("\n"))
}

impl Image for LinkedSet {
    fn machine(&self) -> u16 {
        self.machine
    }

    fn symbol(&self, name: &str) -> Option<u64> {
        self.symbols.get(name).copied()
    }

    fn bytes_at(&self, address: u64) -> Option<&[u8]> {
        let sections = self.objects.iter().flat_map(|object| &object.sections);
        let contains = |section: &&LinkedSection| {
            address.checked_sub(section.address).is_some_and(|offset| offset < section.bytes.len() as u64)
        };
        let section = sections.into_iter().find(contains)?;
        Some(&section.bytes[(address - section.address) as usize..])
    }

    fn section(&self, file: &str, section: &str) -> Result<u64, String> {
        let wanted = match section {
            // The names in LLVM's tests.
            "$__GOT" => ".got",
            "$__STUBS" => ".plt",
            other => other,
        };
        let found = self.object(file)?.sections.iter().find(|linked| linked.name == wanted);
        found.map(|linked| linked.address).ok_or_else(|| format!("`{file}` has no section `{section}` in memory"))
    }

    fn got_entry(&self, file: &str, symbol: &str) -> Result<u64, String> {
        let found = self.object(file)?.got_slots.get(symbol).copied();
        found.ok_or_else(|| format!("`{symbol}` has no GOT slot in `{file}`"))
    }

    fn stub(&self, file: &str, symbol: &str) -> Result<u64, String> {
        let found = self.object(file)?.stubs.get(symbol).copied();
        found.ok_or_else(|| format!("`{symbol}` has no stub in `{file}`"))
    }
}

impl LinkedSet {
    fn object(&self, file: &str) -> Result<&LinkedObject, String> {
        let found = self.objects.iter().find(|object| object.file == file);
        found.ok_or_else(|| format!("no object `{file}` was linked"))
    }
}
