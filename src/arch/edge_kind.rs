//! [`EdgeKind`]: how the value of an edge is computed and stored.
//!
//! Each kind is documented by its formula, the width of its field, when it fails, and the name of its relocation on x86-64. The
//! formulas are those of the x86-64 psABI 1.0, section 4.4.1 ("Relocation Types"), table 4.9. Drepper, "ELF Handling For
//! Thread-Local Storage", explains the thread-local kinds. Kinds whose fields are bits of an instruction belong to one
//! architecture, and its folder has their table. The link treats each of them as its [general kind](EdgeKind::general) until it
//! has addresses.
//!
//! | symbol | meaning |
//! |---|---|
//! | `S` | address of the symbol |
//! | `A` | addend |
//! | `P` | address of the field |
//! | `L` | address of the symbol's stub, or `S` where the field reaches it |
//! | `G` | address of the symbol's GOT slot (the psABI's `G + GOT`) |
//! | `GOT` | address of the GOT |
//! | `Z` | size of the symbol |
//! | `D`, `B`, `I`, `T` | addresses of GOT entries of a thread-local variable: descriptor, pair of the object's own block, static offset, pair of the variable ([`ThreadLocalEntry`]) |
//!
//! A value that does not fit its field is an error. It is never truncated. `link/fixup.rs` computes the values; the
//! verifier's formulas compute them again, without this file's tables.

use crate::arch::aarch64::relocation::Aarch64Relocation;
use crate::arch::formula::{Base, Formula, Frame};

