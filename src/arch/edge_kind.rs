//! [`EdgeKind`]: the x86-64 relocations as edges; the relaxation of GOT loads; the stub.
//!
//! Each kind is documented by its formula, the width of its field, when it fails, and its name. All formulas are those
//! of the psABI 1.0, section 4.4.1 ("Relocation Types"), table 4.9. Drepper, "ELF Handling For Thread-Local Storage",
//! explains the thread-local kinds.
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
//! A value that does not fit its field is an error. It is never truncated. `fixup.rs` computes the values;
//! `verify/formulas.rs` computes them again, without this file's tables.

/// How an edge's value is computed and stored.
///
/// The symbols in the formulas are those of the psABI 1.0, section 4.4.1: `S` is the symbol's address, `A` the addend,
/// `P` the field's address, `L` the address of the symbol's stub, `G` the address of its GOT slot, `GOT` the address of
/// the GOT, `Z` the symbol's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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
    /// For a function out of reach, its stub's address stands for `S`. For data out of reach that code names, the link
    /// may extend the reference instead of failing.
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
    /// `B + A - P` in 4 bytes; `B` is the address of the GOT's pair for the start of the object's own block. Local
    /// dynamic. Fails unless −2³¹ ≤ value < 2³¹, and in an object without thread-local sections. `R_X86_64_TLSLD`
    /// (psABI 4.4.1).
    ThreadLocalBlock32,
    /// The variable's offset from the start of the object's own block, plus `A`, in 4 bytes. Local dynamic. Fails
    /// unless −2³¹ ≤ value < 2³¹, and for a variable of another block at no fixed distance. `R_X86_64_DTPOFF32` (psABI
    /// 4.4.1).
    ThreadLocalOffset32,
    /// The variable's offset from the start of the object's own block, plus `A`, in 8 bytes. Fails for a variable of
    /// another block at no fixed distance. `R_X86_64_DTPOFF64` (psABI 4.4.1).
    ThreadLocalOffset64,
    /// `I + A - P` in 4 bytes; `I` is the address of the GOT slot with the variable's distance from the thread pointer.
    /// Initial exec. Fails unless −2³¹ ≤ value < 2³¹, and for a variable at no fixed distance. `R_X86_64_GOTTPOFF`
    /// (psABI 4.4.1), and with APX prefixes `R_X86_64_CODE_{4,5,6}_GOTTPOFF`.
    StaticLoad32,
    /// The variable's distance from the thread pointer, plus `A`, in 4 bytes. Local exec. Fails unless −2³¹ ≤ value <
    /// 2³¹, and for a variable at no fixed distance. `R_X86_64_TPOFF32` (psABI 4.4.1).
    StaticOffset32,
    /// The variable's distance from the thread pointer, plus `A`, in 8 bytes. Fails for a variable at no fixed
    /// distance. `R_X86_64_TPOFF64` (psABI 4.4.1).
    StaticOffset64,
    /// `D + A - P` in 4 bytes; `D` is the address of the GOT's descriptor of a thread-local variable. Global dynamic.
    /// Fails unless −2³¹ ≤ value < 2³¹. `R_X86_64_GOTPC32_TLSDESC` (psABI 4.4.1), and with APX prefixes
    /// `R_X86_64_CODE_{4,5,6}_GOTPC32_TLSDESC`.
    ThreadLocalDescriptor32,
}

