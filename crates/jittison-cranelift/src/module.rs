//! [`JITModule`]: a `cranelift_module::Module` whose definitions are linked into a dylib of a session.
//!
//! A definition is compiled at once and linked by [`JITModule::finalize_definitions`]. Definitions that are removed together
//! become one graph.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use cranelift_codegen::binemit::Reloc;
use cranelift_codegen::isa::{OwnedTargetIsa, TargetIsa};
use cranelift_codegen::{Context, ir};
use cranelift_control::ControlPlane;
use cranelift_entity::SecondaryMap;
use cranelift_module::{
    DataDescription, DataId, FuncId, FuncOrDataId, Init, Linkage, Module, ModuleDeclarations, ModuleError, ModuleReloc,
    ModuleResult,
};
use jittison::host::FunctionPointer;
use jittison::session::Visibility;
use jittison::{Committed, Function, Jit, JitDylib, Patchable, PreparedPatch, Removal, ResourceTracker};

use crate::builder::{Grouping, JITBuilder, LibcallNames};
use crate::definition::{self, Content, Definition, Names, Store, backend};
use crate::host_symbols::{self, HostSymbols};

/// A module of functions and data, with cranelift-jit's names. `README.md` of the crate says what differs.
pub struct JITModule {
    isa: OwnedTargetIsa,
    libcall_names: LibcallNames,
    jit: Jit,
    dylib: JitDylib,
    /// Symbols that the builder named, and those that its searches find.
    host: JitDylib,
    declarations: ModuleDeclarations,
    functions: SecondaryMap<FuncId, State>,
    data: SecondaryMap<DataId, State>,
    /// Sizes in bytes of the data objects that are finalised.
    data_sizes: SecondaryMap<DataId, usize>,
    pending: Vec<(ResourceTracker, Definition)>,
    /// The bytes and relocations of what is pending.
    store: Store,
    /// Those of a function that is being redefined.
    version: Store,
    grouping: Grouping,
    /// Owns what is defined from now on, with [`Grouping::Manual`].
    group: ResourceTracker,
    is_removed_on_drop: bool,
}

/// The state of a declaration.
#[derive(Clone, Default)]
enum State {
    /// Not defined, or removed.
    #[default]
    Declared,
    /// Compiled, and not linked.
    Pending,
    Finalized(ResourceTracker),
    /// A function that comes in versions.
    Redefinable(Patchable),
}

impl State {
    /// Whether the name has no definition.
    fn may_define(&self) -> bool {
        match self {
            State::Declared => true,
            // Its group was removed, or transferred: then the session finds the name defined.
            State::Finalized(tracker) => tracker.is_defunct(),
            State::Pending | State::Redefinable(_) => false,
        }
    }
}

impl JITModule {
    /// Makes a module.
    ///
    /// # Panics
    /// If the session cannot be made (no memory for code), or has ended. cranelift-jit returns no error here.
    pub fn new(builder: JITBuilder) -> JITModule {
        JITModule::try_new(builder).unwrap_or_else(|error| panic!("cannot make a module: {error}"))
    }

    /// As [`new`](Self::new), with an error instead of a panic.
    ///
    /// # Errors
    /// The session cannot be made, or has ended.
    pub fn try_new(builder: JITBuilder) -> jittison::error::Result<JITModule> {
        let JITBuilder { isa, symbols, lookups, libcall_names, session, grouping, is_removed_on_drop } = builder;
        let jit = match session {
            Some(session) => session,
            None => shared_session()?,
        };
        let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
        let host = jit.create_dylib(&format!("cranelift host {number}"))?;
        let symbols = symbols.iter().map(|(name, address)| host_symbols::definition(name, *address));
        host.define_absolute(symbols.collect::<Vec<_>>())?;
        if !lookups.is_empty() {
            host.add_generator(std::sync::Arc::new(HostSymbols::new(lookups)));
        }
        let order = [host.clone(), jit.process_dylib().clone()].map(|dylib| (dylib, Visibility::ExportedOnly));
        let dylib = jit.session().create_dylib(&format!("cranelift module {number}"))?;
        dylib.set_link_order(&order)?;
        let group = dylib.create_tracker()?;
        Ok(JITModule {
            isa,
            libcall_names,
            jit,
            dylib,
            host,
            declarations: ModuleDeclarations::default(),
            functions: SecondaryMap::new(),
            data: SecondaryMap::new(),
            data_sizes: SecondaryMap::new(),
            pending: Vec::new(),
            store: Store::default(),
            version: Store::default(),
            grouping,
            group,
            is_removed_on_drop,
        })
    }

