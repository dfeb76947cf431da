//! Objects to link: one like those of a query compiler (small: five functions, about forty relocations), and one with
//! 500 functions (medium) or any other number. Each instance has its own names and its own value.

use std::fmt::Write as _;

use jittison::link::ObjectBuffer;

/// The objects, and the library that they call.
pub struct Objects {
    pub runtime: Vec<u8>,
    pub small: Template,
    pub medium: Template,
}

/// An object from which instances are made by patching names and a value.
pub struct Template {
    bytes: Vec<u8>,
    /// The positions of the names that differ between instances.
    names: Vec<usize>,
    seed: usize,
    /// The result of the entry for 7, without the seed.
    result: u64,
}

/// An object with its own names.
pub struct Instance {
    pub bytes: ObjectBuffer,
    pub entry: String,
    /// The result of the entry for 7.
    pub expected: u64,
}

/// Compiles the objects. `None` without a compiler.
pub fn build() -> Option<Objects> {
    build_with(&[])
}

/// The same code with one section per function, for linkers that take functions and not objects.
pub fn build_by_function() -> Option<Objects> {
    build_with(&["-ffunction-sections"])
}

fn build_with(flags: &[&str]) -> Option<Objects> {
    Some(Objects {
        runtime: compile(RUNTIME, flags)?,
        small: Template::new(compile(SMALL, flags)?),
        medium: Template::new(compile(&functions(500), flags)?),
    })
}

/// Like the medium object, with `count` functions. They call each other, the library and the C library, with about six
/// relocations each. `None` without a compiler.
pub fn of_functions(count: u32) -> Option<Template> {
    Some(Template::new(compile(&functions(count), &[])?))
}

/// The small object without `.eh_frame`: exceptions cannot cross its code. `None` without a compiler.
pub fn small_without_unwind_tables() -> Option<Template> {
    Some(Template::new(compile(SMALL, &["-fno-asynchronous-unwind-tables", "-fno-unwind-tables"])?))
}

impl Template {
    fn new(bytes: Vec<u8>) -> Template {
        let positions = |pattern: &[u8]| -> Vec<usize> {
            (0..bytes.len() - pattern.len()).filter(|at| bytes[*at..].starts_with(pattern)).collect()
        };
        let (names, seed) = (positions(MARK.as_bytes()), positions(&SEED.to_le_bytes()));
        assert!(!names.is_empty() && seed.len() == 1, "the object has the names, and the seed exactly once");
        let mut template = Template { bytes, names, seed: seed[0], result: 0 };
        template.result = template.first_result();
        template
    }

    /// Links and calls the first instance to find the result.
    fn first_result(&self) -> u64 {
        let jit = jittison::Jit::new().unwrap();
        let tracker = jit.main_dylib().create_tracker().unwrap();
        let instance = self.instance(0);
        jit.add_object(&tracker, "runtime.o", compile(RUNTIME, &[]).unwrap()).unwrap();
        jit.add_object(&tracker, "first.o", instance.bytes).unwrap();
        // SAFETY: the signature in the source.
        let run = unsafe { jit.lookup::<extern "C" fn(u64) -> u64>(&instance.entry) }.unwrap();
        run.call(7) ^ SEED
    }

    pub fn instance(&self, number: u32) -> Instance {
        let (mut bytes, name) = (self.bytes.clone(), format!("M{number:08x}"));
        for at in &self.names {
            bytes[*at..at + name.len()].copy_from_slice(name.as_bytes());
        }
        let value = SEED ^ u64::from(number);
        bytes[self.seed..self.seed + 8].copy_from_slice(&value.to_le_bytes());
        Instance { bytes: ObjectBuffer::from(bytes), entry: format!("{name}_run"), expected: self.result ^ value }
    }
}

fn compile(source: &str, flags: &[&str]) -> Option<Vec<u8>> {
    crate::gcc(&[&["-O2", "-fPIC"], flags].concat(), source)
}

