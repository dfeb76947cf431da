//! [`Home`]: the dylib of a program, and the stubs in it. Links versions beside it.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use crate::base::{ExecutorAddr, Name, SegmentKind};
use crate::error::Result;
use crate::jit::inner::Jit;
use crate::jit::patching::publish_variables;
use crate::jit::reload_points::VersionCode;
use crate::jit::reloading::state::{PlannedVersion, State};
use crate::jit::reloading::version::Version;
use crate::link::{Move, Plan, StubbedFunction};
use crate::session::{JitDylib, RequiredState, ResourceTracker, SymbolRequest, Visibility};

/// Where a program has its objects, its stubs and its variables.
pub(super) struct Home {
    pub(super) jit: Jit,
    pub(super) dylib: JitDylib,
    /// Owns the objects and the stubs.
    pub(super) program: ResourceTracker,
}

/// For each stub, its new target.
pub(super) type Redirects = Vec<(String, ExecutorAddr)>;

/// Linked versions that no stub leads to yet. Dropping it removes all of them, and then the new stubs.
pub(super) struct LinkedVersions {
    pub(super) versions: Vec<Version>,
    pub(super) redirects: Redirects,
    pub(super) stubs: NewStubs,
}

/// Stubs that lead nowhere yet, and that nothing calls. Dropping it removes them.
pub(super) struct NewStubs(Option<ResourceTracker>);

impl Home {
    /// Links versions beside the program, each in a dylib of its own. They find each other, then what the program has.
    pub(super) fn link(&self, state: &State, planned: &[PlannedVersion]) -> Result<LinkedVersions> {
        let stubs = self.create_stubs(state, planned.iter().map(|new| &new.plan))?;
        let mut linked = LinkedVersions { versions: Vec::new(), redirects: Redirects::new(), stubs };
        for new in planned {
            linked.versions.push(Version::new(&self.jit.0, &new.object, new.number)?);
        }
        self.set_link_orders(&linked.versions)?;
        for (new, version) in planned.iter().zip(&mut linked.versions) {
            for (number, constants) in state.constants_of_versions(&new.plan, planned) {
                version.find_constants_in(&state.versions[&number], &by_name(&constants))?;
            }
            self.jit.0.layer.add(version.tracker(), &new.object, new.plan.object.clone())?;
        }
        for (new, version) in planned.iter().zip(&mut linked.versions) {
            self.link_version(&new.plan, version, &mut linked.redirects)?;
        }
        // Of archive members that only these versions need.
        self.jit.0.run_pending(&self.dylib);
        Ok(linked)
    }

    /// Each version searches the others, then the home dylib, hidden symbols included, then what that links against.
    fn set_link_orders(&self, versions: &[Version]) -> Result<()> {
        for version in versions {
            let others = versions.iter().filter(|other| other.dylib != version.dylib);
            let others = others.map(|other| (other.dylib.clone(), Visibility::All));
            let order: Vec<_> = others.chain(self.dylib.full_search_order()).collect();
            version.dylib.set_link_order(&order)?;
        }
        Ok(())
    }

    fn link_version(&self, plan: &Plan, version: &mut Version, redirects: &mut Redirects) -> Result<()> {
        redirects.extend(self.find_code(&version.dylib, &plan.functions)?);
        if let Some(name) = plan.some_definition() {
            version.dylib.lookup(&[SymbolRequest::required(name)], RequiredState::Ready)?;
            version.pin_by(&Name::new(name));
        }
        if !plan.variables.is_empty() {
            version.variables = Some(publish_variables(&self.dylib, &version.dylib, &by_name(&plan.variables))?);
        }
        version.stays = plan.stays;
        Ok(())
    }

