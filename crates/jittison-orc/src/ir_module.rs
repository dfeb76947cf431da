//! Modules of IR: [`IrLayer`] makes machine code of them when one of their symbols is looked up.
//!
//! A module is a materialisation unit. Its symbols are read when it is added. When one is looked up, the transform of the program
//! gets the module, LLVM makes an object of it under the lock of its context, the transform for objects gets that, and it is
//! linked. The module is disposed of then. If the unit is removed before, the module is never compiled.

use std::ffi::{CStr, c_int};
use std::ptr;
use std::sync::{Arc, Weak};

use jittison::base::Name;
use jittison::session::{MaterializationResponsibility, MaterializationUnit, SymbolFlags};
use jittison::{Error, ResourceTracker};
use parking_lot::Mutex;

use crate::entry::run_or_report;
use crate::layers::{IrTransform, ObjectTransform};
use crate::llvm::{Llvm, Opaque, llvm};
use crate::llvm_error::take_message;
use crate::object_file::{self, ObjectFile};
use crate::responsibility::Responsibility;
use crate::session::Session;
use crate::target_machine::TargetMachine;
use crate::thread_safe::ThreadSafeModule;

/// `LLVMOrcIRTransformLayerRef` points to one: everything between a module and the linker.
pub(crate) struct IrLayer {
    session: Weak<Session>,
    /// One thread compiles at a time.
    machine: Mutex<TargetMachine>,
    transform: IrTransform,
    pub(crate) objects: ObjectTransform,
}

/// `LLVMObjectFile`.
const OBJECT_FILE: c_int = 1;

impl IrLayer {
    pub(crate) fn new(session: &Arc<Session>, machine: TargetMachine) -> Arc<IrLayer> {
        let (transform, objects) = Default::default();
        Arc::new(IrLayer { session: Arc::downgrade(session), machine: Mutex::new(machine), transform, objects })
    }

    /// Adds a module under a tracker. `layout` is the data layout of the target.
    pub(crate) fn add(
        self: &Arc<IrLayer>,
        tracker: &ResourceTracker,
        module: ThreadSafeModule,
        layout: &CStr,
    ) -> Result<(), Error> {
        let (name, symbols) = module.with(|raw| {
            set_layout(raw, layout)?;
            Ok((identifier(raw)?, self.symbols(raw)?))
        })?;
        if symbols.is_empty() {
            // Nothing can be looked up, so it is never linked.
            return Ok(());
        }
        let (symbols, sizes) = symbols.into_iter().map(|(name, flags, size)| ((name, flags), size)).unzip();
        tracker.define(IrUnit { name, symbols, sizes, module, layer: self.clone() })
    }

    /// Makes an object of a module and links it for a responsibility. A failure fails the symbols.
    pub(crate) fn emit(&self, mut responsibility: Responsibility, module: ThreadSafeModule) {
        match self.compile(&mut responsibility, module) {
            Ok((jit_session, name, object)) => match (responsibility.into_unresolved(), jit_session.jit()) {
                (Ok(unresolved), Ok(jit)) => object_file::emit(jit, unresolved, &name, object),
                (Ok(unresolved), Err(error)) => unresolved.fail(error),
                (Err(error), _) => Session::report_to(Some(&jit_session), &error),
            },
            Err(error) => responsibility.fail(error),
        }
    }

    fn compile(
        &self,
        responsibility: &mut Responsibility,
        module: ThreadSafeModule,
    ) -> Result<(Arc<Session>, String, Vec<u8>), Error> {
        let session = self.session.upgrade().ok_or_else(|| Error::other("the execution session has ended"))?;
        let module = self.transform.apply(module, responsibility)?;
        let (name, mut object) = module.with(|raw| Ok((identifier(raw)?, self.make_object(raw)?)))?;
        drop(module);
        if self.objects.is_set() {
            object = self.objects.apply(object.renamed(&format!("{name}-jitted-objectbuffer"))?)?;
        }
        Ok((session, name, object.bytes()?))
    }