/// How an edge's value is computed and stored.
///
/// The symbols in the formulas are those of the psABI 1.0, section 4.4.1: `S` is the symbol's address, `A` the addend,
/// `P` the field's address, `L` the address of the symbol's stub, `G` the address of its GOT slot, `GOT` the address of
/// the GOT, `Z` the symbol's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum EdgeKind {
    /// `S + A` in 8 bytes. Never fails. `R_X86_64_64` (psABI 4.4.1).
    Pointer64,
    /// `S + A` in 4 bytes. Fails unless the value fits zero-extended: 0 ≤ value < 2³². `R_X86_64_32` (psABI 4.4.1).
    Pointer32,
    /// `S + A` in 4 bytes. Fails unless the value fits sign-extended: −2³¹ ≤ value < 2³¹. `R_X86_64_32S` (psABI 4.4.1).
    Pointer32Signed,
    /// `S + A` in 2 bytes. Fails unless the value fits, signed or unsigned: −2¹⁵ ≤ value < 2¹⁶. `R_X86_64_16` (psABI
    /// 4.4.1).
    Pointer16,
    /// `S + A` in 1 byte. Fails unless the value fits, signed or unsigned: −2⁷ ≤ value < 2⁸. `R_X86_64_8` (psABI
    /// 4.4.1).
    Pointer8,
    /// `S + A - P` in 8 bytes. Never fails. `R_X86_64_PC64` (psABI 4.4.1).
    Delta64,
    /// `S + A - P` in 4 bytes. Fails unless −2³¹ ≤ value < 2³¹. `R_X86_64_PC32` (psABI 4.4.1).
    ///
    /// For a function out of reach that code calls, its stub's address stands for `S`. If code names a function or data
    /// out of reach, the link may extend the reference instead of failing.
    Delta32,
    /// `S + A - P` in 2 bytes. Fails unless −2¹⁵ ≤ value < 2¹⁵. `R_X86_64_PC16` (psABI 4.4.1).
    Delta16,
    /// `S + A - P` in 1 byte. Fails unless −2⁷ ≤ value < 2⁷. `R_X86_64_PC8` (psABI 4.4.1).
    Delta8,
    /// `L + A - P` in 4 bytes; `L` is `S` where the field reaches it. Fails unless −2³¹ ≤ value < 2³¹. `R_X86_64_PLT32`
    /// (psABI 4.4.1).
    Branch32,
    /// `G + A - P` in 4 bytes. Fails unless −2³¹ ≤ value < 2³¹. `R_X86_64_GOTPCREL` (psABI 4.4.1).
    GotLoad32,
    /// `G + A - P` in 4 bytes. Fails unless −2³¹ ≤ value < 2³¹. The instruction may be rewritten to reach `S` without
    /// the slot (psABI B.2). `R_X86_64_GOTPCRELX` (psABI 4.4.1).
    GotLoad32Relaxable,
    /// As [`GotLoad32Relaxable`](Self::GotLoad32Relaxable), for an instruction with a REX prefix.
    /// `R_X86_64_REX_GOTPCRELX` (psABI 4.4.1).
    GotLoad32RexRelaxable,
    /// `G + A - P` in 4 bytes, for an instruction with an APX prefix. Fails unless −2³¹ ≤ value < 2³¹. The instruction
    /// is never rewritten. `R_X86_64_CODE_{4,5,6}_GOTPCRELX` (psABI 4.4.1).
    GotLoad32Apx,
    /// `G + A - P` in 8 bytes. Never fails. `R_X86_64_GOTPCREL64` (psABI 4.4.1).
    GotLoad64,
    /// `G + A - GOT` in 8 bytes. Never fails. `R_X86_64_GOT64` (psABI 4.4.1), and `R_X86_64_GOTPLT64`, which means the
    /// same without lazy binding.
    GotSlot64,
    /// `G + A - GOT` in 4 bytes. Fails unless −2³¹ ≤ value < 2³¹. `R_X86_64_GOT32` (psABI 4.4.1).
    GotSlot32,
    /// `S + A - GOT` in 8 bytes. Never fails. `R_X86_64_GOTOFF64` (psABI 4.4.1), and `R_X86_64_PLTOFF64`, for which `S`
    /// may stand for `L`.
    GotOffset64,
    /// `GOT + A - P` in 4 bytes. Fails unless −2³¹ ≤ value < 2³¹. `R_X86_64_GOTPC32` (psABI 4.4.1).
    GotBase32,
    /// `GOT + A - P` in 8 bytes. Never fails. `R_X86_64_GOTPC64` (psABI 4.4.1).
    GotBase64,
    /// `Z + A` in 4 bytes. Fails unless 0 ≤ value < 2³². `R_X86_64_SIZE32` (psABI 4.4.1).
    Size32,
    /// `Z + A` in 8 bytes. Never fails. `R_X86_64_SIZE64` (psABI 4.4.1).
    Size64,
    /// `T + A - P` in 4 bytes; `T` is the address of the GOT's pair of module and offset of a thread-local variable.
    /// General dynamic. Fails unless −2³¹ ≤ value < 2³¹. `R_X86_64_TLSGD` (psABI 4.4.1).
    ThreadLocalPair32,
    /// `B + A - P` in 4 bytes; `B` is the address of the GOT's pair for the start of the object's local-dynamic block:
    /// its own block, or that of another object whose variables it uses. Local dynamic. Fails unless −2³¹ ≤ value <
    /// 2³¹, and in an object without either. `R_X86_64_TLSLD` (psABI 4.4.1).
    ThreadLocalBlock32,
    /// The variable's offset from the start of the object's local-dynamic block, plus `A`, in 4 bytes. Local dynamic. A
    /// variable of another block at no fixed distance needs a thunk. Fails unless −2³¹ ≤ value < 2³¹.
    /// `R_X86_64_DTPOFF32` (psABI 4.4.1).
    ThreadLocalOffset32,
    /// The variable's offset from the start of the object's local-dynamic block, plus `A`, in 8 bytes. Fails for a
    /// variable of another block at no fixed distance. `R_X86_64_DTPOFF64` (psABI 4.4.1).
    ThreadLocalOffset64,
    /// `I + A - P` in 4 bytes; `I` is the address of the GOT slot with the variable's distance from the thread pointer.
    /// Initial exec. A variable at no fixed distance needs a thunk. Fails unless −2³¹ ≤ value < 2³¹.
    /// `R_X86_64_GOTTPOFF` (psABI 4.4.1), and with APX prefixes `R_X86_64_CODE_{4,5,6}_GOTTPOFF`.
    StaticLoad32,
    /// The variable's distance from the thread pointer, plus `A`, in 4 bytes. Local exec. A variable at no fixed
    /// distance needs a thunk. Fails unless −2³¹ ≤ value < 2³¹. `R_X86_64_TPOFF32` (psABI 4.4.1).
    StaticOffset32,
    /// The variable's distance from the thread pointer, plus `A`, in 8 bytes. Fails for a variable at no fixed
    /// distance. `R_X86_64_TPOFF64` (psABI 4.4.1).
    StaticOffset64,
    /// `D + A - P` in 4 bytes; `D` is the address of the GOT's descriptor of a thread-local variable. Global dynamic.
    /// Fails unless −2³¹ ≤ value < 2³¹. `R_X86_64_GOTPC32_TLSDESC` (psABI 4.4.1), and with APX prefixes
    /// `R_X86_64_CODE_{4,5,6}_GOTPC32_TLSDESC`.
    ThreadLocalDescriptor32,
    /// A relocation that only AArch64 has.
    Aarch64(Aarch64Relocation),
}