impl EdgeKind {
    /// The kind of a relocation; `None` for one that is not supported. Relocations that make no edge ([`is_marker`])
    /// have none.
    pub(crate) const fn from_relocation(r_type: u32) -> Option<EdgeKind> {
        Some(match r_type {
            1 => EdgeKind::Pointer64,
            2 => EdgeKind::Delta32,
            3 => EdgeKind::GotSlot32,
            4 => EdgeKind::Branch32,
            9 => EdgeKind::GotLoad32,
            10 => EdgeKind::Pointer32,
            11 => EdgeKind::Pointer32Signed,
            12 => EdgeKind::Pointer16,
            13 => EdgeKind::Delta16,
            14 => EdgeKind::Pointer8,
            15 => EdgeKind::Delta8,
            24 => EdgeKind::Delta64,
            25 | 31 => EdgeKind::GotOffset64,
            26 => EdgeKind::GotBase32,
            27 => EdgeKind::GotSlot64,
            28 => EdgeKind::GotLoad64,
            29 => EdgeKind::GotBase64,
            30 => EdgeKind::GotSlot64, // GOTPLT64: the same without lazy binding
            17 => EdgeKind::ThreadLocalOffset64,
            18 => EdgeKind::StaticOffset64,
            19 => EdgeKind::ThreadLocalPair32,
            20 => EdgeKind::ThreadLocalBlock32,
            21 => EdgeKind::ThreadLocalOffset32,
            22 | 44 | 47 | 50 => EdgeKind::StaticLoad32,
            23 => EdgeKind::StaticOffset32,
            34 | 45 | 48 | 51 => EdgeKind::ThreadLocalDescriptor32,
            32 => EdgeKind::Size32,
            33 => EdgeKind::Size64,
            41 => EdgeKind::GotLoad32Relaxable,
            42 => EdgeKind::GotLoad32RexRelaxable,
            43 | 46 | 49 => EdgeKind::GotLoad32Apx,
            _ => return None,
        })
    }

