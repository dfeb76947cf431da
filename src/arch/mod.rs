//! Everything that depends on the instruction set: relocation types, machine code, relaxation, reach.
//!
//! The link calls the methods of [`Arch`] for all of this. [`Arch::of_machine`] chooses the value by an object's
//! `e_machine`, and the graph keeps it. What runs in this process uses [`Arch::NATIVE`], and what runs for a session the `Arch` of its
//! executor. Each method of `Arch` is one `match`, so the compiler lists what a further architecture must supply.
//!
//! | part | file |
//! |---|---|
//! | kinds of edges, their formulas and fields | `edge_kind.rs` |
//! | formulas of kinds whose fields are bits of instructions, and these fields | `formula.rs`, `aarch64/relocation.rs`, `aarch64/field.rs` |
//! | relocation types as edge kinds | `relocation_type.rs`, `*/relocations.rs` |
//! | relaxation: cheaper instructions that do the same | `*/relax.rs` |
//! | stubs, entries of lazy and indirect functions, TLS descriptors, handlers with a handle, counters of calls | `code_template.rs`, `*/code.rs` |
//! | fragments of `crti.o` and `crtn.o`, and a frame for others | `crt_fragment.rs`, `*/crt_fragment.rs` |
//! | far references in code | `far_code.rs`, `x86_64/range_extension/`, `aarch64/*_thunk.rs` |
//! | formulas of the link verifier, which share nothing with the above | `verify/`, `*/verify/` |
//! | hooks at the entries of compiled functions | `entry_hook.rs`, `x86_64/entry_hook.rs` |
//! | functions in assembly, prefetch instructions | `*/asm.rs`, `*/prefetch.rs` |
//! | support functions of compilers that no shared library has | `aarch64/support_functions.rs` |
//! | registers in the context of a signal | `signal_context.rs` |
//! | instruction caches | `aarch64/instruction_cache.rs`; x86-64 needs nothing |
//!
//! `tests/architecture/` checks that no other file of the library has code or numbers of an instruction set.
//!
//! # Invariants
//! - **A1** A prefetch instruction changes nothing that a program can see. It never faults, whatever its address is.
//! - **A2** Cache maintenance and barriers change no byte of memory. Maintenance by address does not fault if the address is
//!   mapped and readable.

mod aarch64;
mod code_template;
mod crt_fragment;
mod edge_kind;
#[cfg(feature = "reload")]
mod entry_hook;
mod far_code;
mod formula;
mod relocation_type;
#[cfg(feature = "executor")]
mod signal_context;
pub(crate) mod verify;
mod x86_64;

use std::ops::Range;

use crate::base::ExecutorAddr;

pub use aarch64::relocation::Aarch64Relocation;
pub(crate) use code_template::{
    CodeTemplate, CounterTarget, HandlerTarget, IndirectCode, IndirectTarget, TemplateField, VeneerCode,
};
pub(crate) use crt_fragment::{CrtFragment, CrtFrame};
pub use edge_kind::EdgeKind;
pub(crate) use edge_kind::{KindSet, ThreadLocalEntry, uses};
#[cfg(feature = "reload")]
pub(crate) use entry_hook::{ENTRY_BYTES, EntryHook};
pub(crate) use far_code::{FarCode, FarCodeFault, FarReference, FarValue, ThreadDistance};
pub(crate) use formula::{Base, Formula, Frame, page_of};
pub(crate) use relocation_type::{RelocationType, RelocationTypes};
#[cfg(feature = "executor")]
pub(crate) use signal_context::SignalContext;
use verify::{Mismatch, Relocation, SectionView};

/// An instruction set and its ABI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arch {
    /// x86-64, System V psABI 1.0.
    X86_64,
    /// AArch64, ELF for the Arm 64-bit Architecture.
    Aarch64,
}

impl Default for Arch {
    fn default() -> Arch {
        Arch::NATIVE
    }
}

impl Arch {
    /// What this process runs.
    #[cfg(target_arch = "x86_64")]
    pub(crate) const NATIVE: Arch = Arch::X86_64;