    /// The session of the module.
    pub fn session(&self) -> &Jit {
        &self.jit
    }

    /// The dylib that has the module's definitions.
    pub fn dylib(&self) -> &JitDylib {
        &self.dylib
    }

    /// Begins a group: what is defined from now on is removed together ([`Grouping::Manual`]). Returns the tracker of the group
    /// before, which owns what was defined since the last call. After its removal, its names may be defined again.
    ///
    /// # Errors
    /// The module was removed from its session.
    pub fn next_group(&mut self) -> jittison::error::Result<ResourceTracker> {
        Ok(std::mem::replace(&mut self.group, self.dylib.create_tracker()?))
    }

    /// Links all functions and data objects that are defined and not finalised. What they refer to must be defined.
    ///
    /// # Errors
    /// A symbol is missing, or memory is short. What could not be linked is no longer defined, and may be defined again.
    pub fn finalize_definitions(&mut self) -> ModuleResult<()> {
        let mut pending = std::mem::take(&mut self.pending);
        let outcome = self.link_pending(&mut pending);
        // The buffers are kept for the next time.
        self.pending = pending;
        self.store.clear();
        outcome
    }

    fn link_pending(&mut self, pending: &mut Vec<(ResourceTracker, Definition)>) -> ModuleResult<()> {
        let is_same_group = |a: &(ResourceTracker, _), b: &(ResourceTracker, _)| a.0.key() == b.0.key();
        if pending.iter().zip(pending.iter().skip(1)).all(|(a, b)| is_same_group(a, b)) {
            let outcome = self.give(pending, Jit::link_graph);
            self.note(pending.drain(..), outcome.is_ok());
            return outcome;
        }
        // The groups may refer to each other, so all of them are added before one is linked.
        let ids: Vec<FuncOrDataId> = pending.iter().map(|(_, definition)| definition.id).collect();
        let mut outcome = Ok(());
        while !pending.is_empty() {
            let count = pending.chunk_by(is_same_group).next().map_or(0, <[_]>::len);
            let added = self.give(&pending[..count], Jit::add_graph);
            self.note(pending.drain(..count), added.is_ok());
            outcome = outcome.and(added);
        }
        for id in ids {
            outcome = outcome.and(self.find(id));
        }
        outcome
    }

    /// Gives the definitions of one group to the session.
    fn give(
        &self,
        group: &[(ResourceTracker, Definition)],
        link: fn(&Jit, &ResourceTracker, jittison::link::BuiltGraph) -> jittison::error::Result<()>,
    ) -> ModuleResult<()> {
        let Some((tracker, _)) = group.first() else { return Ok(()) };
        let definitions = group.iter().map(|(_, definition)| definition);
        let graph = definition::graph(definitions, &self.store, &self.names(), &*self.isa)?;
        link(&self.jit, tracker, graph).map_err(backend)
    }

    /// Notes whether definitions are finalised now, or may be defined again.
    fn note(&mut self, group: impl Iterator<Item = (ResourceTracker, Definition)>, is_linked: bool) {
        for (tracker, definition) in group {
            *self.state_mut(definition.id) = if is_linked { State::Finalized(tracker) } else { State::Declared };
            if let FuncOrDataId::Data(id) = definition.id {
                self.data_sizes[id] = definition.content.size() as usize;
            }
        }
    }

    /// Links the group of a definition that was added. If that fails, it is no longer defined.
    fn find(&mut self, id: FuncOrDataId) -> ModuleResult<()> {
        if matches!(self.state_mut(id), State::Declared) {
            return Ok(()); // reported already
        }
        let found = self.dylib.lookup_address(&self.name(id)).map_err(backend);
        if found.is_err() {
            *self.state_mut(id) = State::Declared;
        }
        found.map(drop)
    }