    fn make_object(&self, module: Opaque) -> Result<ObjectFile, Error> {
        let emit = llvm()?.LLVMTargetMachineEmitToMemoryBuffer()?;
        let (mut message, mut buffer) = (ptr::null_mut(), ptr::null_mut());
        let machine = self.machine.lock();
        // SAFETY: O4 - all are valid for the call, and the lock is for the machine.
        let has_failed = unsafe { emit(machine.0, module, OBJECT_FILE, &mut message, &mut buffer) } != 0;
        drop(machine);
        // SAFETY: O2 - the message is owned, or null.
        let message = unsafe { take_message(message) };
        if has_failed {
            return Err(Error::other(message.to_string_lossy()));
        }
        // SAFETY: O2 - the buffer is owned.
        unsafe { ObjectFile::from_raw(buffer) }
    }

    /// The symbols that the object of a module will define, with their flags and sizes.
    fn symbols(&self, module: Opaque) -> Result<Vec<(Name, SymbolFlags, u64)>, Error> {
        let llvm = llvm()?;
        let kinds = [
            (llvm.LLVMGetFirstFunction()?, llvm.LLVMGetNextFunction()?),
            (llvm.LLVMGetFirstGlobal()?, llvm.LLVMGetNextGlobal()?),
            (llvm.LLVMGetFirstGlobalAlias()?, llvm.LLVMGetNextGlobalAlias()?),
            (llvm.LLVMGetFirstGlobalIFunc()?, llvm.LLVMGetNextGlobalIFunc()?),
        ];
        let mut symbols = Vec::new();
        for (position, (first, next)) in kinds.into_iter().enumerate() {
            // SAFETY: O4 - the module is open.
            let mut value = unsafe { first(module) };
            while !value.is_null() {
                let is_variable = position == 1;
                symbols.extend(self.symbol(llvm, value, is_variable)?);
                // SAFETY: O4 - the value is one of the module.
                value = unsafe { next(value) };
            }
        }
        Ok(symbols)
    }

    /// What a global value defines. `None` if other modules cannot see it.
    fn symbol(&self, llvm: &Llvm, value: Opaque, is_variable: bool) -> Result<Option<(Name, SymbolFlags, u64)>, Error> {
        let (is_declaration, linkage, visibility) =
            (llvm.LLVMIsDeclaration()?, llvm.LLVMGetLinkage()?, llvm.LLVMGetVisibility()?);
        // SAFETY: O4 - the value is a global one of an open module.
        let (is_declaration, linkage, visibility) =
            unsafe { (is_declaration(value) != 0, linkage(value), visibility(value)) };
        let Some(mut flags) = linkage_flags(linkage).filter(|_| !is_declaration) else { return Ok(None) };
        let Some(name) = symbol_name(llvm, value)? else { return Ok(None) };
        if visibility != HIDDEN {
            flags = flags | SymbolFlags::EXPORTED;
        }
        let value_type = llvm.LLVMGlobalGetValueType()?;
        // SAFETY: O4 - as above.
        let (value_type, kind) = unsafe {
            let value_type = value_type(value);
            (value_type, llvm.LLVMGetTypeKind()?(value_type))
        };
        if kind == FUNCTION_TYPE {
            flags = flags | SymbolFlags::CALLABLE;
        }
        // SAFETY: O4 - only a variable is asked.
        if is_variable && unsafe { llvm.LLVMIsThreadLocal()?(value) } != 0 {
            flags = flags | SymbolFlags::THREAD_LOCAL;
        }
        let size = if flags.contains(SymbolFlags::COMMON) { self.size_of(llvm, value_type)? } else { 0 };
        Ok(Some((name, flags, size)))
    }

    fn size_of(&self, llvm: &Llvm, value_type: Opaque) -> Result<u64, Error> {
        let (create, dispose) = (llvm.LLVMCreateTargetDataLayout()?, llvm.LLVMDisposeTargetData()?);
        let size_of = llvm.LLVMABISizeOfType()?;
        // SAFETY: O4, O2 - the layout is owned, and disposed of once.
        unsafe {
            let layout = create(self.machine.lock().0);
            let size = size_of(layout, value_type);
            dispose(layout);
            Ok(size)
        }
    }
}

// `LLVMVisibility` and `LLVMTypeKind`.
const HIDDEN: c_int = 1;
const FUNCTION_TYPE: c_int = 9;