    /// Calls the hooks that bring values of variables to their new places. An exception or panic of a hook unwinds through this.
    ///
    /// # Errors
    /// The executor has ended.
    pub(super) fn move_variables(&self, planned: &[PlannedVersion], linked: &LinkedVersions) -> Result<()> {
        let address = |dylib: &JitDylib, name: &str| -> Result<u64> {
            let found = dylib.lookup(&[SymbolRequest::required(name)], RequiredState::Ready)?;
            Ok(found.first().map_or(0, |found| found.address.value()))
        };
        for (new, version) in planned.iter().zip(&linked.versions) {
            for Move { hook, from, to, size } in &new.plan.moves {
                let hook = ExecutorAddr::new(address(&version.dylib, hook)?);
                let from = address(&self.dylib, &from.0)?.wrapping_add(from.1);
                let to = address(&version.dylib, &to.0)?.wrapping_add(to.1);
                self.jit.0.executor.run_hook(hook, [to, from, *size])?;
            }
        }
        Ok(())
    }

    /// Makes stubs for the functions of plans that have none.
    pub(super) fn create_stubs<'p>(&self, state: &State, plans: impl Iterator<Item = &'p Plan>) -> Result<NewStubs> {
        let functions = plans.flat_map(|plan| &plan.functions);
        let names: BTreeSet<&str> = functions.map(|function| function.stub.as_str()).collect();
        let new: Vec<(&str, ExecutorAddr)> = names
            .into_iter()
            .filter(|name| !state.targets.contains_key(*name))
            .map(|name| (name, ExecutorAddr::new(0)))
            .collect();
        if new.is_empty() {
            return Ok(NewStubs(None));
        }
        let stubs = NewStubs(Some(self.dylib.create_tracker()?));
        stubs.0.iter().try_for_each(|tracker| self.jit.0.stubs.create(tracker, &new))?;
        Ok(stubs)
    }

    /// The addresses of functions in a dylib.
    pub(super) fn find_code(&self, dylib: &JitDylib, functions: &[StubbedFunction]) -> Result<Redirects> {
        let requests: Vec<_> = functions.iter().map(|function| SymbolRequest::required(&function.code)).collect();
        let found = dylib.lookup(&requests, RequiredState::Ready)?;
        Ok(functions.iter().zip(found).map(|(function, found)| (function.stub.clone(), found.address)).collect())
    }

    /// Where the code of the objects of the program is.
    pub(super) fn code_of_program<'o>(&self, objects: impl Iterator<Item = &'o String>) -> Vec<VersionCode> {
        let objects: BTreeSet<&str> = objects.map(String::as_str).collect();
        let group = self.dylib.name();
        let tenants = self.jit.0.layer.tenants().into_iter();
        let of_program = tenants.filter(|tenant| *tenant.group == *group && objects.contains(&*tenant.name));
        of_program
            .map(|tenant| {
                let (start, size) = tenant.segments[SegmentKind::Code.index()];
                let range = (start.value(), start.value() + size);
                VersionCode { range, object: tenant.name, tracker: None, is_replaced: false }
            })
            .collect()
    }

    /// Redirects stubs, one store for each, one directly after the other. If one of them is gone, none is redirected.
    pub(super) fn redirect(&self, redirects: &Redirects) -> Result<()> {
        let stubs = &self.jit.0.stubs;
        let found: Vec<_> = redirects.iter().map(|(stub, _)| stubs.find(&self.dylib, stub)).collect::<Result<_>>()?;
        found.iter().zip(redirects).for_each(|(stub, (_, target))| stub.redirect(*target));
        Ok(())
    }
}

/// Sizes of data in bytes, by name.
fn by_name(data: &[(String, u64)]) -> FxHashMap<Name, u64> {
    data.iter().map(|(name, size)| (Name::new(name), *size)).collect()
}

impl NewStubs {
    /// Gives the stubs to the tracker of the program.
    ///
    /// # Errors
    /// That tracker was removed. Then the stubs keep their own one.
    pub(super) fn keep(mut self, program: &ResourceTracker) -> Result<()> {
        self.0.take().map_or(Ok(()), |tracker| tracker.transfer_to(program))
    }
}

impl Drop for NewStubs {
    fn drop(&mut self) {
        drop(self.0.take().map(|tracker| tracker.remove()));
    }
}