    /// The address of a finalised function. It is valid until the function is removed.
    ///
    /// # Panics
    /// If the function is not finalised, as in cranelift-jit.
    pub fn get_finalized_function(&self, id: FuncId) -> *const u8 {
        let is_linked = matches!(self.functions[id], State::Finalized(_) | State::Redefinable(_));
        assert!(is_linked, "function not yet finalized");
        self.address(FuncOrDataId::Func(id))
    }

    /// The address and the size in bytes of a finalised data object. The address of a thread-local object is meaningless. It is
    /// valid until the object is removed.
    ///
    /// # Panics
    /// If the object is not finalised, as in cranelift-jit.
    pub fn get_finalized_data(&self, id: DataId) -> (*const u8, usize) {
        assert!(matches!(self.data[id], State::Finalized(_)), "data object not yet finalized");
        (self.address(FuncOrDataId::Data(id)), self.data_sizes[id])
    }

    /// The address of a definition of this module. After its removal, the host may have a symbol of the same name.
    fn address(&self, id: FuncOrDataId) -> *const u8 {
        let name = self.names();
        let name = name.of(id);
        let is_thread_local = matches!(id, FuncOrDataId::Data(id) if self.declarations.get_data_decl(id).tls);
        let address = self.dylib.lookup_address(&name).and_then(|address| match is_thread_local {
            true => self.jit.address_of(&self.dylib, &name),
            false => Ok(address),
        });
        address.unwrap_or_else(|error| panic!("{name} is gone: {error}")).value() as *const u8
    }

    /// A handle of a finalised function. It keeps the function's code, also when that is removed.
    ///
    /// # Safety
    /// As [`Jit::lookup_in`]: the function has the signature `F`.
    ///
    /// # Errors
    /// The function is not finalised.
    #[allow(unsafe_code)]
    pub unsafe fn function<F: FunctionPointer>(&self, id: FuncId) -> jittison::error::Result<Function<F>> {
        let name = self.name(FuncOrDataId::Func(id));
        // SAFETY: the caller's promise.
        let function = unsafe { self.jit.lookup_in(&self.dylib, &name)? };
        // If the module does not define it any more, the handle may be that of a function of the host.
        self.dylib.lookup_address(&name)?;
        Ok(function)
    }

    /// Defines a function so that it can be defined again while threads call it, or defines it again. Takes effect at once:
    /// all later calls reach the new code, from functions of the module, through handles and through addresses. What it refers
    /// to must be finalised.
    ///
    /// The code that it replaces is freed when no call of a handle and no guard is inside it. Code that calls a raw address has
    /// a [guard](Jit::guard) around the call.
    ///
    /// ```
    /// # use cranelift_codegen::ir::{AbiParam, InstBuilder, types};
    /// # use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
    /// use cranelift_module::{FuncId, Linkage, Module, default_libcall_names};
    /// use jittison_cranelift::{JITBuilder, JITModule};
    ///
    /// # fn number_function(module: &JITModule, number: i64) -> cranelift_codegen::Context {
    /// #     let mut context = module.make_context();
    /// #     context.func.signature.returns.push(AbiParam::new(types::I64));
    /// #     let mut frontend = FunctionBuilderContext::new();
    /// #     let mut function = FunctionBuilder::new(&mut context.func, &mut frontend);
    /// #     let block = function.create_block();
    /// #     function.switch_to_block(block);
    /// #     let result = function.ins().iconst(types::I64, number);
    /// #     function.ins().return_(&[result]);
    /// #     function.seal_all_blocks();
    /// #     function.finalize(module.target_config());
    /// #     context
    /// # }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut module = JITModule::new(JITBuilder::new(default_libcall_names())?);
    /// // number_function: Cranelift's IR of a function that returns a number.
    /// let mut one = number_function(&module, 1);
    /// let mut two = number_function(&module, 2);
    /// let id = module.declare_function("number", Linkage::Export, &one.func.signature)?;
    ///
    /// // Safety: both have the signature with which the function is called.
    /// unsafe { module.redefine_function(id, &mut one)? };
    /// let number = unsafe { module.function::<extern "C" fn() -> i64>(id)? };
    /// assert_eq!(number.call(), 1);
    /// unsafe { module.redefine_function(id, &mut two)? };
    /// assert_eq!(number.call(), 2);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// - The function was defined by [`define_function`](Module::define_function): its callers are bound to that definition.
    ///   Remove it first.
    /// - The signature differs from the declaration.
    /// - A symbol is missing, or memory is short. Then callers stay with the code that they have.
    ///
    /// # Safety
    /// - The function does what its callers expect: a handle of a safe type may be called by safe code.
    /// - All objects that were added to the module's dylib, and to those that it links against, may run: see
    ///   [`Patch::link`](jittison::Patch::link).
    #[allow(unsafe_code)]
    pub unsafe fn redefine_function(&mut self, id: FuncId, context: &mut Context) -> ModuleResult<Committed> {
        if self.declarations.get_function_decl(id).signature != context.func.signature {
            return Err(self.refused(id, "its signature differs from the declaration"));
        }
        let patchable = self.patchable(id)?;
        self.version.clear();
        let definition = self.version.compile(&*self.isa, id, context, &mut ControlPlane::default())?;
        // SAFETY: the caller's promise.
        unsafe { self.commit(id, patchable, &definition) }
    }

