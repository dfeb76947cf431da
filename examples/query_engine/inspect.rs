//! One query from the command line: its rows, its size and its disassembly.

use std::io::{self, Write};

use crate::client::check;
use crate::codegen::Compiler;
use crate::data::Table;
use crate::engine::{Engine, LinkedQuery};
use crate::execute::execute;
use crate::interpret::interpret;
use crate::plan::plan;
use crate::value::Answer;
use crate::{Failure, sql};

/// Runs one query over the full table and prints it.
pub fn inspect(text: &str, table: &Table, engine: &Engine, assembly: bool) -> Result<(), Failure> {
    let query = sql::parse(text).map_err(Failure::Request)?;
    let plan = plan(&query, table).map_err(Failure::Request)?;
    let mut compiler = Compiler::new().map_err(Failure::Check)?;
    let compiled = compiler.compile("query", &plan, table).map_err(Failure::Check)?;
    let linked = engine.link("query", compiled.object).map_err(|error| Failure::Check(error.to_string()))?;
    let rows = 0..table.rows();
    // SAFETY: the function was compiled from this plan for this table.
    let answer = unsafe { execute(linked.function(), &plan, table, rows.clone()) };
    let expected = interpret(&query, table, rows.clone());
    check(&answer, &expected, table, text, &rows).map_err(Failure::Check)?;

    let mut out = io::BufWriter::new(io::stdout().lock());
    let printed = print(&mut out, &query.names, &answer, table, &linked).and_then(|()| {
        if assembly {
            disassemble(&mut out, &linked, compiled.function_bytes)?;
        }
        out.flush()
    });
    linked.remove().map_err(|error| Failure::Check(error.to_string()))?;
    match printed {
        // A reader that closes the pipe early is not a failure.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::Check(format!("the rows cannot be written: {error}")))
        }
        _ => Ok(()),
    }
}

fn print(
    out: &mut impl Write,
    names: &[String],
    answer: &Answer,
    table: &Table,
    linked: &LinkedQuery,
) -> io::Result<()> {
    writeln!(out, "{}", names.join("|"))?;
    for row in answer.rows() {
        let cells: Vec<String> = row.iter().map(|value| value.display(table)).collect();
        writeln!(out, "{}", cells.join("|"))?;
    }
    let (code, total) = (linked.code_bytes(), linked.total_bytes());
    let rows = answer.len();
    let plural = if rows == 1 { "" } else { "s" };
    writeln!(out)?;
    writeln!(out, "{rows} row{plural}; {code} bytes of code, {total} bytes linked in all")
}

#[cfg(target_arch = "x86_64")]
fn disassemble(out: &mut impl Write, linked: &LinkedQuery, length: usize) -> io::Result<()> {
    use iced_x86::{Decoder, DecoderOptions, Formatter, Instruction, NasmFormatter};

    let address = linked.function().address();
    // SAFETY: the function's code begins at its address and has `length` bytes, which the compiler counted. It is
    // readable, and stays mapped because `linked` holds it.
    let code = unsafe { std::slice::from_raw_parts(address.value() as usize as *const u8, length) };
    // Addresses relative to the function's start make jumps readable.
    let mut decoder = Decoder::with_ip(64, code, 0, DecoderOptions::NONE);
    let mut formatter = NasmFormatter::new();
    let mut instruction = Instruction::default();
    let mut text = String::new();
    writeln!(out)?;
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        text.clear();
        formatter.format(&instruction, &mut text);
        writeln!(out, "{:6x}  {text}", instruction.ip())?;
    }
    Ok(())
}

#[cfg(not(target_arch = "x86_64"))]
fn disassemble(out: &mut impl Write, _: &LinkedQuery, _: usize) -> io::Result<()> {
    writeln!(out, "there is no disassembler for this architecture")
}
