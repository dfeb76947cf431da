//! Random programs: arithmetic of one type, with branches, loops, jump tables and stack slots.

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{
    Block, InstBuilder, JumpTableData, MemFlagsData, StackSlotData, StackSlotKind, Type, Value, types,
};
use cranelift_frontend::{FunctionBuilder, Switch, Variable};

use crate::code::{Corpus, load, store};

/// The programs of each type.
const PROGRAMS: u64 = 8;
/// The statements of a program.
const STATEMENTS: u32 = 14;

/// Makes the programs.
pub fn add(corpus: &mut Corpus<'_>) {
    use types::*;
    let kinds = [I8, I16, I32, I64, I128, F32, F64, I8X16, I16X8, I32X4, I64X2, F32X4, F64X2];
    for (kind, first) in kinds.into_iter().zip((0..).step_by(1000)) {
        for number in 0..PROGRAMS {
            let name = format!("program_{kind}_{number}");
            corpus.case(&name, |corpus| {
                corpus.entry(&name, &|_, code, values| program(code, kind, values, first + number))
            });
        }
    }
}

fn program(code: &mut FunctionBuilder<'_>, kind: Type, values: &[Value], seed: u64) {
    let variables = [(); 4].map(|()| code.declare_var(kind));
    for (variable, index) in variables.iter().zip(0..) {
        let value = load(code, kind, values[0], index);
        code.def_var(*variable, value);
    }
    let condition = load(code, types::I32, values[0], 3);
    let mut writer = Writer { code, kind, variables, condition, random: Random(seed) };
    (0..STATEMENTS).for_each(|_| writer.statement(2));
    for (variable, index) in variables.iter().zip(0..) {
        let value = code.use_var(*variable);
        store(code, value, values[1], index);
    }
}

/// A sequence that is the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

struct Writer<'a, 'b> {
    code: &'a mut FunctionBuilder<'b>,
    kind: Type,
    variables: [Variable; 4],
    /// A number of the input.
    condition: Value,
    random: Random,
}

impl Writer<'_, '_> {
    fn any(&mut self) -> Variable {
        self.variables[self.random.below(4) as usize]
    }

    fn value(&mut self) -> Value {
        let variable = self.any();
        self.code.use_var(variable)
    }

    /// Writes a statement. `depth` is how deep branches may nest.
    fn statement(&mut self, depth: u32) {
        match self.random.below(10) {
            0 if depth > 0 => self.branch(depth),
            1 if depth > 0 => self.repeat(depth),
            2 if depth > 0 => self.jump_table(depth),
            3 => self.stack_slot(),
            _ => self.assignment(),
        }
    }

    fn assignment(&mut self) {
        let (a, b, c) = (self.value(), self.value(), self.value());
        let result = match (self.kind.is_vector(), self.kind.is_float()) {
            (false, false) => self.integer(a, b),
            (false, true) => self.float(a, b, c),
            (true, _) if self.kind.lane_type().is_float() => self.float_vector(a, b),
            (true, _) => self.integer_vector(a, b),
        };
        let target = self.any();
        self.code.def_var(target, result);
    }

    fn integer(&mut self, a: Value, b: Value) -> Value {
        let (kind, choice) = (self.kind, self.random.below(24));
        let is_wide = kind == types::I128;
        let code = self.code.ins();
        match choice {
            0 => code.iadd(a, b),
            1 => code.isub(a, b),
            2 => code.imul(a, b),
            3 => code.band(a, b),
            4 => code.bor(a, b),
            5 => code.bxor(a, b),
            6 => code.bnot(a),
            7 => code.ineg(a),
            8 => code.rotl(a, b),
            9 => code.rotr(a, b),
            10 => code.ishl(a, b),
            11 => code.ushr(a, b),
            12 => code.sshr(a, b),
            13 => code.clz(a),
            14 => code.ctz(a),
            15 => code.popcnt(a),
            16 => code.bitrev(a),
            17 if kind != types::I8 => code.bswap(a),
            18 if !is_wide => code.umax(a, b),
            19 if !is_wide => code.smin(a, b),
            20 | 21 if !is_wide => {
                // A small divisor that is not zero, and not minus one.
                let small = self.code.ins().band_imm_u(b, 0x3e);
                let divisor = self.code.ins().bor_imm_u(small, 1);
                match choice {
                    20 => self.code.ins().udiv(a, divisor),
                    _ => self.code.ins().srem(a, divisor),
                }
            }
            22 if kind.bits() < 64 => {
                let (a, b) = (self.code.ins().sextend(types::I64, a), self.code.ins().uextend(types::I64, b));
                let product = self.code.ins().imul(a, b);
                let high = self.code.ins().ushr_imm_u(product, 3);
                self.code.ins().ireduce(kind, high)
            }
            _ => {
                let is_less = code.icmp(IntCC::SignedLessThan, a, b);
                self.code.ins().select(is_less, b, a)
            }
        }
    }