    /// As [`redefine_function`](Self::redefine_function), with machine code, as
    /// [`define_function_bytes`](Module::define_function_bytes) takes it.
    ///
    /// # Errors
    /// As [`redefine_function`](Self::redefine_function), but signatures are not compared.
    ///
    /// # Safety
    /// As [`redefine_function`](Self::redefine_function), and the code has the signature of the declaration.
    #[allow(unsafe_code)]
    pub unsafe fn redefine_function_bytes(
        &mut self,
        id: FuncId,
        align: u64,
        bytes: &[u8],
        relocations: &[ModuleReloc],
    ) -> ModuleResult<Committed> {
        let patchable = self.patchable(id)?;
        self.version.clear();
        let definition = self.version.function(&*self.isa, id, align, bytes, relocations);
        // SAFETY: the caller's promise.
        unsafe { self.commit(id, patchable, &definition) }
    }

    /// The versions of a function that is defined by [`redefine_function`](Self::redefine_function).
    fn patchable(&self, id: FuncId) -> ModuleResult<Patchable> {
        let name = || self.name(FuncOrDataId::Func(id));
        if !self.declarations.get_function_decl(id).linkage.is_definable() {
            return Err(ModuleError::InvalidImportDefinition(name()));
        }
        match &self.functions[id] {
            State::Redefinable(patchable) => Ok(patchable.clone()),
            state if state.may_define() => {
                let name = name();
                let builder = self.jit.patchable_builder(&self.dylib, &[&name]);
                // A history would keep replaced code until the next definition. There is no limit of versions in use, because
                // a thread that is not scheduled may be inside many of them.
                builder.history(0).max_versions(usize::MAX).build().map_err(backend)
            }
            _ => {
                let problem = "its callers are bound to the definition that it has; define it by redefine_function, also \
                               the first time";
                Err(self.refused(id, problem))
            }
        }
    }

    /// Links the version of a function that [`Self::version`] holds, and redirects its callers.
    ///
    /// # Safety
    /// As [`redefine_function`](Self::redefine_function).
    #[allow(unsafe_code)]
    unsafe fn commit(&mut self, id: FuncId, patchable: Patchable, definition: &Definition) -> ModuleResult<Committed> {
        let graph = definition::graph([definition].into_iter(), &self.version, &self.names(), &*self.isa)?;
        let mut patch = patchable.patch();
        // A graph without the function is refused by the link.
        patch.add_graph(graph);
        // SAFETY: the caller's promise.
        let committed = unsafe { patch.link() }.and_then(PreparedPatch::commit).map_err(backend)?;
        self.functions[id] = State::Redefinable(patchable);
        Ok(committed)
    }

    #[cold]
    fn refused(&self, id: FuncId, problem: &str) -> ModuleError {
        let name = self.name(FuncOrDataId::Func(id));
        ModuleError::Backend(anyhow::anyhow!("cannot define `{name}` again: {problem}"))
    }

