//! x86-64 edges: what each computes, how wide it is stored, when it fails (psABI 1.0, table 4.9), and the relaxations.
//!
//! `S` is the symbol's address, `A` the addend, `P` the address of the place, `G` the address of the symbol's GOT slot,
//! `GOT` the address of the GOT, `Z` the symbol's size. A value outside its field is an error, never truncated.

/// How an edge's value is computed and stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EdgeKind {
    /// `S + A`, 64 bits. Cannot fail. `R_X86_64_64`
    Pointer64,
    /// `S + A`, 32 bits, zero-extended. `R_X86_64_32`
    Pointer32,
    /// `S + A`, 32 bits, sign-extended. `R_X86_64_32S`
    Pointer32Signed,
    /// `S + A`, 16 bits. `R_X86_64_16`
    Pointer16,
    /// `S + A`, 8 bits. `R_X86_64_8`
    Pointer8,
    /// `S + A - P`, 64 bits. Cannot fail. `R_X86_64_PC64`
    Delta64,
    /// `S + A - P`, 32 bits, signed. `R_X86_64_PC32`
    Delta32,
    /// `S + A - P`, 16 bits, signed. `R_X86_64_PC16`
    Delta16,
    /// `S + A - P`, 8 bits, signed. `R_X86_64_PC8`
    Delta8,
    /// `S + A - P`, 32 bits, signed, or the same to a stub for `S` where that is out of reach. `R_X86_64_PLT32`
    Branch32,
    /// `G + A - P`, 32 bits, signed. `R_X86_64_GOTPCREL`
    GotLoad32,
    /// As `GotLoad32`; the instruction may be rewritten to reach `S` itself. `R_X86_64_GOTPCRELX`
    GotLoad32Relaxable,
    /// As `GotLoad32Relaxable`, behind a REX prefix. `R_X86_64_REX_GOTPCRELX`
    GotLoad32RexRelaxable,
    /// As `GotLoad32`, behind an APX prefix; never rewritten. `R_X86_64_CODE_{4,5,6}_GOTPCRELX`
    GotLoad32Apx,
    /// `G + A - P`, 64 bits. `R_X86_64_GOTPCREL64`
    GotLoad64,
    /// `G + A - GOT`, 64 bits. `R_X86_64_GOT64`
    GotSlot64,
    /// `G + A - GOT`, 32 bits, signed. `R_X86_64_GOT32`
    GotSlot32,
    /// `S + A - GOT`, 64 bits. `R_X86_64_GOTOFF64`, and `R_X86_64_PLTOFF64`, which may go to `S` itself.
    GotOffset64,
    /// `GOT + A - P`, 32 bits, signed. `R_X86_64_GOTPC32`
    GotBase32,
    /// `GOT + A - P`, 64 bits. `R_X86_64_GOTPC64`
    GotBase64,
    /// `Z + A`, 32 bits. `R_X86_64_SIZE32`
    Size32,
    /// `Z + A`, 64 bits. `R_X86_64_SIZE64`
    Size64,
    /// The GOT's pair of module and offset of a thread-local variable, minus `P`: general dynamic. `R_X86_64_TLSGD`
    ThreadLocalPair32,
    /// The same for the start of the object's own block: local dynamic. `R_X86_64_TLSLD`
    ThreadLocalBlock32,
    /// Offset in the module's block, 32 bits, signed. `R_X86_64_DTPOFF32`
    ThreadLocalOffset32,
    /// Offset in the module's block, 64 bits. `R_X86_64_DTPOFF64`
    ThreadLocalOffset64,
    /// The GOT slot with the offset from the thread pointer, minus `P`: initial exec. `R_X86_64_GOTTPOFF`, and with APX
    /// prefixes `R_X86_64_CODE_{4,5,6}_GOTTPOFF`
    StaticLoad32,
    /// Offset from the thread pointer, 32 bits, signed: local exec. `R_X86_64_TPOFF32`
    StaticOffset32,
    /// Offset from the thread pointer, 64 bits. `R_X86_64_TPOFF64`
    StaticOffset64,
    /// The GOT's descriptor of a thread-local variable, minus `P`. `R_X86_64_GOTPC32_TLSDESC`, and with APX prefixes
    /// `R_X86_64_CODE_{4,5,6}_GOTPC32_TLSDESC`
    ThreadLocalDescriptor32,
}

impl EdgeKind {
    /// The kind of a relocation; `None` when it is not supported. `R_X86_64_NONE` makes no edge and is not asked for.
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
            30 => EdgeKind::GotSlot64, // GOTPLT64: the same, as there is no lazy binding
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

    /// Whether it reads the symbol's GOT slot.
    pub(crate) const fn needs_got_slot(self) -> bool {
        use EdgeKind::*;
        matches!(
            self,
            GotLoad32 | GotLoad32Relaxable | GotLoad32RexRelaxable | GotLoad32Apx | GotLoad64 | GotSlot64 | GotSlot32
        )
    }

