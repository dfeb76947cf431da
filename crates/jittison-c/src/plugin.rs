//! Plugins of the embedder: callbacks that take part in every link of a session.
//!
//! A plugin has one context for itself and one for each link. `end` closes each link that `begin` has opened, so a link that
//! fails gives its context back, too.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use jittison::base::ExecutorAddr;
use jittison::error::Result;
use jittison::layer::{LinkHooks, LinkOrigin, LinkPlugin};
use jittison::link::{FixedLink, FoundExternal, InitializerKind, LinkGraph, LinkedObject, PlacedLink};
use jittison::{Jit, ResourceKey};

use crate::callbacks::{BorrowedDylib, Dropped, OwnedContext, outcome};
use crate::dylib::Dylib;
use crate::entry::{check_optional_out, check_out, put, put_if_wanted, run};
use crate::error::ErrorObject;
use crate::handle::{Kind, Retained, Table};
use crate::link::{LinkHandle, Stage, during};
use crate::manager::{MANAGERS, ManagerHandle, Registered};
use crate::session::{Context, Handle, SESSIONS, Session, read_options};
use crate::text::Str;

/// `jittison_plugin`.
pub(crate) type PluginHandle = Handle<Added>;
static PLUGINS: Table<Added> = Table::new(Kind::Plugin);

/// A plugin, and the session that it was added to.
pub(crate) struct Added {
    plugin: Arc<dyn LinkPlugin>,
    jit: Retained<Jit>,
}

/// `jittison_link_origin`.
#[repr(C)]
struct Origin {
    object: Str,
    dylib: Dylib,
    sequence: u64,
}

/// `jittison_found_external`.
#[repr(C)]
struct Found {
    name: Str,
    address: u64,
    block_align: u64,
    is_callable: u32,
    is_required: u32,
    is_thread_local: u32,
    reserved: u32,
}

/// `jittison_initializer`.
#[repr(C)]
struct Initializer {
    address: u64,
    kind: u32,
    priority: u32,
}

/// A callback that may change a link.
type OnLink = unsafe extern "C-unwind" fn(LinkHandle, *mut c_void) -> *mut ErrorObject;
type OnBind = unsafe extern "C-unwind" fn(LinkHandle, *mut Found, usize, *mut c_void) -> *mut ErrorObject;

/// `jittison_plugin_callbacks`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Callbacks {
    size: usize,
    name: Str,
    manager: ManagerHandle,
    begin: Option<unsafe extern "C-unwind" fn(*const Origin, *mut *mut c_void, *mut c_void) -> bool>,
    prepare: Option<OnLink>,
    pruned: Option<OnLink>,
    placed: Option<OnLink>,
    bind: Option<OnBind>,
    fixed_up: Option<OnLink>,
    record: Option<unsafe extern "C-unwind" fn(u64, *const Initializer, usize, *mut c_void)>,
    end: Option<unsafe extern "C-unwind" fn(bool, *mut c_void)>,
    dropped: Option<Dropped>,
}

/// Calls the callbacks.
struct Plugin {
    name: String,
    callbacks: Callbacks,
    /// Owns what `record` records.
    manager: Option<Retained<Registered>>,
    context: OwnedContext,
}

// SAFETY: C5 - the callbacks and the context may be used on every thread. `name` of the callbacks is not used after creation.
unsafe impl Send for Plugin {}
// SAFETY: C5 - as above.
unsafe impl Sync for Plugin {}

/// One link.
struct Hooks {
    plugin: Arc<Plugin>,
    context: Context,
    is_linked: bool,
}

/// The plugin as the layer has it: its hooks own it, too.
struct Shared(Arc<Plugin>);

impl LinkPlugin for Shared {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn begin(&self, origin: &LinkOrigin<'_>) -> Option<Box<dyn LinkHooks>> {
        let own = self.0.context.get();
        let mut context = own;
        if let Some(begin) = self.0.callbacks.begin {
            // A table that is full leaves the plugin without a handle of the dylib; it then gets the null handle.
            let dylib = BorrowedDylib::new(&origin.dylib()).ok();
            let object = origin.object();
            let origin = Origin {
                object: Str::of(object),
                dylib: dylib.as_ref().map_or(Handle::new(0), BorrowedDylib::handle),
                sequence: origin.sequence(),
            };
            // SAFETY: C5 - the caller promises the callback and its context. The out-parameter is a variable.
            if !unsafe { begin(&origin, &mut context, own) } {
                return None;
            }
        }
        Some(Box::new(Hooks { plugin: self.0.clone(), context: Context(context), is_linked: false }))
    }
}

impl Hooks {
    /// Calls a callback that gets the link.
    fn call(&self, callback: Option<OnLink>, stage: Stage) -> Result<()> {
        let Some(callback) = callback else { return Ok(()) };
        // SAFETY: C6 - the hook that calls this lends what `stage` points to. C5, C2 - the caller promises the callback, its
        // context and the error that it gives away.
        unsafe { during(stage, |link| outcome(callback(link, self.context.get()))) }
    }
}

