//! Machine code that an assembler made goes straight into a session: no object file.
//!
//! ```text
//! cargo run --release --example assembler
//! ```
//!
//! `iced-x86` encodes a function that evaluates a polynomial by Horner's rule. Its coefficients are a block of constants, and
//! it counts its calls through a function of this program. A graph has both blocks, the symbols and the edges between them.

use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};

use iced_x86::{Code, Encoder, Instruction, MemoryOperand, Register};
use jittison::base::{ExecutorAddr, Name};
use jittison::link::{Edge, EdgeKind, GraphBuilder, NewBlock, NewSymbol, SymbolIndex};
use jittison::session::SymbolFlags;
use jittison::{Jit, ResourceTracker};

static CALLS: AtomicU64 = AtomicU64::new(0);

extern "C" fn count_call() {
    CALLS.fetch_add(1, Ordering::Relaxed);
}

fn main() -> Result<(), Box<dyn Error>> {
    let jit = Jit::new()?;
    let counter = ExecutorAddr::new(count_call as *const () as u64);
    let host = jit.main_dylib().create_tracker()?;
    host.define_absolute([(Name::new("count_call"), counter, SymbolFlags::EXPORTED | SymbolFlags::CALLABLE)])?;
    let mut at_first = None;
    for round in 0..1000u64 {
        let coefficients = [round, 3, 0, 2];
        let tracker = jit.main_dylib().create_tracker()?;
        assemble(&jit, &tracker, &coefficients)?;
        // Safety: the function has this signature, and all that was added may run.
        let polynomial = unsafe { jit.lookup::<extern "C" fn(u64) -> u64>("polynomial")? };
        for x in [0, 1, 10, u64::MAX] {
            let expected = coefficients.iter().fold(0u64, |sum, next| sum.wrapping_mul(x).wrapping_add(*next));
            assert_eq!(polynomial.call(x), expected, "{coefficients:?} at {x}");
        }
        drop(polynomial);
        assert!(tracker.remove()?.is_complete());
        let live = jit.memory_statistics().live_bytes;
        assert_eq!(*at_first.get_or_insert(live), live, "round {round} left code");
    }
    let calls = CALLS.load(Ordering::Relaxed);
    println!("assembler: 1000 functions linked and removed, {calls} calls as computed, memory is flat");
    Ok(())
}

/// Links `polynomial(x)`, which calls `count_call` and returns `((c0 * x + c1) * x + c2) * x + …`.
fn assemble(jit: &Jit, tracker: &ResourceTracker, coefficients: &[u64]) -> Result<(), Box<dyn Error>> {
    let mut graph = GraphBuilder::new("polynomial");
    let bytes: Vec<u8> = coefficients.iter().flat_map(|number| number.to_le_bytes()).collect();
    let constants = graph.add_block(NewBlock::constants(&bytes[..]).with_align(8));
    let constants = graph.add_symbol(NewSymbol::local("coefficients", constants, 0));
    let count_call = graph.add_external("count_call");

    let mut code = Assembled { encoder: Encoder::new(64), edges: Vec::new(), size: 0 };
    use Register::{RAX, RDI, RIP};
    code.add(Instruction::with1(Code::Push_r64, RDI)?, None)?;
    code.add(Instruction::with_branch(Code::Call_rel32_64, 0)?, Some((count_call, EdgeKind::Branch32, -4)))?;
    code.add(Instruction::with1(Code::Pop_r64, RDI)?, None)?;
    code.add(Instruction::with2(Code::Xor_r32_rm32, Register::EAX, Register::EAX)?, None)?;
    for index in 0..coefficients.len() as i64 {
        code.add(Instruction::with2(Code::Imul_r64_rm64, RAX, RDI)?, None)?;
        let field = MemoryOperand::with_base_displ(RIP, 0);
        let add = Instruction::with2(Code::Add_r64_rm64, RAX, field)?;
        code.add(add, Some((constants, EdgeKind::Delta32, 8 * index - 4)))?;
    }
    code.add(Instruction::with(Code::Retnq), None)?;

    let (edges, size) = (code.edges, code.size);
    let text = graph.add_block(NewBlock::code(code.encoder.take_buffer()).with_align(16));
    graph.set_edges(text, &edges);
    graph.add_symbol(NewSymbol::function("polynomial", text, 0).with_size(size));
    jit.link_graph(tracker, graph.finish()?)?;
    Ok(())
}

/// Instructions, and the edges of their last four bytes.
struct Assembled {
    encoder: Encoder,
    edges: Vec<Edge>,
    size: u64,
}

impl Assembled {
    /// Adds an instruction. Its last four bytes refer to `target`, if there is one: a symbol, how, and an addend.
    fn add(
        &mut self,
        instruction: Instruction,
        target: Option<(SymbolIndex, EdgeKind, i64)>,
    ) -> Result<(), Box<dyn Error>> {
        self.size += self.encoder.encode(&instruction, self.size)? as u64;
        if let Some((symbol, kind, addend)) = target {
            self.edges.push(Edge { offset: self.size as u32 - 4, kind, symbol, addend });
        }
        Ok(())
    }
}