    /// The psABI's name of the relocation.
    pub fn name(self) -> &'static str {
        match self {
            EdgeKind::Pointer64 => "R_X86_64_64",
            EdgeKind::Pointer32 => "R_X86_64_32",
            EdgeKind::Pointer32Signed => "R_X86_64_32S",
            EdgeKind::Pointer16 => "R_X86_64_16",
            EdgeKind::Pointer8 => "R_X86_64_8",
            EdgeKind::Delta64 => "R_X86_64_PC64",
            EdgeKind::Delta32 => "R_X86_64_PC32",
            EdgeKind::Delta16 => "R_X86_64_PC16",
            EdgeKind::Delta8 => "R_X86_64_PC8",
            EdgeKind::Branch32 => "R_X86_64_PLT32",
            EdgeKind::GotLoad32 => "R_X86_64_GOTPCREL",
            EdgeKind::GotLoad32Relaxable => "R_X86_64_GOTPCRELX",
            EdgeKind::GotLoad32RexRelaxable => "R_X86_64_REX_GOTPCRELX",
            EdgeKind::GotLoad32Apx => "R_X86_64_CODE_4_GOTPCRELX",
            EdgeKind::GotLoad64 => "R_X86_64_GOTPCREL64",
            EdgeKind::GotSlot64 => "R_X86_64_GOT64",
            EdgeKind::GotSlot32 => "R_X86_64_GOT32",
            EdgeKind::GotOffset64 => "R_X86_64_GOTOFF64",
            EdgeKind::GotBase32 => "R_X86_64_GOTPC32",
            EdgeKind::GotBase64 => "R_X86_64_GOTPC64",
            EdgeKind::Size32 => "R_X86_64_SIZE32",
            EdgeKind::Size64 => "R_X86_64_SIZE64",
            EdgeKind::ThreadLocalPair32 => "R_X86_64_TLSGD",
            EdgeKind::ThreadLocalBlock32 => "R_X86_64_TLSLD",
            EdgeKind::ThreadLocalOffset32 => "R_X86_64_DTPOFF32",
            EdgeKind::ThreadLocalOffset64 => "R_X86_64_DTPOFF64",
            EdgeKind::StaticLoad32 => "R_X86_64_GOTTPOFF",
            EdgeKind::StaticOffset32 => "R_X86_64_TPOFF32",
            EdgeKind::StaticOffset64 => "R_X86_64_TPOFF64",
            EdgeKind::ThreadLocalDescriptor32 => "R_X86_64_GOTPC32_TLSDESC",
        }
    }

    /// Whether the value is computed from the symbol's GOT slot.
    pub(crate) const fn needs_got_slot(self) -> bool {
        use EdgeKind::*;
        matches!(
            self,
            GotLoad32 | GotLoad32Relaxable | GotLoad32RexRelaxable | GotLoad32Apx | GotLoad64 | GotSlot64 | GotSlot32
        )
    }

    /// Whether the value depends on the field's own address, `P`.
    pub(crate) fn depends_on_place(self) -> bool {
        use EdgeKind::*;
        match self {
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
        match self {
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
        match self {
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
            || matches!(self, ThreadLocalPair32 | ThreadLocalOffset32 | ThreadLocalOffset64 | ThreadLocalDescriptor32)
    }

    /// Whether the variable must be at one distance from the thread pointer in every thread.
    pub(crate) const fn needs_static_tls(self) -> bool {
        matches!(self, EdgeKind::StaticLoad32 | EdgeKind::StaticOffset32 | EdgeKind::StaticOffset64)
    }

    /// Whether the value is a distance from the start of the object's own thread-local block. A variable of another
    /// block must then be at a fixed distance from that start.
    pub(crate) const fn is_block_offset(self) -> bool {
        matches!(self, EdgeKind::ThreadLocalOffset32 | EdgeKind::ThreadLocalOffset64)
    }

    /// Bytes of the field.
    pub(crate) const fn width(self) -> usize {
        use EdgeKind::*;
        match self {
            Pointer64 | Delta64 | GotLoad64 | GotSlot64 | GotOffset64 | GotBase64 | Size64 => 8,
            ThreadLocalOffset64 | StaticOffset64 => 8,
            Pointer16 | Delta16 => 2,
            Pointer8 | Delta8 => 1,
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
            _ => Some((i32::MIN.into(), i32::MAX.into())),
        }
    }
}

/// A set of edge kinds, one bit each.
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
    /// Kinds that store the distance to the symbol in four bytes.
    pub(crate) const DISTANCE: KindSet = KindSet::of(&[EdgeKind::Delta32, EdgeKind::Branch32]);
    /// Kinds that use a TLS descriptor.
    pub(crate) const DESCRIPTOR: KindSet = KindSet::of(&[EdgeKind::ThreadLocalDescriptor32]);
    /// Kinds that store a size.
    pub(crate) const SIZE: KindSet = KindSet::of(&[EdgeKind::Size32, EdgeKind::Size64]);
    /// Kinds whose field holds only low addresses. An object with one of them needs memory below 2 GiB.
    pub(crate) const LOW: KindSet = KindSet::of(&[EdgeKind::Pointer32, EdgeKind::Pointer32Signed]);
    /// Kinds by which code names data that it was compiled to be near to.
    pub(crate) const NEAR: KindSet = KindSet::of(&[EdgeKind::Delta32, EdgeKind::Pointer32, EdgeKind::Pointer32Signed]);

    const fn of(kinds: &[EdgeKind]) -> KindSet {
        let mut set = 0;
        let mut at = 0;
        while at < kinds.len() {
            set |= 1 << kinds[at] as u32;
            at += 1;
        }
        KindSet(set)
    }

    pub(crate) fn insert(&mut self, kind: EdgeKind) {
        self.0 |= 1 << kind as u32;
    }

    pub(crate) const fn contains(self, kind: EdgeKind) -> bool {
        self.0 >> kind as u32 & 1 == 1
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
    /// The same for the start of the object's own block, whatever the symbol. 16 bytes.
    Block,
    /// The variable's distance from the thread pointer. 8 bytes.
    StaticOffset,
    /// A TLS descriptor: function and argument, then the pair that the argument points to. 32 bytes.
    Descriptor,
}

/// Whether a relocation is only a marker, which makes no edge and changes no byte.
pub(crate) fn is_marker(r_type: u32) -> bool {
    const R_X86_64_NONE: u32 = 0;
    // Marks the call through a TLS descriptor, for linkers that rewrite it. Here it stays as it is.
    const R_X86_64_TLSDESC_CALL: u32 = 35;
    matches!(r_type, R_X86_64_NONE | R_X86_64_TLSDESC_CALL)
}

/// The name of a relocation that is not supported, for errors. The named ones occur only in a linker's output.
pub(crate) fn relocation_name(r_type: u32) -> String {
    const NAMES: [(u32, &str); 7] = [
        (5, "R_X86_64_COPY"),
        (6, "R_X86_64_GLOB_DAT"),
        (7, "R_X86_64_JUMP_SLOT"),
        (8, "R_X86_64_RELATIVE"),
        (16, "R_X86_64_DTPMOD64"),
        (36, "R_X86_64_TLSDESC"),
        (37, "R_X86_64_IRELATIVE"),
    ];
    match NAMES.iter().find(|(number, _)| *number == r_type) {
        Some((_, name)) => format!("relocation {name}"),
        None => format!("relocation type {r_type}"),
    }
}

/// Rewrites the instruction of a GOT load to reach the symbol without its slot (psABI B.2), if the displacement fits.
/// Returns false, and changes nothing, otherwise.
///
/// | instruction | becomes |
/// |---|---|
/// | `mov slot(%rip), %reg` | `lea symbol(%rip), %reg` |
/// | `call *slot(%rip)` | `addr32 call symbol` |
/// | `jmp *slot(%rip)` | `jmp symbol; nop` |
///
/// `code` is the four-byte field and the two bytes before it. `before` is the byte before `code`, if there is one.
/// `displacement` is `S + A - P`, with the addend −4 that such loads carry.
///
/// The test is whether the *displacement* fits. That the target's address is low proves nothing, and other linkers that
/// test the address rewrite what they must not.
///
/// A call with a `rex.W` prefix stays as it is. In `data16 rex.W call *__tls_get_addr` (general dynamic without PLT)
/// the `addr32` prefix would take the place of `rex.W`, and AMD processors read `data16 call` as a call of 16 bits.
#[inline]
pub(crate) fn relax_got_load(kind: EdgeKind, before: Option<u8>, code: &mut [u8; 6], displacement: i64) -> bool {
    let fits = |displacement: i64| i32::try_from(displacement).ok().map(i32::to_le_bytes);
    let has_no_prefix = kind == EdgeKind::GotLoad32Relaxable;
    let [first, second, field @ ..] = code;
    match (*first, *second) {
        // mov slot(%rip), %reg → lea symbol(%rip), %reg
        (0x8b, modrm) if is_rip_relative(modrm) && is_relaxable(kind) => {
            let Some(displacement) = fits(displacement) else { return false };
            *first = 0x8d;
            *field = displacement;
            true
        }
        // call *slot(%rip) → addr32 call symbol
        (0xff, 0x15) if has_no_prefix && before != Some(0x48) => {
            let Some(displacement) = fits(displacement) else { return false };
            (*first, *second) = (0x67, 0xe8);
            *field = displacement;
            true
        }
        // jmp *slot(%rip) → jmp symbol; nop. The field moves one byte down, so the displacement grows by one.
        (0xff, 0x25) if has_no_prefix => {
            let Some([a, b, c, d]) = displacement.checked_add(1).and_then(fits) else { return false };
            (*first, *second) = (0xe9, a);
            *field = [b, c, d, 0x90];
            true
        }
        _ => false,
    }
}

/// Whether [`relax_got_load`] may rewrite the instruction.
#[inline]
pub(crate) fn is_relaxable(kind: EdgeKind) -> bool {
    matches!(kind, EdgeKind::GotLoad32Relaxable | EdgeKind::GotLoad32RexRelaxable)
}

fn is_rip_relative(modrm: u8) -> bool {
    modrm & 0xc7 == 0x05
}

/// `endbr64`: marks an instruction that indirect branches may reach (Intel CET, indirect branch tracking). Does nothing
/// else.
pub(crate) const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
/// A stub: `endbr64; jmp *slot(%rip)`, padded to 16 bytes with traps. Its address may serve as a function pointer.
pub(crate) const STUB: [u8; 16] = [0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25, 0, 0, 0, 0, TRAP, TRAP, TRAP, TRAP, TRAP, TRAP];
/// Offset of the displacement in a stub.
pub(crate) const STUB_FIELD: u32 = 6;
/// `int3`: fills the gaps in code.
pub(crate) const TRAP: u8 = 0xcc;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_set_of_kinds_with_a_thread_local_entry_agrees_with_the_kinds() {
        for kind in (0..64).filter_map(EdgeKind::from_relocation) {
            let is_listed = KindSet::THREAD_LOCAL_ENTRY.contains(kind);
            assert_eq!(is_listed, kind.thread_local_entry().is_some(), "{}", kind.name());
        }
    }

    /// Whether the instruction is rewritten, and its bytes afterwards.
    fn relaxed(kind: EdgeKind, instruction: [u8; 2], displacement: i64) -> (bool, [u8; 6]) {
        let mut code = [instruction[0], instruction[1], 0, 0, 0, 0];
        (relax_got_load(kind, Some(0x66), &mut code, displacement), code)
    }

    #[test]
    fn a_got_load_is_relaxed_by_displacement_not_by_the_targets_address() {
        let load = |displacement| relaxed(EdgeKind::GotLoad32RexRelaxable, [0x8b, 0x05], displacement);
        assert_eq!(load(-(1 << 40)), (false, [0x8b, 0x05, 0, 0, 0, 0]), "a low target that is out of reach");
        assert_eq!(load(-5), (true, [0x8d, 0x05, 0xfb, 0xff, 0xff, 0xff]));
    }

    #[test]
    fn calls_and_jumps_through_the_got_become_direct() {
        let branch = |instruction, displacement| relaxed(EdgeKind::GotLoad32Relaxable, instruction, displacement);
        assert_eq!(branch([0xff, 0x15], 0x1000), (true, [0x67, 0xe8, 0, 0x10, 0, 0]));
        assert_eq!(branch([0xff, 0x25], 0x1000), (true, [0xe9, 0x01, 0x10, 0, 0, 0x90]));
        let (is_relaxed, code) = branch([0xff, 0x25], i64::from(i32::MAX));
        assert_eq!((is_relaxed, code), (false, [0xff, 0x25, 0, 0, 0, 0]), "the displacement plus one does not fit");
    }

    #[test]
    fn a_call_with_a_rex_w_prefix_stays_a_call_through_the_got() {
        let mut code = [0xff, 0x15, 0, 0, 0, 0];
        assert!(!relax_got_load(EdgeKind::GotLoad32Relaxable, Some(0x48), &mut code, 0x1000));
        assert_eq!(code, [0xff, 0x15, 0, 0, 0, 0]);
        assert!(
            relax_got_load(EdgeKind::GotLoad32Relaxable, None, &mut code, 0x1000),
            "the call is at the start of the section"
        );
    }

    #[test]
    fn plain_got_loads_and_unknown_instructions_are_not_rewritten() {
        assert!(!relaxed(EdgeKind::GotLoad32, [0x8b, 0x05], 0).0);
        assert!(!relaxed(EdgeKind::GotLoad32Apx, [0xff, 0x15], 0).0);
        assert!(!relaxed(EdgeKind::GotLoad32RexRelaxable, [0xff, 0x15], 0).0, "a call with a prefix");
        assert!(!relaxed(EdgeKind::GotLoad32RexRelaxable, [0x03, 0x05], 0).0, "add");
    }
}