    /// Whether its value depends on where the field itself stands.
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

    /// Whether it stores the symbol's size, which only the object that defines it knows.
    pub(crate) fn is_size(self) -> bool {
        matches!(self, EdgeKind::Size32 | EdgeKind::Size64)
    }

    /// What of a thread-local variable it needs in the GOT.
    pub(crate) fn thread_local_entry(self) -> Option<ThreadLocalEntry> {
        match self {
            EdgeKind::ThreadLocalPair32 => Some(ThreadLocalEntry::Pair),
            EdgeKind::ThreadLocalBlock32 => Some(ThreadLocalEntry::Block),
            EdgeKind::StaticLoad32 => Some(ThreadLocalEntry::StaticOffset),
            EdgeKind::ThreadLocalDescriptor32 => Some(ThreadLocalEntry::Descriptor),
            _ => None,
        }
    }

    /// The model of thread-local storage that code with such a reference uses, as `-ftls-model` of gcc and clang names it.
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

    /// Whether its symbol is a thread-local variable.
    pub(crate) fn is_thread_local(self) -> bool {
        use EdgeKind::*;
        self.needs_static_place()
            || matches!(self, ThreadLocalPair32 | ThreadLocalOffset32 | ThreadLocalOffset64 | ThreadLocalDescriptor32)
    }

    /// Whether the variable must be at one distance from every thread's pointer.
    pub(crate) const fn needs_static_place(self) -> bool {
        matches!(self, EdgeKind::StaticLoad32 | EdgeKind::StaticOffset32 | EdgeKind::StaticOffset64)
    }

    /// Whether it is an offset in the object's own block: what is not there must be at a fixed distance from it.
    pub(crate) const fn is_block_offset(self) -> bool {
        matches!(self, EdgeKind::ThreadLocalOffset32 | EdgeKind::ThreadLocalOffset64)
    }

    /// Bytes stored.
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

    /// Smallest and largest value that fits; `None` when any does.
    pub(crate) fn range(self) -> Option<(i128, i128)> {
        use EdgeKind::*;
        match self {
            Pointer64 | Delta64 | GotLoad64 | GotSlot64 | GotOffset64 | GotBase64 | Size64 => None,
            ThreadLocalOffset64 | StaticOffset64 => None,
            Pointer32 | Size32 => Some((0, u32::MAX.into())),
            // The psABI leaves these to the assembler: both readings of the bits are in use.
            Pointer16 => Some((i16::MIN.into(), u16::MAX.into())),
            Pointer8 => Some((i8::MIN.into(), u8::MAX.into())),
            Delta16 => Some((i16::MIN.into(), i16::MAX.into())),
            Delta8 => Some((i8::MIN.into(), i8::MAX.into())),
            _ => Some((i32::MIN.into(), i32::MAX.into())),
        }
    }
}

/// A set of kinds.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct KindSet(u64);

impl KindSet {
    /// Those that refer to the GOT itself.
    pub(crate) const GOT: KindSet = {
        use EdgeKind::*;
        KindSet::of(&[GotSlot64, GotSlot32, GotOffset64, GotBase32, GotBase64])
    };
    /// Those that need something of a thread-local variable in the GOT.
    pub(crate) const THREAD_LOCAL_ENTRY: KindSet = {
        use EdgeKind::*;
        KindSet::of(&[ThreadLocalPair32, ThreadLocalBlock32, StaticLoad32, ThreadLocalDescriptor32])
    };
    /// Those that store the distance to the symbol in four bytes.
    pub(crate) const DISTANCE: KindSet = KindSet::of(&[EdgeKind::Delta32, EdgeKind::Branch32]);
    /// Those with a descriptor.
    pub(crate) const DESCRIPTOR: KindSet = KindSet::of(&[EdgeKind::ThreadLocalDescriptor32]);
    /// Those that store a size.
    pub(crate) const SIZE: KindSet = KindSet::of(&[EdgeKind::Size32, EdgeKind::Size64]);
    /// Those whose field takes only addresses below 2 GiB.
    pub(crate) const LOW: KindSet = KindSet::of(&[EdgeKind::Pointer32, EdgeKind::Pointer32Signed]);
    /// Those by which code names what it was compiled to stand near to.
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

/// What a thread-local variable may have in the GOT.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ThreadLocalEntry {
    /// Module and offset, as `__tls_get_addr` takes them.
    Pair,
    /// The same for the start of the object's own block, whatever the symbol.
    Block,
    /// Offset from the thread pointer.
    StaticOffset,
    /// Function and argument (psABI, "TLS Descriptors").
    Descriptor,
}