impl EdgeKind {
    /// The kind with a field of whole bytes that is used for the same. By it the link decides which entries, stubs and places
    /// an edge needs. A kind whose field is whole bytes on every architecture is its own general kind.
    pub(crate) const fn general(self) -> EdgeKind {
        match self {
            EdgeKind::Aarch64(relocation) => EdgeKind::general_of(relocation.row().formula),
            own => own,
        }
    }

    /// The general kind of a formula.
    const fn general_of(Formula { base, frame }: Formula) -> EdgeKind {
        match (base, frame) {
            (Base::Symbol, Frame::Absolute | Frame::Unsigned) => EdgeKind::Pointer16,
            (Base::Symbol, Frame::Place | Frame::Page) => EdgeKind::Delta16,
            (Base::Symbol, Frame::Got | Frame::GotPage) => EdgeKind::GotOffset64,
            (Base::Branch, _) => EdgeKind::Branch32,
            (Base::Slot, Frame::Place | Frame::Page) => EdgeKind::GotLoad32,
            (Base::Slot, _) => EdgeKind::GotSlot32,
            (Base::Pair, _) => EdgeKind::ThreadLocalPair32,
            (Base::Block, _) => EdgeKind::ThreadLocalBlock32,
            (Base::StaticSlot, _) => EdgeKind::StaticLoad32,
            (Base::Descriptor, _) => EdgeKind::ThreadLocalDescriptor32,
            (Base::BlockOffset, _) => EdgeKind::ThreadLocalOffset64,
            (Base::StaticOffset, _) => EdgeKind::StaticOffset64,
        }
    }

    /// The formula of a kind whose field is bits of an instruction, or that only one architecture has.
    #[inline]
    pub(crate) fn formula(self) -> Option<Formula> {
        match self {
            EdgeKind::Aarch64(relocation) => Some(relocation.row().formula),
            _ => None,
        }
    }

    /// The number of which the value must be a multiple.
    pub(crate) fn multiple(self) -> u64 {
        match self {
            EdgeKind::Aarch64(relocation) => relocation.row().field.multiple(),
            _ => 1,
        }
    }

    /// Stores the low bits of a value, which is in [range](Self::range). `field` has [`width`](Self::width) bytes.
    #[inline]
    pub(crate) fn store(self, field: &mut [u8], value: i128) {
        match self {
            EdgeKind::Aarch64(relocation) => relocation.row().field.store(field, value),
            _ => field.copy_from_slice(&value.to_le_bytes()[..field.len()]),
        }
    }

    /// Whether the value is computed from the symbol's GOT slot.
    pub(crate) const fn needs_got_slot(self) -> bool {
        use EdgeKind::*;
        matches!(
            self.general(),
            GotLoad32 | GotLoad32Relaxable | GotLoad32RexRelaxable | GotLoad32Apx | GotLoad64 | GotSlot64 | GotSlot32
        )
    }

