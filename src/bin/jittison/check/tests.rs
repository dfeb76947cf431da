//! The language of rules, on a fake image with a few symbols.

use super::rules::NoRules;
use super::*;

/// An image of one file, `a.o`: blocks by address, symbols by name.
struct FakeImage {
    blocks: Vec<(u64, Vec<u8>)>,
    symbols: Vec<(&'static str, u64)>,
}

const CODE: u64 = 0x7f00_0000_0000;
const DATA: u64 = 0x7f00_0000_8000;
const BSS: u64 = 0x7f00_0000_9000;
const GOT: u64 = 0x7f00_0000_a000;
const STUBS: u64 = 0x7f00_0000_b000;
const FAR: u64 = 0x40_1000;

impl FakeImage {
    fn new() -> FakeImage {
        // load: mov 0x1234(%rip), %rax; call: call -0x10; back: lock incl (%rax)
        let code = [0x48, 0x8b, 0x05, 0x34, 0x12, 0, 0, 0xe8, 0xf0, 0xff, 0xff, 0xff, 0xf0, 0xff, 0x00].to_vec();
        let mut data = vec![0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88];
        data.extend(DATA.to_le_bytes());
        let blocks = vec![(CODE, code), (DATA, data), (BSS, vec![0; 16]), (GOT, FAR.to_le_bytes().to_vec())];
        let symbols = vec![
            ("load", CODE),
            ("call", CODE + 7),
            ("back", CODE + 12),
            ("data", DATA),
            ("pointer", DATA + 8),
            ("bss", BSS),
            ("far", FAR),
            ("top", u64::MAX),
            ("_Z1$.a:b", 1),
        ];
        FakeImage { blocks, symbols }
    }

    fn of_file<T>(file: &str, found: Option<T>, missing: String) -> Result<T, String> {
        if file != "a.o" {
            return Err(format!("no file `{file}`"));
        }
        found.ok_or(missing)
    }
}

impl Image for FakeImage {
    fn machine(&self) -> u16 {
        62
    }

    fn symbol(&self, name: &str) -> Option<u64> {
        self.symbols.iter().find(|(known, _)| *known == name).map(|(_, address)| *address)
    }

    fn bytes_at(&self, address: u64) -> Option<&[u8]> {
        self.blocks.iter().find_map(|(start, bytes)| {
            let offset = usize::try_from(address.checked_sub(*start)?).ok()?;
            bytes.get(offset..).filter(|rest| !rest.is_empty())
        })
    }

    fn section(&self, file: &str, section: &str) -> Result<u64, String> {
        let found = [(".text", CODE), (".data", DATA), ("odd name, of $things", BSS)];
        let found = found.iter().find(|(name, _)| *name == section).map(|(_, address)| *address);
        FakeImage::of_file(file, found, format!("no section `{section}` in `{file}`"))
    }

    fn got_entry(&self, file: &str, symbol: &str) -> Result<u64, String> {
        let missing = format!("no GOT entry for `{symbol}` in `{file}`");
        FakeImage::of_file(file, (symbol == "far").then_some(GOT), missing)
    }