/// The flags of a linkage (`LLVMLinkage`). `None` if an object has no symbol for it that others see.
fn linkage_flags(linkage: c_int) -> Option<SymbolFlags> {
    match linkage {
        // External; dllimport and dllexport, which ELF does not have.
        0 | 10 | 11 => Some(SymbolFlags::NONE),
        // Link-once and weak, for any reason.
        2..=6 => Some(SymbolFlags::WEAK),
        14 => Some(SymbolFlags::WEAK | SymbolFlags::COMMON),
        // Available externally, appending, internal, private, and what is declared only.
        _ => None,
    }
}

/// The name of the symbol of a global value. `None` if it has no name.
fn symbol_name(llvm: &Llvm, value: Opaque) -> Result<Option<Name>, Error> {
    let mut length = 0;
    let name_of = llvm.LLVMGetValueName2()?;
    // SAFETY: O4 - the name stays as long as the value.
    let bytes = unsafe {
        let start = name_of(value, &mut length);
        std::slice::from_raw_parts(start, length)
    };
    // This byte says that the name is the symbol's.
    let bytes = bytes.strip_prefix(b"\x01").unwrap_or(bytes);
    let name = std::str::from_utf8(bytes);
    let name = name.map_err(|_| Error::other(format!("the name `{}` is not UTF-8", String::from_utf8_lossy(bytes))))?;
    Ok((!name.is_empty()).then(|| Name::new(name)))
}

/// Gives a module without a data layout that of the target. Refuses another one.
fn set_layout(module: Opaque, layout: &CStr) -> Result<(), Error> {
    let llvm = llvm()?;
    let (get, set) = (llvm.LLVMGetDataLayoutStr()?, llvm.LLVMSetDataLayout()?);
    // SAFETY: O4 - the module is open; the string is its own.
    let own = unsafe { CStr::from_ptr(get(module)) };
    if own.is_empty() {
        // SAFETY: O4 - as above.
        unsafe { set(module, layout.as_ptr()) };
    } else if own != layout {
        let (own, layout) = (own.to_string_lossy(), layout.to_string_lossy());
        return Err(Error::other(format!("the module has the data layout `{own}`, and the target has `{layout}`")));
    }
    Ok(())
}

fn identifier(module: Opaque) -> Result<String, Error> {
    let mut length = 0;
    let identifier = llvm()?.LLVMGetModuleIdentifier()?;
    // SAFETY: O4 - the module is open; the string is its own.
    let bytes = unsafe {
        let start = identifier(module, &mut length);
        std::slice::from_raw_parts(start, length)
    };
    Ok(String::from_utf8_lossy(bytes).into_owned())
}

/// A module that is compiled when one of its symbols is looked up.
struct IrUnit {
    name: String,
    symbols: Vec<(Name, SymbolFlags)>,
    /// Of common symbols; zero for others.
    sizes: Vec<u64>,
    module: ThreadSafeModule,
    layer: Arc<IrLayer>,
}

impl MaterializationUnit for IrUnit {
    fn name(&self) -> &str {
        &self.name
    }

    fn symbols(&self) -> &[(Name, SymbolFlags)] {
        &self.symbols
    }

    fn size_bytes(&self, index: usize) -> u64 {
        self.sizes[index]
    }

    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        let IrUnit { module, layer, .. } = *self;
        let Some(session) = layer.session.upgrade() else { return };
        layer.emit(Responsibility::new(session, responsibility, None), module);
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcIRTransformLayerEmit(
    layer: *const IrLayer,
    responsibility: *mut Responsibility,
    module: Opaque,
) {
    // SAFETY: O1 - the program promises it.
    let layer = unsafe { &*layer };
    run_or_report(layer.session.upgrade().as_deref(), (), || {
        // SAFETY: O2 - the program gives both away.
        let (responsibility, module) = unsafe { (*Box::from_raw(responsibility), ThreadSafeModule::from_raw(module)?) };
        layer.emit(responsibility, module);
        Ok(())
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcIRTransformLayerSetTransform(
    layer: *const IrLayer,
    transform: Option<unsafe extern "C-unwind" fn(*mut std::ffi::c_void, *mut Opaque, *mut Responsibility) -> Opaque>,
    context: *mut std::ffi::c_void,
) {
    // SAFETY: O1 - the program promises it.
    unsafe { &*layer }.transform.set(transform, context);
}