    /// Whether the value depends on the field's own address, `P`.
    pub(crate) fn depends_on_place(self) -> bool {
        use EdgeKind::*;
        match self.general() {
            Aarch64(_) => true,
            Pointer64 | Pointer32 | Pointer32Signed | Pointer16 | Pointer8 => false,
            GotSlot64 | GotSlot32 | GotOffset64 | Size32 | Size64 => false,
            ThreadLocalOffset32 | ThreadLocalOffset64 | StaticOffset32 | StaticOffset64 => false,
            ThreadLocalPair32 | ThreadLocalBlock32 | StaticLoad32 | ThreadLocalDescriptor32 => true,
            Delta64 | Delta32 | Delta16 | Delta8 | Branch32 => true,
            GotLoad32 | GotLoad32Relaxable | GotLoad32RexRelaxable | GotLoad32Apx => true,
            GotLoad64 | GotBase32 | GotBase64 => true,
        }
    }

    /// Whether the value is the symbol's size. Only the object that defines the symbol knows it.
    pub(crate) fn is_size(self) -> bool {
        matches!(self, EdgeKind::Size32 | EdgeKind::Size64)
    }

    /// The entry of a thread-local variable in the GOT that the value is computed from.
    pub(crate) fn thread_local_entry(self) -> Option<ThreadLocalEntry> {
        match self.general() {
            EdgeKind::ThreadLocalPair32 => Some(ThreadLocalEntry::Pair),
            EdgeKind::ThreadLocalBlock32 => Some(ThreadLocalEntry::Block),
            EdgeKind::StaticLoad32 => Some(ThreadLocalEntry::StaticOffset),
            EdgeKind::ThreadLocalDescriptor32 => Some(ThreadLocalEntry::Descriptor),
            _ => None,
        }
    }