fn functions(count: u32) -> String {
    let mut text = String::from(
        "#include <stdint.h>\n#include <string.h>\n\
         extern uint64_t rt_hash(uint64_t); extern void rt_emit(uint64_t *, uint64_t);\n\
         uint64_t M00000000_seed = 0x7a51b3c9d2e4f680ull; uint64_t M00000000_shared[64];\n\
         static uint64_t own[256]; static const uint64_t table[8] = { 3, 1, 4, 1, 5, 9, 2, 6 };\n",
    );
    for number in 0..count {
        let (shared, slot, factor) = (number * 7 % 64, number * 13 % 256, number % 241 + 3);
        let callee = number.saturating_sub(1 + number * 5 % 37);
        let call = if number < 2 {
            String::new()
        } else {
            format!("if ((x & 31) == {}) x += M00000000_f{callee}(x >> 3, sum);", number % 16)
        };
        let extra = match number % 5 {
            0 => "rt_emit(sum, x);".to_string(),
            1 => "x ^= rt_hash(x);".to_string(),
            2 => "if (memcmp(sum, table, x & 7)) x += 3; rt_emit(sum, x);".to_string(),
            3 => "x += table[x >> 5 & 7];".to_string(),
            _ => format!("own[{slot}] ^= x; x ^= own[{}];", slot * 7 % 256),
        };
        let _ = writeln!(
            text,
            "uint64_t M00000000_f{number}(uint64_t x, uint64_t *sum) {{\n\
             x = x * {factor} + table[x >> 9 & 7]; if (x & 1) x ^= M00000000_shared[{shared}] + {factor};\n\
             {call} {extra} return x ^ x >> {}; }}",
            number % 26 + 5
        );
    }
    text.push_str("static uint64_t (*const all[16])(uint64_t, uint64_t *) = {");
    (0..16).for_each(|number| text.push_str(&format!("M00000000_f{},", (number * 31 + 2) % count)));
    text.push_str(
        "};\nuint64_t M00000000_run(uint64_t x) { uint64_t sum = 0; memset(own, 0, sizeof own);\n\
         for (int i = 0; i < 16; i++) x += all[i](x + i, &sum); return x ^ sum ^ M00000000_seed; }\n",
    );
    text
}

/// The placeholder in all names that each instance replaces by its number.
const MARK: &str = "M00000000";
const SEED: u64 = 0x7a51_b3c9_d2e4_f680;

const SMALL: &str = r#"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
extern uint64_t rt_hash(uint64_t); extern void rt_emit(uint64_t *, uint64_t);
uint64_t M00000000_seed = 0x7a51b3c9d2e4f680ull;
static uint64_t hits[12];
static const uint64_t weights[16] = { 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610, 987, 1597 };
static const char *const texts[4] = { "1234", "98765", "555", "77" };
uint64_t M00000000_filter(const uint64_t *rows, long count, uint64_t key) {
    uint64_t sum = 0, least = ~0ull, most = 0;
    for (long row = 0; row < count; row++)
        if ((rows[row] & 255) < (key & 255)) { sum += rows[row] * 7; hits[row & 3]++; } else sum ^= weights[row & 15];
    for (long row = 1; row < count; row += 3) {
        uint64_t value = rt_hash(rows[row] ^ sum);
        if (value < least) least = value;
        if (value > most) { most = value; hits[1] += row; }
        switch (value % 7) {
            case 0: sum += 31; break; case 1: sum ^= least; break; case 2: sum *= 17; break;
            case 3: rt_emit(&sum, most); break; case 4: sum -= value >> 7; break; default: sum = sum << 3 | sum >> 61;
        }
    }
    return sum ^ (most - least);
}
uint64_t M00000000_probe(const uint64_t *rows, long count) {
    uint64_t sum = 5;
    for (long row = 0; row < count; row += 2) { uint64_t hash = rt_hash(rows[row] + 3); rt_emit(&sum, hash + weights[hash & 15]); }
    return sum;
}
uint64_t M00000000_compare(const uint64_t *left, const uint64_t *right, long count) {
    int order = memcmp(left, right, count * 8);
    return order < 0 ? 11 : order > 0 ? 13 : left[0] * 5;
}
uint64_t M00000000_parse(int which) {
    char *end = 0;
    switch (which & 3) {
        case 0: return strtoul(texts[0], &end, 10) + 1;
        case 1: return strtoul(texts[1], &end, 10) ^ 0x5a;
        case 2: return strtoul(texts[2], &end, 0) * 9;
        default: return strtoul(texts[3], 0, 16) - 4;
    }
}
uint64_t M00000000_run(uint64_t x) {
    uint64_t rows[24], sum = 0;
    for (int row = 0; row < 24; row++) rows[row] = x * weights[row & 15] + row;
    rt_emit(&sum, M00000000_filter(rows, 24, x));
    rt_emit(&sum, M00000000_probe(rows, 24));
    rt_emit(&sum, M00000000_compare(rows, rows + 12, 12));
    for (int which = 0; which < 4; which++) rt_emit(&sum, M00000000_parse(which + (int)x));
    return sum ^ M00000000_seed;
}
"#;

const RUNTIME: &str = "#include <stdint.h>\n\
    uint64_t rt_rows; uint64_t rt_hash(uint64_t x) { x ^= x >> 33; x *= 0xff51afd7ed558ccdull; return x ^ x >> 29; }\n\
    void rt_emit(uint64_t *sum, uint64_t value) { *sum = (*sum << 7 | *sum >> 57) ^ value; rt_rows++; }\n";