    /// What this process runs.
    #[cfg(target_arch = "aarch64")]
    pub(crate) const NATIVE: Arch = Arch::Aarch64;

    /// The architecture whose edges the quick loop of fix-up applies. Its fields are whole bytes.
    pub(crate) const QUICK: Arch = Arch::X86_64;

    /// The architecture of objects with this `e_machine`, if it is supported.
    pub(crate) fn of_machine(e_machine: u16) -> Option<Arch> {
        [Arch::X86_64, Arch::Aarch64].into_iter().find(|arch| arch.e_machine() == e_machine)
    }

    /// `e_machine` of the ELF header.
    pub(crate) const fn e_machine(self) -> u16 {
        match self {
            Arch::X86_64 => 62,
            Arch::Aarch64 => 183,
        }
    }

    /// The name, for errors.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Arch::X86_64 => "x86-64 (62)",
            Arch::Aarch64 => "AArch64 (183)",
        }
    }

    // ---- relocations ----

    /// All relocation types, by number.
    #[inline(always)]
    pub(crate) fn relocation_types(self) -> RelocationTypes {
        match self {
            Arch::X86_64 => RelocationTypes::UpTo64(&x86_64::relocations::TYPES),
            Arch::Aarch64 => RelocationTypes::UpTo1024(&aarch64::relocations::TYPES),
        }
    }

    /// The kind of a relocation type; `None` for one that makes no edge: a marker ([`is_marker`](Self::is_marker)), or a
    /// type that is not supported.
    pub(crate) fn kind_of(self, r_type: u32) -> Option<EdgeKind> {
        match self {
            Arch::X86_64 => x86_64::relocations::kind_of(r_type),
            Arch::Aarch64 => aarch64::relocations::kind_of(r_type),
        }
    }

    /// Whether edges of a kind occur in code of this architecture.
    pub(crate) fn has_kind(self, kind: EdgeKind) -> bool {
        match self {
            Arch::X86_64 => !matches!(kind, EdgeKind::Aarch64(_)),
            Arch::Aarch64 => aarch64::relocations::has_kind(kind),
        }
    }

    /// The name of a kind's relocation.
    pub(crate) fn relocation_name(self, kind: EdgeKind) -> &'static str {
        match self {
            Arch::X86_64 => x86_64::relocations::kind_name(kind),
            Arch::Aarch64 => aarch64::relocations::kind_name(kind),
        }
    }

    /// The name of a relocation type that is not supported, for errors.
    pub(crate) fn unsupported_name(self, r_type: u32) -> String {
        let names = match self {
            Arch::X86_64 => x86_64::relocations::OF_LINKED_FILES,
            Arch::Aarch64 => aarch64::relocations::OF_LINKED_FILES,
        };
        match names.iter().find(|(number, _)| *number == r_type) {
            Some((_, name)) => format!("relocation {name}"),
            None => format!("relocation type {r_type}"),
        }
    }

    /// Whether a relocation is only a marker, which makes no edge and changes no byte.
    pub(crate) fn is_marker(self, r_type: u32) -> bool {
        match self {
            Arch::X86_64 => x86_64::relocations::is_marker(r_type),
            Arch::Aarch64 => aarch64::relocations::is_marker(r_type),
        }
    }

    /// Bytes of an absolute field of debug information; `None` for another relocation.
    pub(crate) fn absolute_width(self, r_type: u32) -> Option<usize> {
        match self {
            Arch::X86_64 => x86_64::relocations::absolute_width(r_type),
            Arch::Aarch64 => aarch64::relocations::absolute_width(r_type),
        }
    }

    /// The relocation type for a field of eight bytes that holds an address.
    pub(crate) fn absolute_relocation(self) -> u32 {
        match self {
            Arch::X86_64 => x86_64::relocations::ABSOLUTE,
            Arch::Aarch64 => aarch64::relocations::ABSOLUTE,
        }
    }

    /// The relocation type that changes nothing.
    pub(crate) fn no_relocation(self) -> u32 {
        match self {
            Arch::X86_64 => x86_64::relocations::NONE,
            Arch::Aarch64 => aarch64::relocations::NONE,
        }
    }

    /// The relocation types by which the loader fills in the place of a thread-local variable: module, offset in the
    /// module's block, distance from the thread pointer.
    pub(crate) fn thread_local_relocations(self) -> [u32; 3] {
        match self {
            Arch::X86_64 => x86_64::relocations::THREAD_LOCAL,
            Arch::Aarch64 => aarch64::relocations::THREAD_LOCAL,
        }
    }

    /// The distance from the thread pointer of a block in static thread-local storage, next to `used` bytes of blocks, and counts
    /// its bytes in (Drepper, "ELF Handling For Thread-Local Storage", variants I and II).
    pub(crate) fn place_thread_locals(self, used: &mut u64, size: u64, align: u64) -> i64 {
        match self {
            Arch::X86_64 => {
                *used = used.saturating_add(size).next_multiple_of(align.max(1));
                (*used as i64).saturating_neg()
            }
            Arch::Aarch64 => {
                let start = (*used).max(aarch64::THREAD_CONTROL_BLOCK).next_multiple_of(align.max(1));
                *used = start.saturating_add(size);
                start as i64
            }
        }
    }

    /// Whether a symbol of this name, without a type, only says where code and data begin.
    pub(crate) fn is_mapping_symbol(self, name: &str) -> bool {
        match self {
            Arch::X86_64 => false,
            Arch::Aarch64 => aarch64::is_mapping_symbol(name),
        }
    }

    /// Whether sections of a processor-specific type hold unwind tables (`.eh_frame`).
    pub(crate) fn is_unwind_section(self, sh_type: u32) -> bool {
        match self {
            Arch::X86_64 => sh_type == x86_64::SHT_X86_64_UNWIND,
            Arch::Aarch64 => false,
        }
    }

    // ---- fix-up ----

    /// Whether [`relax_got_load`](Self::relax_got_load) may rewrite the instruction of an edge.
    #[inline(always)]
    pub(crate) fn is_relaxable(self, kind: EdgeKind) -> bool {
        match self {
            Arch::X86_64 => x86_64::relax::is_relaxable(kind),
            Arch::Aarch64 => false,
        }
    }

    /// Rewrites the instruction of a GOT load to reach the symbol without its slot, if the displacement fits. Returns
    /// false, and changes nothing, otherwise.
    #[inline(always)]
    pub(crate) fn relax_got_load(
        self,
        kind: EdgeKind,
        before: Option<u8>,
        code: &mut [u8; 6],
        displacement: i64,
    ) -> bool {
        match self {
            Arch::X86_64 => x86_64::relax::relax_got_load(kind, before, code, displacement),
            Arch::Aarch64 => false,
        }
    }

    /// The sequence that an edge of a kind is part of, and the position of its instruction there. `None` for any other edge.
    pub(crate) fn part_of_sequence(self, kind: EdgeKind) -> Option<(Sequence, usize)> {
        match (self, kind) {
            (Arch::Aarch64, EdgeKind::Aarch64(relocation)) => aarch64::relax::part_of_sequence(relocation),
            _ => None,
        }
    }

    /// The instructions that stand for those of a [`Sequence`]. `place` is the address of the first, and `value` the address or the
    /// distance that the sequence makes. `None` if the sequence stays as it is.
    pub(crate) fn relax_sequence(
        self,
        sequence: Sequence,
        code: [u32; Sequence::MOST_INSTRUCTIONS],
        place: u64,
        value: u64,
    ) -> Option<[u32; Sequence::MOST_INSTRUCTIONS]> {
        match self {
            Arch::X86_64 => None,
            Arch::Aarch64 => aarch64::relax::relax_sequence(sequence, code, place, value),
        }
    }

    /// Whether a field of four bytes after the bytes `before` is the distance of a direct call or jump.
    pub(crate) fn is_branch_operand(self, before: &[u8]) -> bool {
        match self {
            Arch::X86_64 => x86_64::code::is_branch_operand(before),
            // Branches have relocations of their own.
            Arch::Aarch64 => false,
        }
    }

    /// Whether the addend of a branch is the distance of its target from the symbol. On x86-64 it also holds that of the field from the
    /// next instruction, and fields of data with the same relocation have any addend.
    pub(crate) fn addend_is_distance(self, kind: EdgeKind) -> bool {
        match self {
            Arch::X86_64 => false,
            Arch::Aarch64 => matches!(kind, EdgeKind::Aarch64(_)),
        }
    }

    /// Whether an instruction with an edge of a kind makes the address of the edge's symbol. `before` are the bytes before the field.
    #[cfg(feature = "reload")]
    pub(crate) fn makes_address(self, kind: EdgeKind, before: &[u8]) -> bool {
        match self {
            Arch::X86_64 => kind == EdgeKind::Delta32 && !x86_64::code::is_branch_operand(before),
            Arch::Aarch64 => aarch64::relocations::makes_address(kind),
        }
    }

    /// Bytes that a thunk may take for each far operand.
    pub(crate) fn max_thunk_size(self) -> usize {
        match self {
            Arch::X86_64 => x86_64::MAX_THUNK_SIZE,
            Arch::Aarch64 => aarch64::address_thunk::MAX_ADDRESS_THUNK_SIZE,
        }
    }

    /// The most bytes of a thunk that computes a distance of a thread-local variable.
    pub(crate) fn max_distance_thunk_size(self) -> usize {
        match self {
            Arch::X86_64 => x86_64::MAX_DISTANCE_THUNK_SIZE,
            Arch::Aarch64 => aarch64::distance_thunk::MAX_DISTANCE_THUNK_SIZE,
        }
    }

    /// Rewrites code whose references do not reach. Changes `bytes`, which is the section in memory with all its other
    /// edges applied, and appends to `thunks`.
    ///
    /// # Errors
    /// The first reference that cannot be extended exactly.
    pub(crate) fn extend_code(
        self,
        code: &FarCode<'_>,
        bytes: &mut [u8],
        thunks: &mut Vec<u8>,
    ) -> Result<(), FarCodeFault> {
        match self {
            Arch::X86_64 => x86_64::extend_code(code, bytes, thunks),
            Arch::Aarch64 => aarch64::far_code::extend_code(code, bytes, thunks),
        }
    }

    // ---- machine code ----

    /// The byte that fills gaps in code. A thread that runs into it traps.
    #[inline(always)]
    pub(crate) const fn trap(self) -> u8 {
        match self {
            Arch::X86_64 => x86_64::code::TRAP,
            Arch::Aarch64 => aarch64::code::TRAP,
        }
    }

    /// A stub that begins with a mark: a jump to the address in a slot. Its address may serve as a function pointer.
    /// `place` is the address of the stub, and `distance` that of the slot minus `place`.
    #[inline(always)]
    pub(crate) fn stub(self, place: ExecutorAddr, distance: i32) -> [u8; STUB_SIZE] {
        match self {
            Arch::X86_64 => x86_64::code::stub(distance),
            Arch::Aarch64 => aarch64::code::stub(place.value(), distance),
        }
    }

    /// A stub as [`stub`](Self::stub), whose slot may change at any time. Its load acquires: code at the target sees what was written
    /// before the slot was stored. `code` has [`redirectable_stub_size`](Self::redirectable_stub_size) bytes.
    pub(crate) fn write_redirectable_stub(self, code: &mut [u8], place: ExecutorAddr, distance: i32) {
        match self {
            // Each load of x86-64 acquires.
            Arch::X86_64 => code.copy_from_slice(&x86_64::code::stub(distance)),
            Arch::Aarch64 => code.copy_from_slice(&aarch64::code::redirectable_stub(place.value(), distance)),
        }
    }

    /// Bytes of a redirectable stub, a multiple of eight.
    #[inline(always)]
    pub(crate) const fn redirectable_stub_size(self) -> u64 {
        match self {
            Arch::X86_64 => STUB_SIZE as u64,
            Arch::Aarch64 => aarch64::code::REDIRECTABLE_STUB_SIZE as u64,
        }
    }

    /// How the entry of a compiled function is hooked. `before` are the bytes [before it](Self::room_before_entry), and `bytes` the
    /// [`ENTRY_BYTES`] at it. `None` if there is no room.
    #[cfg(feature = "reload")]
    pub(crate) fn entry_hook(self, entry: ExecutorAddr, before: &[u8], bytes: &[u8]) -> Option<EntryHook> {
        match self {
            Arch::X86_64 => EntryHook::of_x86_64(entry, before, bytes),
            Arch::Aarch64 => None,
        }
    }

    /// Bytes before an entry that a hook needs. `None` if entries cannot be hooked.
    #[cfg(feature = "reload")]
    pub(crate) fn room_before_entry(self) -> Option<u64> {
        match self {
            Arch::X86_64 => Some(x86_64::entry_hook::ROOM_BEFORE_ENTRY),
            Arch::Aarch64 => None,
        }
    }

    /// A stub without a mark: only direct branches may reach it where marks are enforced. `distance` is as for
    /// [`stub`](Self::stub). Only for an architecture whose stubs have [`PLAIN_STUB_SIZE`] bytes without a mark.
    #[inline(always)]
    pub(crate) fn plain_stub(self, distance: i32) -> [u8; PLAIN_STUB_SIZE] {
        match self {
            Arch::X86_64 => x86_64::code::plain_stub(distance),
            Arch::Aarch64 => [aarch64::code::TRAP; PLAIN_STUB_SIZE],
        }
    }

    /// Bytes of each stub of an object. `is_marked` says whether the object marks its entries.
    #[inline(always)]
    pub(crate) fn stub_size(self, is_marked: bool) -> usize {
        match self {
            Arch::X86_64 if !is_marked => PLAIN_STUB_SIZE,
            Arch::X86_64 | Arch::Aarch64 => STUB_SIZE,
        }
    }

    /// Whether a property of an object, with its type and value, says that the object marks every entry that indirect
    /// branches may reach.
    pub(crate) fn is_mark_property(self, pr_type: u32, value: u32) -> bool {
        match self {
            Arch::X86_64 => (pr_type, value & 1) == (x86_64::FEATURE_1_AND, x86_64::FEATURE_1_IBT),
            Arch::Aarch64 => (pr_type, value & 1) == (aarch64::FEATURE_1_AND, aarch64::FEATURE_1_BTI),
        }
    }

    /// The distance from a stub or a lazy entry at `place` to its slot. `None` if an instruction cannot hold it.
    ///
    /// A memory manager of the embedder may place code and slots far apart. A truncated distance would make the stub jump
    /// to an arbitrary address.
    #[inline(always)]
    pub(crate) fn slot_distance(self, place: ExecutorAddr, slot: ExecutorAddr) -> Option<i32> {
        i32::try_from(slot.distance_from(place)).ok().filter(|distance| *distance >= MIN_SLOT_DISTANCE)
    }

    /// Bytes of the entry of a lazy function.
    pub(crate) fn lazy_entry_size(self) -> usize {
        match self {
            Arch::X86_64 => x86_64::code::LAZY_ENTRY_SIZE,
            Arch::Aarch64 => aarch64::code::LAZY_ENTRY_SIZE,
        }
    }

    /// Writes the entry of a lazy function or of a callback, which passes `number` on and jumps to the address in a slot. `distance` is
    /// the address of the slot minus that of the entry.
    pub(crate) fn write_lazy_entry(self, number: u64, distance: i32, entry: &mut [u8]) {
        match self {
            Arch::X86_64 => entry.copy_from_slice(&x86_64::code::lazy_entry(number, distance)),
            Arch::Aarch64 => entry.copy_from_slice(&aarch64::code::lazy_entry(number, distance)),
        }
    }

    /// How many integer registers have arguments.
    #[cfg(feature = "executor")]
    pub(crate) const fn argument_registers(self) -> usize {
        match self {
            Arch::X86_64 => 6,
            Arch::Aarch64 => 8,
        }
    }

    /// The code of indirect functions.
    pub(crate) fn indirect_code(self) -> &'static IndirectCode {
        match self {
            Arch::X86_64 => &x86_64::code::INDIRECT,
            Arch::Aarch64 => &aarch64::code::INDIRECT,
        }
    }

    /// The code of veneers; `None` if branches reach all code that one object may have.
    #[inline]
    pub(crate) fn veneers(self) -> Option<&'static VeneerCode> {
        match self {
            Arch::X86_64 => None,
            Arch::Aarch64 => Some(&aarch64::code::VENEERS),
        }
    }

    /// The function that TLS descriptors point to. Its field is a call of `__tls_get_addr`.
    pub(crate) fn tls_descriptor(self) -> &'static CodeTemplate<()> {
        match self {
            Arch::X86_64 => x86_64::code::tls_descriptor(),
            Arch::Aarch64 => &aarch64::code::TLS_DESCRIPTOR,
        }
    }

    /// `atexit(f)` as a call of `__cxa_atexit(f, 0, handle)`.
    pub(crate) fn atexit(self) -> &'static CodeTemplate<HandlerTarget> {
        match self {
            Arch::X86_64 => &x86_64::code::ATEXIT,
            Arch::Aarch64 => &aarch64::code::ATEXIT,
        }
    }

    /// Calls a function with the handle as its second (0), third (1) or fourth (2) argument.
    pub(crate) fn with_handle(self) -> &'static [CodeTemplate<HandlerTarget>; 3] {
        match self {
            Arch::X86_64 => &x86_64::code::WITH_HANDLE,
            Arch::Aarch64 => &aarch64::code::WITH_HANDLE,
        }
    }

    /// Counts a call, and goes to the function or, when the count is used up, to an entry.
    pub(crate) fn counter_stub(self) -> &'static CodeTemplate<CounterTarget> {
        match self {
            Arch::X86_64 => &x86_64::code::COUNTER_STUB,
            Arch::Aarch64 => &aarch64::code::COUNTER_STUB,
        }
    }

    /// Which fragment of the C library `code` is; `None` for any other code.
    pub(crate) fn crt_fragment(self, code: &[u8]) -> Option<CrtFragment> {
        match self {
            Arch::X86_64 => x86_64::crt_fragment::crt_fragment(code),
            Arch::Aarch64 => aarch64::crt_fragment::crt_fragment(code),
        }
    }

    /// Whether `code` removes a frame and returns at its end.
    pub(crate) fn ends_with_return(self, code: &[u8]) -> bool {
        match self {
            Arch::X86_64 => x86_64::crt_fragment::ends_with_return(code),
            Arch::Aarch64 => aarch64::crt_fragment::ends_with_return(code),
        }
    }

    /// What makes a function of fragments.
    pub(crate) fn crt_frame(self) -> &'static CrtFrame {
        match self {
            Arch::X86_64 => &x86_64::crt_fragment::CRT_FRAME,
            Arch::Aarch64 => &aarch64::crt_fragment::CRT_FRAME,
        }
    }

    /// The body of a CIE for code that has made no frame yet, with FDE pointers `pcrel sdata4` and without its length
    /// and its id: the part of the record after eight bytes.
    pub(crate) fn frameless_cie(self) -> [u8; 16] {
        match self {
            Arch::X86_64 => x86_64::FRAMELESS_CIE,
            Arch::Aarch64 => aarch64::FRAMELESS_CIE,
        }
    }

    // ---- link verifier ----

    /// Whether a relocation of a type changes bytes.
    pub(crate) fn changes_bytes(self, r_type: u32) -> bool {
        match self {
            Arch::X86_64 => x86_64::verify::changes_bytes(r_type),
            Arch::Aarch64 => aarch64::verify::changes_bytes(r_type),
        }
    }

    /// The number of the relocation type with the formula of an edge kind.
    pub(crate) fn verified_number(self, kind: EdgeKind) -> u32 {
        match self {
            Arch::X86_64 => x86_64::verify::number_of(kind),
            Arch::Aarch64 => aarch64::verify::number_of(kind),
        }
    }

    /// A relocation, with the width and the name of its type.
    pub(crate) fn verified_relocation(self, offset: u64, r_type: u32, symbol: u32, addend: i64) -> Relocation {
        match self {
            Arch::X86_64 => x86_64::verify::relocation(offset, r_type, symbol, addend),
            Arch::Aarch64 => aarch64::verify::relocation(offset, r_type, symbol, addend),
        }
    }

    /// Checks the field of a relocation whose symbol has an address. Returns the range of bytes that the relocation
    /// explains.
    pub(crate) fn check_field(
        self,
        section: &dyn SectionView,
        relocation: &Relocation,
    ) -> Result<Range<usize>, Mismatch> {
        match self {
            Arch::X86_64 => x86_64::verify::check_field(section, relocation),
            Arch::Aarch64 => aarch64::verify::check_field(section, relocation),
        }
    }

    /// Whether a section of notes, whose notes are aligned to `align`, says that the object marks its entries.
    pub(crate) fn notes_say_marked(self, notes: &[u8], align: u64) -> bool {
        match self {
            Arch::X86_64 => x86_64::verify::notes_say_marked(notes, align),
            Arch::Aarch64 => aarch64::verify::notes_say_marked(notes, align),
        }
    }

    /// The field `old` of a call whose target is at a distance from the field; `None` if that is out of reach.
    pub(crate) fn verified_call(self, old: u32, distance: i64) -> Option<u32> {
        match self {
            Arch::X86_64 => x86_64::verify::call(distance),
            Arch::Aarch64 => aarch64::verify::call(old, distance),
        }
    }

    /// Whether `stub` is the address of a stub whose slot holds `target`, in the form that suits the object.
    pub(crate) fn is_stub_for(self, section: &dyn SectionView, stub: u64, target: u64) -> bool {
        match self {
            Arch::X86_64 => x86_64::verify::is_stub_for(section, stub, target),
            Arch::Aarch64 => aarch64::verify::is_stub_for(section, stub, target),
        }
    }

    /// Whether a relocation is the kind of address that an exception table may have for a type.
    pub(crate) fn is_type_address(self, relocation: &Relocation) -> bool {
        match self {
            Arch::X86_64 => x86_64::verify::is_type_address(relocation),
            Arch::Aarch64 => aarch64::verify::is_type_address(relocation),
        }
    }
}