    /// The TLS model of code with such an edge, as `-ftls-model` of gcc and clang names it.
    pub(crate) const fn thread_local_model(self) -> Option<&'static str> {
        use EdgeKind::*;
        match self.general() {
            ThreadLocalPair32 | ThreadLocalDescriptor32 => Some("global-dynamic"),
            ThreadLocalBlock32 | ThreadLocalOffset32 | ThreadLocalOffset64 => Some("local-dynamic"),
            StaticLoad32 => Some("initial-exec"),
            StaticOffset32 | StaticOffset64 => Some("local-exec"),
            _ => None,
        }
    }

    /// Whether the symbol must be a thread-local variable.
    pub(crate) fn is_thread_local(self) -> bool {
        use EdgeKind::*;
        self.needs_static_tls()
            || matches!(
                self.general(),
                ThreadLocalPair32 | ThreadLocalOffset32 | ThreadLocalOffset64 | ThreadLocalDescriptor32
            )
    }

    /// Whether the variable must be at one distance from the thread pointer in every thread.
    pub(crate) const fn needs_static_tls(self) -> bool {
        matches!(self.general(), EdgeKind::StaticLoad32 | EdgeKind::StaticOffset32 | EdgeKind::StaticOffset64)
    }

    /// Whether the value is a distance from the start of the object's local-dynamic block.
    pub(crate) const fn is_block_offset(self) -> bool {
        matches!(self.general(), EdgeKind::ThreadLocalOffset32 | EdgeKind::ThreadLocalOffset64)
    }

    /// Whether the value is the distance of a thread-local variable from the thread pointer or from a block.
    pub(crate) const fn has_fixed_distance(self) -> bool {
        KindSet::FIXED_DISTANCE.contains(self)
    }

    /// Whether the value is such a distance, and a thunk can compute it in each thread.
    pub(crate) const fn may_be_computed(self) -> bool {
        match self {
            EdgeKind::Aarch64(relocation) => relocation.row().is_computed(),
            _ => matches!(self, EdgeKind::StaticLoad32 | EdgeKind::StaticOffset32 | EdgeKind::ThreadLocalOffset32),
        }
    }

    /// Whether the instruction makes the page of a slot with such a distance. Another instruction with an edge loads from the page.
    pub(crate) const fn is_page_of_distance(self) -> bool {
        matches!(self, EdgeKind::Aarch64(Aarch64Relocation::TlsieAdrGottprelPage21))
    }

    /// Whether the instruction makes an address, or loads from it, which it reaches only if that is near, and for which a thunk may
    /// stand.
    pub(crate) const fn is_narrow_instruction(self) -> bool {
        match self {
            EdgeKind::Aarch64(relocation) => relocation.row().is_narrow_instruction(),
            _ => false,
        }
    }

    /// What an edge of this kind uses its symbol for: bits of [`uses`].
    pub(crate) const fn uses(self) -> u32 {
        uses::ANY
            | match self.general() {
                EdgeKind::Branch32 => uses::BRANCH,
                _ if KindSet::NEAR.contains(self) => uses::NEAR,
                _ if self.needs_got_slot() => uses::SLOT,
                _ if self.needs_static_tls() || self.is_block_offset() => uses::STATIC,
                _ => 0,
            }
    }

    /// The position of the general kind in a [`KindSet`].
    const fn bit(self) -> u32 {
        use EdgeKind::*;
        match self.general() {
            Pointer64 => 0,
            Pointer32 => 1,
            Pointer32Signed => 2,
            Pointer16 => 3,
            Pointer8 => 4,
            Delta64 => 5,
            Delta32 => 6,
            Delta16 => 7,
            Delta8 => 8,
            Branch32 => 9,
            GotLoad32 => 10,
            GotLoad32Relaxable => 11,
            GotLoad32RexRelaxable => 12,
            GotLoad32Apx => 13,
            GotLoad64 => 14,
            GotSlot64 => 15,
            GotSlot32 => 16,
            GotOffset64 => 17,
            GotBase32 => 18,
            GotBase64 => 19,
            Size32 => 20,
            Size64 => 21,
            ThreadLocalPair32 => 22,
            ThreadLocalBlock32 => 23,
            ThreadLocalOffset32 => 24,
            ThreadLocalOffset64 => 25,
            StaticLoad32 => 26,
            StaticOffset32 => 27,
            StaticOffset64 => 28,
            ThreadLocalDescriptor32 => 29,
            // No kind of one architecture is a general kind.
            Aarch64(_) => 62,
        }
    }

    /// Bytes of the field.
    pub(crate) const fn width(self) -> usize {
        use EdgeKind::*;
        match self {
            Pointer64 | Delta64 | GotLoad64 | GotSlot64 | GotOffset64 | GotBase64 | Size64 => 8,
            ThreadLocalOffset64 | StaticOffset64 => 8,
            Pointer16 | Delta16 => 2,
            Pointer8 | Delta8 => 1,
            Aarch64(relocation) => relocation.row().field.width(),
            _ => 4,
        }
    }

    /// The smallest and the largest value that fit; `None` if every value does.
    pub(crate) fn range(self) -> Option<(i128, i128)> {
        use EdgeKind::*;
        match self {
            Pointer64 | Delta64 | GotLoad64 | GotSlot64 | GotOffset64 | GotBase64 | Size64 => None,
            ThreadLocalOffset64 | StaticOffset64 => None,
            Pointer32 | Size32 => Some((0, u32::MAX.into())),
            // The psABI does not say whether these are signed. Assemblers use both readings.
            Pointer16 => Some((i16::MIN.into(), u16::MAX.into())),
            Pointer8 => Some((i8::MIN.into(), u8::MAX.into())),
            Delta16 => Some((i16::MIN.into(), i16::MAX.into())),
            Delta8 => Some((i8::MIN.into(), i8::MAX.into())),
            Aarch64(relocation) => relocation.row().range,
            _ => Some((i32::MIN.into(), i32::MAX.into())),
        }
    }
}