impl LinkHooks for Hooks {
    fn prepare(&mut self, graph: &mut LinkGraph) -> Result<()> {
        self.call(self.plugin.callbacks.prepare, Stage::Graph(NonNull::from(graph)))
    }

    fn pruned(&mut self, graph: &mut LinkGraph) -> Result<()> {
        self.call(self.plugin.callbacks.pruned, Stage::Graph(NonNull::from(graph)))
    }

    fn placed(&mut self, link: &mut PlacedLink) -> Result<()> {
        self.call(self.plugin.callbacks.placed, Stage::Placed(NonNull::from(link)))
    }

    fn bind(&mut self, link: &PlacedLink, found: &mut [FoundExternal]) -> Result<()> {
        let Some(bind) = self.plugin.callbacks.bind else { return Ok(()) };
        let mut shown: Vec<_> = link
            .externals()
            .zip(found.iter())
            .map(|(external, found)| Found {
                name: Str::of(external.name),
                address: found.address.value(),
                block_align: found.block_align,
                is_callable: found.is_callable.into(),
                is_required: external.required.into(),
                is_thread_local: found.thread_local.is_some().into(),
                reserved: 0,
            })
            .collect();
        let stage = Stage::Bound(NonNull::from(link));
        // SAFETY: C6 - this hook lends the link. C5, C2 - the caller promises the callback, its context and the error that it
        // gives away.
        unsafe { during(stage, |link| outcome(bind(link, shown.as_mut_ptr(), shown.len(), self.context.get())))? };
        for (shown, found) in shown.iter().zip(found) {
            found.address = ExecutorAddr::new(shown.address);
            found.block_align = shown.block_align;
            found.is_callable = shown.is_callable != 0;
        }
        Ok(())
    }

    fn fixed_up(&mut self, link: &mut FixedLink<'_>) -> Result<()> {
        self.call(self.plugin.callbacks.fixed_up, Stage::fixed(link))
    }

    fn record(mut self: Box<Self>, key: ResourceKey, _: &LinkOrigin<'_>, linked: &LinkedObject) {
        self.is_linked = true;
        let Some(record) = self.plugin.callbacks.record else { return };
        let initializer = |initializer: &jittison::link::Initializer| Initializer {
            address: initializer.address.value(),
            kind: (initializer.kind == InitializerKind::Fini).into(),
            priority: initializer.priority,
        };
        let initializers: Vec<_> = linked.initializers.iter().map(initializer).collect();
        let key = self.plugin.manager.as_ref().map_or(0, |registered| registered.number(key));
        // SAFETY: C5 - the caller promises the callback and its context.
        unsafe { record(key, initializers.as_ptr(), initializers.len(), self.context.get()) };
    }
}

impl Drop for Hooks {
    fn drop(&mut self) {
        if let Some(end) = self.plugin.callbacks.end {
            // SAFETY: C5 - the caller promises the callback and its context until this call.
            unsafe { end(self.is_linked, self.context.get()) };
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_plugin_add(
    session: Session,
    callbacks: *const c_void,
    context: *mut c_void,
    out: *mut PluginHandle,
) -> *mut ErrorObject {
    run(|| {
        check_out(out, "out")?;
        check_out(callbacks.cast_mut().cast::<usize>(), "callbacks")?;
        // SAFETY: C1 - the caller promises the struct, in which null callbacks are values.
        let callbacks: Callbacks = unsafe { read_options(callbacks.cast())? };
        // SAFETY: C1 - the caller promises it.
        let name = unsafe { callbacks.name.read("name")? };
        let name = if name.is_empty() { "a plugin of the embedder" } else { name }.to_string();
        let jit = SESSIONS.retain(session.bits)?;
        let manager = match callbacks.manager.bits {
            0 => None,
            bits => Some(MANAGERS.retain(bits)?),
        };
        let context = OwnedContext::new(context, callbacks.dropped);
        if let Some(manager) = &manager {
            manager.check_session(jit.main_dylib().clone())?;
        }
        let plugin: Arc<dyn LinkPlugin> = Arc::new(Shared(Arc::new(Plugin { name, callbacks, manager, context })));
        let place = PLUGINS.reserve()?;
        jit.layer().add_plugin(plugin.clone());
        // SAFETY: C1 - the caller promises it.
        unsafe { put(out, "out", || Ok(Handle::new(place.fill(Added { plugin, jit })))) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_plugin_remove(plugin: PluginHandle, was_there: *mut bool) -> *mut ErrorObject {
    run(|| {
        check_optional_out(was_there, "was_there")?;
        let added = PLUGINS.get(plugin.bits)?;
        let was = added.jit.layer().remove_plugin(&added.plugin);
        // SAFETY: C1 - the caller promises it.
        unsafe { put_if_wanted(was_there, was) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_plugin_release(plugin: PluginHandle) -> *mut ErrorObject {
    run(|| PLUGINS.release(plugin.bits))
}