/// Instructions that follow one another, and that may be rewritten together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Sequence {
    /// Loads a GOT slot: two instructions.
    GotLoad,
    /// Makes an address: two instructions.
    Address,
    /// Loads the distance of a thread-local variable from its slot: two instructions.
    StaticLoad,
    /// Calls the function of a TLS descriptor: four instructions, of which the call has no edge.
    Descriptor,
}

impl Sequence {
    /// The most instructions of a sequence.
    pub(crate) const MOST_INSTRUCTIONS: usize = 4;

    /// How many instructions have edges.
    pub(crate) fn edges(self) -> usize {
        if self == Sequence::Descriptor { 3 } else { 2 }
    }

    pub(crate) fn instructions(self) -> usize {
        if self == Sequence::Descriptor { 4 } else { 2 }
    }
}

// ---- this process ----

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("jittison runs linked code on x86-64 and AArch64 only");

/// Bytes of the smallest page of a kernel of any architecture. That of x86-64 has no other ones (`PAGES_VARY`).
pub(crate) const MIN_PAGE_SIZE: u64 = 4 << 10;
/// Bytes of the largest page of a kernel of any architecture. What lies at a multiple of it is at the start of a page everywhere.
pub(crate) const MAX_PAGE_SIZE: u64 = 64 << 10;
/// Bytes of a stub that begins with a mark.
pub(crate) const STUB_SIZE: usize = 16;
/// Bytes of a stub without a mark.
pub(crate) const PLAIN_STUB_SIZE: usize = 8;
/// A displacement counts from the end of its instruction, which is less than 64 bytes after the start of a stub or an entry.
const MIN_SLOT_DISTANCE: i32 = i32::MIN + 64;
/// Bytes that a reference of four bytes reaches in each direction, and the end of the addresses that a signed one can
/// hold. Code and what it refers to directly must be within this span.
pub(crate) const REACH: u64 = 1 << 31;

#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64::native::*;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::native::*;