/// Relocations that make no edge: they ask for nothing.
pub(crate) fn is_mark(r_type: u32) -> bool {
    const R_X86_64_NONE: u32 = 0;
    // Marks the call through a descriptor, which stays as it is.
    const R_X86_64_TLSDESC_CALL: u32 = 35;
    matches!(r_type, R_X86_64_NONE | R_X86_64_TLSDESC_CALL)
}

/// Relocations that are refused, by name: those that only a linker's output may carry.
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

/// Rewrites a GOT load so that it reaches the symbol itself, if the displacement allows. `code` is the four bytes at the
/// place, and the two before; `displacement` is `S + A - P`, with the addend −4 that such loads carry.
///
/// The test is of the *displacement*: that the target is low says nothing (a known defect of other linkers).
///
/// `before` is the byte ahead of `code`. Behind a `rex.W` a call stays as it is: in `data16 rex.W call *__tls_get_addr` (psABI,
/// general dynamic without PLT) another prefix would take the place of `rex.W`, and processors by AMD read `data16 call` as a
/// call of 16 bits.
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

/// Whether it may be rewritten.
#[inline]
pub(crate) fn is_relaxable(kind: EdgeKind) -> bool {
    matches!(kind, EdgeKind::GotLoad32Relaxable | EdgeKind::GotLoad32RexRelaxable)
}

fn is_rip_relative(modrm: u8) -> bool {
    modrm & 0xc7 == 0x05
}

/// Marks an entry that indirect branches may reach (Intel CET, indirect branch tracking); does nothing otherwise.
pub(crate) const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
/// A stub: `endbr64; jmp *slot(%rip)`, padded to 16 bytes with traps. Its address may be a function pointer.
pub(crate) const STUB: [u8; 16] = [0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25, 0, 0, 0, 0, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc];
/// Where in a stub the displacement stands.
pub(crate) const STUB_FIELD: u32 = 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_among_those_with_an_entry_of_their_own_when_it_has_one() {
        for kind in (0..64).filter_map(EdgeKind::from_relocation) {
            let is_listed = KindSet::THREAD_LOCAL_ENTRY.contains(kind);
            assert_eq!(is_listed, kind.thread_local_entry().is_some(), "{}", kind.name());
        }
    }

    /// Whether it is rewritten, and what is there then.
    fn relaxed(kind: EdgeKind, instruction: [u8; 2], displacement: i64) -> (bool, [u8; 6]) {
        let mut code = [instruction[0], instruction[1], 0, 0, 0, 0];
        (relax_got_load(kind, Some(0x66), &mut code, displacement), code)
    }

    #[test]
    fn a_got_load_is_relaxed_by_displacement_and_not_by_how_low_the_target_is() {
        let load = |displacement| relaxed(EdgeKind::GotLoad32RexRelaxable, [0x8b, 0x05], displacement);
        assert_eq!(load(-(1 << 40)), (false, [0x8b, 0x05, 0, 0, 0, 0]), "far slab, low target");
        assert_eq!(load(-5), (true, [0x8d, 0x05, 0xfb, 0xff, 0xff, 0xff]));
    }

    #[test]
    fn calls_and_jumps_through_the_got_become_direct() {
        let branch = |instruction, displacement| relaxed(EdgeKind::GotLoad32Relaxable, instruction, displacement);
        assert_eq!(branch([0xff, 0x15], 0x1000), (true, [0x67, 0xe8, 0, 0x10, 0, 0]));
        assert_eq!(branch([0xff, 0x25], 0x1000), (true, [0xe9, 0x01, 0x10, 0, 0, 0x90]));
        let (is_relaxed, code) = branch([0xff, 0x25], i64::from(i32::MAX));
        assert_eq!((is_relaxed, code), (false, [0xff, 0x25, 0, 0, 0, 0]), "one more does not fit");
    }

    #[test]
    fn a_call_behind_rex_w_stays_a_call_through_the_got() {
        let mut code = [0xff, 0x15, 0, 0, 0, 0];
        assert!(!relax_got_load(EdgeKind::GotLoad32Relaxable, Some(0x48), &mut code, 0x1000));
        assert_eq!(code, [0xff, 0x15, 0, 0, 0, 0]);
        assert!(relax_got_load(EdgeKind::GotLoad32Relaxable, None, &mut code, 0x1000), "nothing is ahead of it");
    }

    #[test]
    fn plain_got_loads_and_unknown_instructions_are_left_alone() {
        assert!(!relaxed(EdgeKind::GotLoad32, [0x8b, 0x05], 0).0);
        assert!(!relaxed(EdgeKind::GotLoad32Apx, [0xff, 0x15], 0).0);
        assert!(!relaxed(EdgeKind::GotLoad32RexRelaxable, [0xff, 0x15], 0).0, "behind a prefix");
        assert!(!relaxed(EdgeKind::GotLoad32RexRelaxable, [0x03, 0x05], 0).0, "add");
    }
}