    fn float(&mut self, a: Value, b: Value, c: Value) -> Value {
        let (kind, choice) = (self.kind, self.random.below(19));
        let code = self.code.ins();
        match choice {
            0 => code.fadd(a, b),
            1 => code.fsub(a, b),
            2 => code.fmul(a, b),
            3 => code.fdiv(a, b),
            4 => code.sqrt(a),
            5 => code.fneg(a),
            6 => code.fabs(a),
            7 => code.fmin(a, b),
            8 => code.fmax(a, b),
            9 => code.fcopysign(a, b),
            10 => code.ceil(a),
            11 => code.floor(a),
            12 => code.trunc(a),
            13 => code.nearest(a),
            14 => code.fma(a, b, c),
            15 => {
                let number = code.fcvt_to_sint_sat(types::I32, a);
                self.code.ins().fcvt_from_sint(kind, number)
            }
            16 => {
                let number = code.fcvt_to_uint_sat(types::I64, a);
                self.code.ins().fcvt_from_uint(kind, number)
            }
            17 => match kind {
                types::F32 => {
                    let wide = code.fpromote(types::F64, a);
                    let root = self.code.ins().sqrt(wide);
                    self.code.ins().fdemote(types::F32, root)
                }
                _ => {
                    let narrow = code.fdemote(types::F32, a);
                    self.code.ins().fpromote(types::F64, narrow)
                }
            },
            _ => {
                let is_less = code.fcmp(FloatCC::LessThan, a, b);
                self.code.ins().select(is_less, b, a)
            }
        }
    }

    fn integer_vector(&mut self, a: Value, b: Value) -> Value {
        let (kind, choice) = (self.kind, self.random.below(12));
        let is_narrow = kind.lane_bits() <= 16;
        let code = self.code.ins();
        match choice {
            0 => code.iadd(a, b),
            1 => code.isub(a, b),
            2 => code.band(a, b),
            3 => code.bxor(a, b),
            4 => code.bnot(a),
            5 => code.icmp(IntCC::SignedGreaterThan, a, b),
            6 if kind != types::I64X2 => code.umin(a, b),
            7 if is_narrow => code.uadd_sat(a, b),
            8 if kind != types::I8X16 => code.imul(a, b),
            9 if kind == types::I8X16 => code.swizzle(a, b),
            10 => {
                let lane = code.extractlane(a, 1);
                self.code.ins().splat(kind, lane)
            }
            _ => {
                let lane = code.extractlane(a, 0);
                self.code.ins().insertlane(b, lane, 1)
            }
        }
    }

    fn float_vector(&mut self, a: Value, b: Value) -> Value {
        let (kind, choice) = (self.kind, self.random.below(10));
        let code = self.code.ins();
        match choice {
            0 => code.fadd(a, b),
            1 => code.fsub(a, b),
            2 => code.fmul(a, b),
            3 => code.fdiv(a, b),
            4 => code.sqrt(a),
            5 => code.fmin(a, b),
            6 => code.floor(a),
            7 => code.fneg(a),
            _ => {
                let lane = code.extractlane(a, 1);
                self.code.ins().splat(kind, lane)
            }
        }
    }

    fn branch(&mut self, depth: u32) {
        let mask = 1 << self.random.below(8);
        let bit = self.code.ins().band_imm_u(self.condition, mask);
        let [then, other, end] = [(); 3].map(|()| self.code.create_block());
        self.code.ins().brif(bit, then, &[], other, &[]);
        for block in [then, other] {
            self.code.switch_to_block(block);
            self.statement(depth - 1);
            self.code.ins().jump(end, &[]);
        }
        self.code.switch_to_block(end);
    }

    fn repeat(&mut self, depth: u32) {
        let counter = self.code.declare_var(types::I32);
        let count = 1 + self.random.below(4) as i64;
        let start = self.code.ins().iconst(types::I32, count);
        self.code.def_var(counter, start);
        let [body, end] = [(); 2].map(|()| self.code.create_block());
        self.code.ins().jump(body, &[]);
        self.code.switch_to_block(body);
        self.statement(depth - 1);
        let left = self.code.use_var(counter);
        let left = self.code.ins().iadd_imm_s(left, -1);
        self.code.def_var(counter, left);
        self.code.ins().brif(left, body, &[], end, &[]);
        self.code.switch_to_block(end);
    }

    fn jump_table(&mut self, depth: u32) {
        let index = self.code.ins().band_imm_u(self.condition, 7);
        let blocks: Vec<Block> = (0..5).map(|_| self.code.create_block()).collect();
        let end = self.code.create_block();
        if self.random.below(2) == 0 {
            let lists = &mut self.code.func.dfg.value_lists;
            let calls: Vec<_> =
                blocks.iter().map(|block| cranelift_codegen::ir::BlockCall::new(*block, [], lists)).collect();
            let table = self.code.create_jump_table(JumpTableData::new(calls[4], &calls[..4]));
            self.code.ins().br_table(index, table);
        } else {
            let mut switch = Switch::new();
            (0..4).for_each(|case| switch.set_entry(case, blocks[case as usize]));
            switch.emit(self.code, index, blocks[4]);
        }
        for block in blocks {
            self.code.switch_to_block(block);
            self.statement(depth - 1);
            self.code.ins().jump(end, &[]);
        }
        self.code.switch_to_block(end);
    }

    fn stack_slot(&mut self) {
        let (size, value) = (self.kind.bytes(), self.value());
        let slot = self.code.create_sized_stack_slot(StackSlotData::new(StackSlotKind::ExplicitSlot, 2 * size, 4));
        let address = self.code.ins().stack_addr(types::I64, slot, size as i32);
        self.code.ins().store(MemFlagsData::new(), value, address, 0);
        let target = self.any();
        let loaded = self.code.ins().load(self.kind, MemFlagsData::new(), address, 0);
        self.code.def_var(target, loaded);
    }
}