    /// Removes a function that was defined with [`Grouping::Single`] or by [`redefine_function`](Self::redefine_function). Its
    /// name may be defined again at once. Its memory is freed when no handle, no guard and no other function needs it; the
    /// ticket says when.
    ///
    /// # Errors
    /// The function is not finalised, or others share its group: remove the tracker of [`next_group`](Self::next_group) then.
    pub fn remove_function(&mut self, id: FuncId) -> ModuleResult<Removal> {
        if let State::Redefinable(patchable) = &self.functions[id] {
            let removals = patchable.remove();
            // Also after an error: then the dylib was cleared, or a resource manager has failed. The function is gone.
            self.functions[id] = State::Declared;
            // The stub, then the version that it leads to, which outlives it.
            let last = removals.map_err(backend)?.pop();
            let name = || self.name(FuncOrDataId::Func(id));
            return last.ok_or_else(|| ModuleError::Backend(anyhow::anyhow!("`{}` had no version", name())));
        }
        self.remove(FuncOrDataId::Func(id))
    }

    /// Removes a data object, as [`remove_function`](Self::remove_function) removes a function.
    ///
    /// # Errors
    /// As [`remove_function`](Self::remove_function).
    pub fn remove_data(&mut self, id: DataId) -> ModuleResult<Removal> {
        self.remove(FuncOrDataId::Data(id))
    }

    fn remove(&mut self, id: FuncOrDataId) -> ModuleResult<Removal> {
        let refuse = |problem: &str, name: String| {
            Err(ModuleError::Backend(anyhow::anyhow!("cannot remove `{name}`: {problem}")))
        };
        if self.grouping != Grouping::Single {
            return refuse(
                "it shares a group with other definitions; use Grouping::Single, or remove the group",
                self.name(id),
            );
        }
        match std::mem::take(self.state_mut(id)) {
            State::Finalized(tracker) => tracker.remove().map_err(backend),
            other => {
                *self.state_mut(id) = other;
                refuse("it is not finalised", self.name(id))
            }
        }
    }

    /// Removes all code and data of the module. Safe, unlike in cranelift-jit: what handles and running guards need stays
    /// until they end. A raw address must not be called afterwards.
    pub fn free_memory(mut self) {
        self.is_removed_on_drop = true;
    }

    fn names(&self) -> Names<'_> {
        Names { declarations: &self.declarations, libcalls: &self.libcall_names }
    }

    fn name(&self, id: FuncOrDataId) -> String {
        self.names().of(id).into_owned()
    }

    fn state_mut(&mut self, id: FuncOrDataId) -> &mut State {
        match id {
            FuncOrDataId::Func(id) => &mut self.functions[id],
            FuncOrDataId::Data(id) => &mut self.data[id],
        }
    }

    /// Notes that a declaration is defined now, and returns the tracker of the definition.
    fn begin_definition(&mut self, id: FuncOrDataId, linkage: Linkage) -> ModuleResult<ResourceTracker> {
        if !linkage.is_definable() {
            return Err(ModuleError::InvalidImportDefinition(self.name(id)));
        }
        if !self.state_mut(id).may_define() {
            return Err(ModuleError::DuplicateDefinition(self.name(id)));
        }
        match self.grouping {
            Grouping::Manual => Ok(self.group.clone()),
            Grouping::Single => self.dylib.create_tracker().map_err(backend),
        }
    }

    fn push(&mut self, tracker: ResourceTracker, definition: Definition) {
        *self.state_mut(definition.id) = State::Pending;
        self.pending.push((tracker, definition));
    }
}

impl Module for JITModule {
    fn isa(&self) -> &dyn TargetIsa {
        &*self.isa
    }

    fn declarations(&self) -> &ModuleDeclarations {
        &self.declarations
    }

    fn declare_function(&mut self, name: &str, linkage: Linkage, signature: &ir::Signature) -> ModuleResult<FuncId> {
        definition::check_declared(name)?;
        self.declarations.declare_function(name, linkage, signature).map(|(id, _)| id)
    }

    fn declare_anonymous_function(&mut self, signature: &ir::Signature) -> ModuleResult<FuncId> {
        self.declarations.declare_anonymous_function(signature)
    }

    fn declare_data(&mut self, name: &str, linkage: Linkage, writable: bool, tls: bool) -> ModuleResult<DataId> {
        definition::check_declared(name)?;
        self.declarations.declare_data(name, linkage, writable, tls).map(|(id, _)| id)
    }

    fn declare_anonymous_data(&mut self, writable: bool, tls: bool) -> ModuleResult<DataId> {
        self.declarations.declare_anonymous_data(writable, tls)
    }