/// What edges use a symbol for, one bit each.
pub(crate) mod uses {
    /// Some edge refers to the symbol.
    pub(crate) const ANY: u32 = 1;
    /// Some edge reads the symbol's GOT slot.
    pub(crate) const SLOT: u32 = 2;
    /// Some edge is a branch to the symbol.
    pub(crate) const BRANCH: u32 = 4;
    /// Some edge refers to the symbol by a field that is narrower than an address.
    pub(crate) const NEAR: u32 = 8;
    /// Some edge needs the symbol's distance from the thread pointer.
    pub(crate) const STATIC: u32 = 16;
    /// Number of bits that the constants above take.
    pub(crate) const WIDTH: u32 = 5;
}

/// A set of edge kinds, one bit for each general kind.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct KindSet(u64);

impl KindSet {
    /// Kinds whose formula has the address of the GOT.
    pub(crate) const GOT: KindSet = {
        use EdgeKind::*;
        KindSet::of(&[GotSlot64, GotSlot32, GotOffset64, GotBase32, GotBase64])
    };
    /// Kinds with a [`ThreadLocalEntry`].
    pub(crate) const THREAD_LOCAL_ENTRY: KindSet = {
        use EdgeKind::*;
        KindSet::of(&[ThreadLocalPair32, ThreadLocalBlock32, StaticLoad32, ThreadLocalDescriptor32])
    };
    /// Kinds whose value is the distance of a thread-local variable from the thread pointer or from a block.
    pub(crate) const FIXED_DISTANCE: KindSet = {
        use EdgeKind::*;
        KindSet::of(&[StaticLoad32, StaticOffset32, StaticOffset64, ThreadLocalOffset32, ThreadLocalOffset64])
    };
    /// Kinds whose value is a distance from the thread pointer.
    pub(crate) const THREAD_POINTER: KindSet =
        KindSet::of(&[EdgeKind::StaticLoad32, EdgeKind::StaticOffset32, EdgeKind::StaticOffset64]);
    /// Kinds that use a TLS descriptor.
    pub(crate) const DESCRIPTOR: KindSet = KindSet::of(&[EdgeKind::ThreadLocalDescriptor32]);
    /// Kinds that store a size.
    pub(crate) const SIZE: KindSet = KindSet::of(&[EdgeKind::Size32, EdgeKind::Size64]);
    /// Kinds whose field holds only low addresses. An object with one of them needs memory below 2 GiB.
    pub(crate) const LOW: KindSet = KindSet::of(&[EdgeKind::Pointer32, EdgeKind::Pointer32Signed]);
    /// Kinds of references that a compiler uses for data if it assumes that the data is near.
    pub(crate) const NEAR: KindSet = KindSet::of(&[EdgeKind::Delta32, EdgeKind::Pointer32, EdgeKind::Pointer32Signed]);

    /// No kind: the relocation type makes no edge.
    pub(crate) const NO_EDGE: KindSet = KindSet(1 << 63);

    pub(crate) const fn of(kinds: &[EdgeKind]) -> KindSet {
        let mut set = 0;
        let mut at = 0;
        while at < kinds.len() {
            set |= 1 << kinds[at].bit();
            at += 1;
        }
        KindSet(set)
    }

    pub(crate) fn insert(&mut self, kind: EdgeKind) {
        self.0 |= 1 << kind.bit();
    }

    pub(crate) fn insert_all(&mut self, other: KindSet) {
        self.0 |= other.0;
    }

    pub(crate) const fn contains(self, kind: EdgeKind) -> bool {
        self.0 >> kind.bit() & 1 == 1
    }

    pub(crate) const fn has_any_of(self, other: KindSet) -> bool {
        self.0 & other.0 != 0
    }
}

/// A kind of entry of a thread-local variable in the GOT.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ThreadLocalEntry {
    /// Module and offset (`tls_index`), as `__tls_get_addr` takes them. 16 bytes.
    Pair,
    /// The same for the start of the object's local-dynamic block, whatever the symbol. 16 bytes.
    Block,
    /// The variable's distance from the thread pointer. 8 bytes.
    StaticOffset,
    /// A TLS descriptor: function and argument, then the pair that the argument points to. 32 bytes.
    Descriptor,
}
