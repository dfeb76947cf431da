//! [`TargetMachineBuilder`] (`LLVMOrcJITTargetMachineBuilderRef`), and [`TargetMachine`], which LLVM makes of it.

use std::ffi::{CStr, CString, c_char};
use std::ptr;

use jittison::Error;

use crate::entry::{dispose, give, run, run_or_report};
use crate::llvm::{Opaque, llvm};
use crate::llvm_error::take_message;

/// What machine code is made for.
pub(crate) struct TargetMachineBuilder {
    /// The program's target machine. Null: the host.
    given: TargetMachine,
    triple: CString,
    /// Whether the program changed the triple, so that the given machine does not fit any more.
    is_changed: bool,
}

/// A target machine of LLVM, which is disposed of with it. May be null.
pub(crate) struct TargetMachine(pub(crate) Opaque);

// SAFETY: O4 - LLVM lets any thread use a target machine, one at a time: `Compiler` has it behind a lock.
unsafe impl Send for TargetMachine {}

impl Drop for TargetMachine {
    fn drop(&mut self) {
        if let Ok(dispose) = llvm().and_then(|llvm| llvm.LLVMDisposeTargetMachine())
            && !self.0.is_null()
        {
            // SAFETY: O2, O4 - it is owned, and disposed of once.
            unsafe { dispose(self.0) };
        }
    }
}

// `LLVMCodeGenOptLevel`, `LLVMRelocMode`, `LLVMCodeModel`.
const DEFAULT_OPTIMIZATION: i32 = 2;
const POSITION_INDEPENDENT: i32 = 2;
const SMALL: i32 = 3;

impl TargetMachineBuilder {
    pub(crate) fn of_host() -> Result<TargetMachineBuilder, Error> {
        let default_triple = llvm()?.LLVMGetDefaultTargetTriple()?;
        // SAFETY: O4, O2 - the message is owned.
        let triple = unsafe { take_message(default_triple()) };
        find_target(&triple)?;
        Ok(TargetMachineBuilder { given: TargetMachine(ptr::null_mut()), triple, is_changed: false })
    }

    /// The triple of the machine.
    pub(crate) fn triple(&self) -> &CStr {
        &self.triple
    }

    /// The target machine. LLVM makes it, unless the program gave it.
    pub(crate) fn build(mut self) -> Result<TargetMachine, Error> {
        if !self.given.0.is_null() && !self.is_changed {
            return Ok(std::mem::replace(&mut self.given, TargetMachine(ptr::null_mut())));
        }
        let llvm = llvm()?;
        let (processor, features) = if self.given.0.is_null() {
            let (processor, features) = (llvm.LLVMGetHostCPUName()?, llvm.LLVMGetHostCPUFeatures()?);
            // SAFETY: O4, O2 - the messages are owned.
            unsafe { (take_message(processor()), take_message(features())) }
        } else {
            let (processor, features) = (llvm.LLVMGetTargetMachineCPU()?, llvm.LLVMGetTargetMachineFeatureString()?);
            // SAFETY: O4, O2 - the messages are owned.
            unsafe { (take_message(processor(self.given.0)), take_message(features(self.given.0))) }
        };
        let (target, create) = (find_target(&self.triple)?, llvm.LLVMCreateTargetMachine()?);
        let (triple, processor, features) = (self.triple.as_ptr(), processor.as_ptr(), features.as_ptr());
        // SAFETY: O4 - the strings stay during the call.
        let made =
            unsafe { create(target, triple, processor, features, DEFAULT_OPTIMIZATION, POSITION_INDEPENDENT, SMALL) };
        if made.is_null() {
            return Err(Error::other(format!("LLVM makes no target machine for {:?}", self.triple)));
        }
        Ok(TargetMachine(made))
    }
}

/// The target of a triple. The program must have initialised it.
fn find_target(triple: &CStr) -> Result<Opaque, Error> {
    let find = llvm()?.LLVMGetTargetFromTriple()?;
    let (mut target, mut message) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: O4 - all three are valid for the call.
    if unsafe { find(triple.as_ptr(), &mut target, &mut message) } == 0 {
        return Ok(target);
    }
    // SAFETY: O2 - the message is owned.
    Err(Error::other(unsafe { take_message(message) }.to_string_lossy()))
}

impl TargetMachine {
    /// The description of the data layout.
    pub(crate) fn data_layout(&self) -> Result<CString, Error> {
        let llvm = llvm()?;
        let (create, copy) = (llvm.LLVMCreateTargetDataLayout()?, llvm.LLVMCopyStringRepOfTargetData()?);
        let dispose = llvm.LLVMDisposeTargetData()?;
        // SAFETY: O4, O2 - the layout and the message are owned, and disposed of once.
        unsafe {
            let layout = create(self.0);
            let text = take_message(copy(layout));
            dispose(layout);
            Ok(text)
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcJITTargetMachineBuilderDetectHost(result: *mut *mut TargetMachineBuilder) -> Opaque {
    run(|| {
        let made = give(TargetMachineBuilder::of_host()?);
        // SAFETY: O1 - the program promises it.
        unsafe { *result = made };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcJITTargetMachineBuilderCreateFromTargetMachine(
    machine: Opaque,
) -> *mut TargetMachineBuilder {
    run_or_report(None, ptr::null_mut(), || {
        let given = TargetMachine(machine);
        let triple_of = llvm()?.LLVMGetTargetMachineTriple()?;
        // SAFETY: O1, O4, O2 - the program gave the machine; the message is owned.
        let triple = unsafe { take_message(triple_of(machine)) };
        Ok(give(TargetMachineBuilder { given, triple, is_changed: false }))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcDisposeJITTargetMachineBuilder(builder: *mut TargetMachineBuilder) {
    // SAFETY: O2 - the program gives it away.
    unsafe { dispose(builder) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcJITTargetMachineBuilderGetTargetTriple(
    builder: *const TargetMachineBuilder,
) -> *mut c_char {
    run_or_report(None, ptr::null_mut(), || {
        let create = llvm()?.LLVMCreateMessage()?;
        // SAFETY: O1, O4 - the program promises the builder; the function copies the string.
        Ok(unsafe { create((*builder).triple.as_ptr()) })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcJITTargetMachineBuilderSetTargetTriple(
    builder: *mut TargetMachineBuilder,
    triple: *const c_char,
) {
    // SAFETY: O1 - the program promises both, and no other thread uses the builder.
    let (builder, triple) = unsafe { (&mut *builder, CStr::from_ptr(triple)) };
    builder.is_changed |= *builder.triple != *triple;
    builder.triple = triple.to_owned();
}