    fn define_function_with_control_plane(
        &mut self,
        id: FuncId,
        context: &mut Context,
        control_plane: &mut ControlPlane,
    ) -> ModuleResult<()> {
        let linkage = self.declarations.get_function_decl(id).linkage;
        let tracker = self.begin_definition(FuncOrDataId::Func(id), linkage)?;
        let definition = self.store.compile(&*self.isa, id, context, control_plane)?;
        self.push(tracker, definition);
        Ok(())
    }

    fn define_function_bytes(
        &mut self,
        id: FuncId,
        align: u64,
        bytes: &[u8],
        relocations: &[ModuleReloc],
    ) -> ModuleResult<()> {
        let linkage = self.declarations.get_function_decl(id).linkage;
        let tracker = self.begin_definition(FuncOrDataId::Func(id), linkage)?;
        let definition = self.store.function(&*self.isa, id, align, bytes, relocations);
        self.push(tracker, definition);
        Ok(())
    }

    fn define_data(&mut self, id: DataId, data: &DataDescription) -> ModuleResult<()> {
        let declaration = self.declarations.get_data_decl(id);
        let (linkage, is_writable) = (declaration.linkage, declaration.writable);
        let id = FuncOrDataId::Data(id);
        if let Some(section) = data.custom_section.as_deref().filter(|section| lists_initializers(section)) {
            let problem = "a module runs no initialisers and finalisers; call the functions";
            return Err(ModuleError::Backend(anyhow::anyhow!(
                "data `{}` is in section `{section}`: {problem}",
                self.name(id)
            )));
        }
        let tracker = self.begin_definition(id, linkage)?;
        let relocations = self.store.add_relocations(data.all_relocs(Reloc::Abs8));
        // As in cranelift-jit, an object has at least one byte.
        let content = match &data.init {
            Init::Uninitialized => {
                let problem = format!("data `{}` is defined without content", self.name(id));
                return Err(ModuleError::Backend(anyhow::anyhow!(problem)));
            }
            Init::Zeros { size } if relocations.is_empty() => Content::Zeroes((*size as u64).max(1)),
            Init::Zeros { size } => self.store.add_bytes(&vec![0; *size]),
            Init::Bytes { contents } if contents.is_empty() => Content::Zeroes(1),
            Init::Bytes { contents } => self.store.add_bytes(contents),
        };
        let align = data.align.unwrap_or(if is_writable { WRITABLE_DATA_ALIGN } else { 1 });
        let (section, is_used) = (data.custom_section.clone(), data.used);
        self.push(tracker, Definition { relocations, section, is_used, ..Definition::new(id, content, align) });
        Ok(())
    }
}

impl Drop for JITModule {
    fn drop(&mut self) {
        if self.is_removed_on_drop {
            // An error means that the session has ended, so nothing is left to remove.
            let _ = self.jit.session().remove_dylib(&self.dylib);
            let _ = self.jit.session().remove_dylib(&self.host);
        }
    }
}

impl fmt::Debug for JITModule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with {} definitions that are not finalised", self.dylib.name(), self.pending.len())
    }
}

/// Whether a native link would run functions of this section. Nothing here may run them, because a finalisation is safe code.
fn lists_initializers(section: &str) -> bool {
    let lists = [".preinit_array", ".init_array", ".fini_array", ".ctors", ".dtors", ".init", ".fini"];
    let has_name =
        |list: &&str| section.strip_prefix(list).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    lists.iter().any(has_name)
}

/// The session of all modules for which the program names none.
fn shared_session() -> jittison::error::Result<Jit> {
    static SHARED: OnceLock<Jit> = OnceLock::new();
    if let Some(shared) = SHARED.get() {
        return Ok(shared.clone());
    }
    let own = Jit::new()?;
    // If another thread was first, its session is the shared one, and this one ends.
    Ok(SHARED.get_or_init(|| own).clone())
}

/// Numbers the modules of the process, for the names of their dylibs.
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0);

/// Bytes, as in cranelift-jit.
const WRITABLE_DATA_ALIGN: u64 = 8;

const _: () = {
    const fn assert_send<T: Send>() {}
    assert_send::<JITModule>();
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_of_a_declaration_takes_16_bytes() {
        assert_eq!(size_of::<State>(), 16);
    }
}