    fn stub(&self, file: &str, symbol: &str) -> Result<u64, String> {
        let missing = format!("no stub for `{symbol}` in `{file}`");
        FakeImage::of_file(file, (symbol == "far").then_some(STUBS), missing)
    }
}

fn failures(source: &str) -> Vec<Failure> {
    check(&Rules::parse(source).expect("there are rules"), &FakeImage::new())
}

fn failures_of(rule: &str) -> Vec<Failure> {
    failures(&format!("# jitlink-check: {rule}\n"))
}

#[track_caller]
fn holds(rule: &str) {
    let failures = failures_of(rule);
    assert!(failures.is_empty(), "{}", failures[0]);
}

/// The column within the rule, from 1, and the error message.
#[track_caller]
fn error_of(rule: &str) -> (usize, String) {
    let failures = failures_of(rule);
    match &failures[..] {
        [Failure { column, cause: Cause::Error(message), .. }] => (column - "# jitlink-check: ".len(), message.clone()),
        _ => panic!("{rule}: {failures:?}"),
    }
}

#[track_caller]
fn assert_error(rule: &str, column: usize, part: &str) {
    let (at, message) = error_of(rule);
    assert!(message.contains(part), "{rule}: {message}");
    assert_eq!(at, column, "{rule}: {message}");
}

#[test]
fn operators_are_evaluated_from_left_to_right_without_precedence() {
    holds("1 + 2 << 3 = 24");
    holds("1 << 2 + 3 = 7");
    holds("0xf0 | 0x0f & 0x3c = 0x3c");
    holds("100 - 10 - 1 = 89");
    holds("256 >> 4 - 1 & 0x7 | 8 = 15");
}

#[test]
fn parentheses_are_evaluated_first() {
    holds("1 + (2 << 3) = 17");
    holds("100 - (10 - 1) = 91");
    holds("((7)) = (((7)))");
}

#[test]
fn numbers_are_decimal_hexadecimal_or_octal() {
    holds("0x1F = 31");
    holds("0xfF = 255");
    holds("010 = 8");
    holds("0 = 0x0");
    holds("18446744073709551615 = 0xffffffffffffffff");
    holds("1+2=3");
}

#[test]
fn sums_wrap_around() {
    holds("0 - 1 = 0xffffffffffffffff");
    holds("top + 2 = 1");
    holds("1 << 63 << 1 = 0");
}

#[test]
fn a_slice_takes_bits_of_the_term_before_it() {
    holds("0xabcd[11:4] = 0xbc");
    holds("0xff + 0xabcd[3:0] = 0x10c");
    holds("(0xff + 0xabcd)[7:0] = 0xcc");
    holds("data[63:0] = data");
    holds("0x8000000000000000[63:63] = 1");
    holds("decode_operand(call, 0)[31:0] = 0xfffffff0");
}

#[test]
fn a_load_is_little_endian_and_its_address_is_the_entire_chain_after_it() {
    holds("*{1}data = 0x11");
    holds("*{2}data = 0x2211");
    holds("*{3}data = 0x332211");
    holds("*{8}data = 0x8877665544332211");
    holds("*{4}data + 4 = 0x88776655");
    holds("(*{4}data) + 4 = 0x44332215");
    holds("*{1}data + 1 << 0 = 0x22");
    holds("* { 4 } (data + 2) = 0x66554433");
}

#[test]
fn a_slice_after_a_load_is_part_of_the_address() {
    holds("*{2}data[63:0] = 0x2211");
    holds("(*{2}data)[7:4] = 1");
}

#[test]
fn loads_nest() {
    holds("*{8}pointer = data");
    holds("*{1}*{8}pointer = 0x11");
    holds("*{1}(*{8}pointer) + 2 = 0x33");
    holds("*{2}data + ((*{1}data) - 0x10) + 2 = 0x5544");
}

#[test]
fn a_name_is_an_address_inside_and_outside_a_load() {
    holds("data = 0x7f0000008000");
    holds("far = 0x401000");
    holds("*{8}pointer = data + *{1}bss");
    holds("*{4}(data + (call - load) - 7) = 0x44332211");
    holds("_Z1$.a:b = 1");
}

#[test]
fn zero_fill_reads_as_zeroes() {
    holds("*{8}bss = 0");
    holds("bss = 0x7f0000009000");
}

#[test]
fn instructions_are_decoded() {
    holds("decode_operand(load, 4) = 0x1234");
    holds("decode_operand(load, 2) = 1");
    holds("next_pc(load) = call");
    holds("decode_operand(call, 0) = load - next_pc(call) - 4");
    holds("decode_operand(load + 7, 0) = 0 - 0x10");
    holds("decode_operand( call - 7 , 4 ) = 0x1234");
    holds("next_pc(load + 7) = call + 5");
    holds("*{1}next_pc(load) = 0xe8");
}

#[test]
fn got_slots_stubs_and_sections_are_found_by_file() {
    holds("*{8}(got_addr(a.o, far)) = far");
    holds("*{8}got_addr( a.o , far ) = far");
    holds("stub_addr(a.o, far) = 0x7f000000b000");
    holds("section_addr(a.o, .data) + 8 = pointer");
    holds("section_addr(a.o, odd name, of $things) = bss");
}

#[test]
fn the_message_for_a_false_rule_has_both_values_and_the_parts() {
    let failures = failures_of("*{1}data + 1 = decode_operand(load, 4) - (data - data) + 2");
    let Cause::Unequal { left, right, ref parts } = failures[0].cause else { panic!("{}", failures[0]) };
    assert_eq!((left, right), (0x22, 0x1236));
    let parts: Vec<(&str, u64)> = parts.iter().map(|(part, value)| (part.as_str(), *value)).collect();
    assert_eq!(parts, [("data", DATA), ("*{1}data + 1", 0x22), ("decode_operand(load, 4)", 0x1234)]);
    assert_eq!(
        failures[0].to_string(),
        "1:18: 0x22 is not 0x1236\n  in *{1}data + 1 = decode_operand(load, 4) - (data - data) + 2\n  \
         data is 0x7f0000008000\n  *{1}data + 1 is 0x22\n  decode_operand(load, 4) is 0x1234"
    );
}

#[test]
fn the_message_for_something_missing_names_it_and_its_column() {
    assert_error("data = nothing + 1", 8, "no symbol `nothing`");
    assert_error("next_pc(nothing) = 0", 9, "no symbol `nothing`");
    assert_error("1 = got_addr(b.o, far)", 14, "no file `b.o`");
    assert_error("1 = got_addr(a.o, data)", 14, "no GOT entry for `data` in `a.o`");
    assert_error("1 = stub_addr(a.o, data)", 15, "no stub for `data` in `a.o`");
    assert_error("1 = section_addr(a.o, .bss)", 18, "no section `.bss` in `a.o`");
    assert_error("1 + *{4}far = 1", 5, "cannot load 4 bytes at 0x401000: the link has 0 bytes there");
    assert_error("*{8}data + 12 = 1", 1, "the link has 4 bytes there");
    assert_error("next_pc(far) = 1", 9, "no linked code at 0x401000");
}

#[test]
fn an_operand_that_is_not_a_number_is_an_error() {
    assert_error("decode_operand(load, 0) = 1", 16, "operand 0 of this `mov` is a register");
    assert_error("decode_operand(load, 0) = 1", 16, "register, register, 0x1, register, 0x1234, register");
    assert_error("decode_operand(call, 1) = 1", 16, "this `call` has 1 operands, so there is no operand 1");
    assert_error("decode_operand(load, 0xffffffffffffffff) = 1", 16, "no operand 18446744073709551615");
    assert_error("decode_operand(bss + 15, 0) = 1", 16, "no complete instruction at");
    assert_error("decode_operand(back, 3) = 1", 16, "are not known");
    assert_error("next_pc(back) = 1", 9, "a separate instruction");
}

#[test]
fn the_message_for_a_syntax_error_has_its_column() {
    assert_error("data", 5, "expected `=`, found the end");
    assert_error("data = ", 7, "expected a number, a name, `*{` or `(`, found the end");
    assert_error("data == 1", 7, "found `=`");
    assert_error("1 = 1 = 1", 7, "expected the end of the rule, found `=`");
    assert_error("1 ^ 2 = 3", 3, "expected `=`, found `^`");
    assert_error("(1 = 1", 4, "expected `)`, found `=`");
    assert_error("1 + = 1", 5, "expected a number");
    assert_error("*4data = 1", 2, "expected `{`");
    assert_error("*{9}data = 1", 3, "a load has 1 to 8 bytes, not 9");
    assert_error("*{0}data = 1", 3, "a load has 1 to 8 bytes, not 0");
    assert_error("*{4data = 1", 3, "`4data` is not a number");
    assert_error("08 = 8", 1, "`08` is not a number of 64 bits");
    assert_error("12ab = 8", 1, "`12ab` is not a number of 64 bits");
    assert_error("0x = 8", 1, "`0x` is not a number of 64 bits");
    assert_error("18446744073709551616 = 0", 1, "is not a number of 64 bits");
    assert_error("data[3:4] = 0", 5, "bits 3 to 4");
    assert_error("data[64:0] = 0", 5, "bits 64 to 0");
    assert_error("data[3] = 0", 7, "expected `:`");
    assert_error("data[7:0][3:0] = 0", 10, "expected `=`, found `[`");
    assert_error("decode_operand = 0", 16, "expected `(`");
    assert_error("decode_operand(load & 1, 0) = 0", 21, "expected `,`, found `&`");
    assert_error("decode_operand(load, far) = 0", 22, "expected a number, found `f`");
    assert_error("next_pc(load, 1) = 0", 13, "expected `)`");
    assert_error("got_addr(a.o) = 0", 10, "expected a file and `,`");
    assert_error("got_addr(, far) = 0", 10, "expected a file before `,`");
    assert_error("stub_addr(a.o, far, kind) = 0", 19, "expected `)`");
    assert_error("section_addr(a.o, .text = 0", 19, "expected a section and `)`");
    assert_error("größe = 0", 3, "found `ö`");
    assert_error("1 << 64 = 0", 6, "a shift by 64 is out of range");
    assert_error("1 >> top = 0", 6, "a shift by 18446744073709551615 is out of range");
}

#[test]
fn nesting_is_limited() {
    let nested = |depth| format!("{}1{} = 1", "(".repeat(depth), ")".repeat(depth));
    holds(&nested(64));
    assert_error(&nested(65), 65, "nested more than 64 deep");
    assert!(error_of(&"*{1}(".repeat(100_000)).1.contains("nested"));
    assert!(failures_of(&format!("1{} = 100001", "+1".repeat(100_000))).is_empty(), "a long chain is not nested");
}

#[test]
fn a_rule_needs_a_comment_leader_and_nothing_else_before_it() {
    let source = "\n\t.text # jitlink-check: 1 = 2\n  # jitlink-check: 1 = 3\n// jitlink-check: 1 = 4\r\n;; jitlink-check: 1 = 5\n\
                  # Say `# jitlink-check: 1 = 6` for a rule.\njitlink-check: 1 = 7\n#jitlink-check:1 = 8\n# llvm-jitlink: 1 = 9\n";
    let failures = failures(source);
    let found: Vec<(usize, usize, &str)> =
        failures.iter().map(|failure| (failure.line, failure.column, failure.rule.as_str())).collect();
    assert_eq!(found, [(3, 20, "1 = 3"), (4, 19, "1 = 4"), (5, 19, "1 = 5"), (8, 16, "1 = 8")]);
}

#[test]
fn a_backslash_continues_a_rule_in_the_next_rule_line() {
    let rules = "# jitlink-check: data + \\\n\n#   jitlink-check:   (1 + \\\n// jitlink-check: nothing) = 0\n";
    let failures = failures(rules);
    assert_eq!(failures.len(), 1);
    assert_eq!(failures[0].rule, "data + (1 + nothing) = 0");
    assert_eq!((failures[0].line, failures[0].column), (4, 19));
}

#[test]
fn a_backslash_without_a_next_rule_line_is_an_error() {
    for source in ["# jitlink-check: 1 = 1 \\\n\tnop\n", "# jitlink-check: 1 = 1 \\", "# jitlink-check: 1 = 1 \\\n\n"] {
        let failures = failures(source);
        assert!(failures[0].to_string().contains("no `jitlink-check:` line follows"), "{}", failures[0]);
        assert_eq!((failures[0].line, failures[0].column), (1, 23));
    }
}

#[test]
fn every_rule_is_checked_even_if_others_fail() {
    let source = "# jitlink-check: 1 = 1\n# jitlink-check: oops(\n# jitlink-check:\n# jitlink-check: 1 = 2\n";
    let lines: Vec<usize> = failures(source).iter().map(|failure| failure.line).collect();
    assert_eq!(lines, [2, 3, 4]);
}

#[test]
fn a_file_without_rules_is_an_error() {
    assert_eq!(Rules::parse("\t.text\n# nothing to check\n").err(), Some(NoRules));
    assert_eq!(NoRules.to_string(), "there is no rule: no line begins with `# jitlink-check:`");
}

/// The texts are random sequences of the tokens of the language.
#[test]
fn no_text_makes_the_parser_or_the_evaluator_panic() {
    const PIECES: [&str; 40] = [
        "data",
        "load",
        "call",
        "back",
        "far",
        "top",
        "bss",
        "pointer",
        "nothing",
        "0",
        "1",
        "4",
        "64",
        "0xffffffffffffffff",
        "=",
        "+",
        "-",
        "&",
        "|",
        "<<",
        ">>",
        "(",
        ")",
        "*{",
        "*",
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        "decode_operand(",
        "next_pc(",
        "got_addr(a.o,",
        "stub_addr(",
        "section_addr(a.o,.text)",
        " ",
        "\\",
        "é",
        "*{8}",
    ];
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = |limit: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % limit as u64) as usize
    };
    let image = FakeImage::new();
    for _ in 0..50_000 {
        let length = next(12);
        let text: String = (0..length).map(|_| PIECES[next(PIECES.len())]).collect();
        if let Ok(rules) = Rules::parse(&format!("# jitlink-check: {text}")) {
            check(&rules, &image).iter().for_each(|failure| assert!(!failure.to_string().is_empty()));
        }
    }
}
