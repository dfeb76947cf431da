//! [`Evaluator`]: computes the number that the tree of a rule stands for.
//!
//! # Difference from LLVM
//! In LLVM's evaluator a name inside a load is an address in the linker's memory; outside a load it is an address in the
//! target. Here it is the target address in both cases, and a load finds the linker's bytes by target address. The result is
//! the same wherever LLVM defines one, and loads inside loads have a value as well.

use super::arch::{Decoded, Operand};
use super::expression::{Atom, Chain, Operator, Problem, Slice, SymbolOffset, Term, Token};
use super::image::Image;

/// Evaluates the two sides of one rule, and records the values of their parts.
pub struct Evaluator<'a> {
    text: &'a str,
    image: &'a dyn Image,
    parts: Vec<(String, u64)>,
}

impl<'a> Evaluator<'a> {
    pub fn new(text: &'a str, image: &'a dyn Image) -> Evaluator<'a> {
        Evaluator { text, image, parts: Vec::new() }
    }

    pub fn into_parts(self) -> Vec<(String, u64)> {
        self.parts
    }

    pub fn value(&mut self, chain: &Chain) -> Result<u64, Problem> {
        let first = self.term(&chain.first)?;
        chain.rest.iter().try_fold(first, |left, (operator, term)| {
            let right = self.term(term)?;
            apply(*operator, left, right).ok_or_else(|| Problem {
                at: term.start,
                message: format!("a shift by {right} is out of range: the greatest is 63"),
            })
        })
    }

    fn term(&mut self, term: &Term) -> Result<u64, Problem> {
        let value = self.atom(term)?;
        self.record_part(term, value);
        Ok(match term.slice {
            Some(slice) => bits(value, slice),
            None => value,
        })
    }

    fn atom(&mut self, term: &Term) -> Result<u64, Problem> {
        match &term.atom {
            Atom::Number(value) => Ok(*value),
            Atom::Symbol(name) => self.symbol(name),
            Atom::Group(chain) => self.value(chain),
            Atom::Load { size, address } => {
                let address = self.value(address)?;
                self.load(term.start, address, *size)
            }
            Atom::Operand { place, index } => self.operand(place, *index),
            Atom::NextPc { place } => self.next_pc(place),
            Atom::GotEntry { file, symbol } => at_token(file, self.image.got_entry(&file.text, &symbol.text)),
            Atom::Stub { file, symbol } => at_token(file, self.image.stub(&file.text, &symbol.text)),
            Atom::Section { file, section } => at_token(file, self.image.section(&file.text, &section.text)),
        }
    }

    /// Records each text once. Numbers and groups are left out, because their text shows the value.
    fn record_part(&mut self, term: &Term, value: u64) {
        let part = &self.text[term.start..term.end];
        let is_obvious = matches!(term.atom, Atom::Number(_) | Atom::Group(_));
        if !is_obvious && !self.parts.iter().any(|(known, _)| known == part) {
            self.parts.push((part.to_string(), value));
        }
    }

    fn symbol(&self, name: &Token) -> Result<u64, Problem> {
        self.image
            .symbol(&name.text)
            .ok_or_else(|| Problem { at: name.at, message: format!("no symbol `{}`", name.text) })
    }

    fn load(&self, at: usize, address: u64, size: usize) -> Result<u64, Problem> {
        let bytes = self.image.bytes_at(address);
        let Some(bytes) = bytes.and_then(|bytes| bytes.get(..size)) else {
            let available = bytes.map_or(0, <[u8]>::len);
            let message = format!("cannot load {size} bytes at {address:#x}: the link has {available} bytes there");
            return Err(Problem { at, message });
        };
        Ok(bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    /// Decodes the instruction at an address. Returns it with its address.
    fn decode(&self, place: &SymbolOffset) -> Result<(Decoded, u64), Problem> {
        let address = self.symbol(&place.symbol)?.wrapping_add(place.offset);
        let bytes = self.image.bytes_at(address);
        let machine = self.image.machine();
        match bytes.and_then(|bytes| Decoded::from_bytes(machine, bytes)) {
            Some(decoded) => Ok((decoded, address)),
            None => {
                let found = if bytes.is_some() { "no complete instruction" } else { "no linked code" };
                Err(place.problem(format!("there is {found} at {address:#x}")))
            }
        }
    }

    fn next_pc(&self, place: &SymbolOffset) -> Result<u64, Problem> {
        let (decoded, address) = self.decode(place)?;
        match decoded.length() {
            Some(length) => Ok(address.wrapping_add(length)),
            None => {
                Err(place.problem(format!("LLVM decodes the prefix of this `{decoded}` as a separate instruction")))
            }
        }
    }

    fn operand(&self, place: &SymbolOffset, index: u64) -> Result<u64, Problem> {
        let (decoded, _) = self.decode(place)?;
        let Some(operands) = decoded.operands() else {
            return Err(
                place.problem(format!("the numbers of LLVM for the operands of this `{decoded}` are not known"))
            );
        };
        match usize::try_from(index).ok().and_then(|index| operands.get(index)) {
            Some(Operand::Number(value)) => Ok(*value),
            Some(Operand::Register) => Err(place.problem(format!(
                "operand {index} of this `{decoded}` is a register, not a number: {}",
                list_text(&operands)
            ))),
            None => Err(place.problem(format!(
                "this `{decoded}` has {} operands, so there is no operand {index}: {}",
                operands.len(),
                list_text(&operands)
            ))),
        }
    }
}

impl SymbolOffset {
    fn problem(&self, message: String) -> Problem {
        Problem { at: self.symbol.at, message }
    }
}

fn at_token(token: &Token, answer: Result<u64, String>) -> Result<u64, Problem> {
    answer.map_err(|message| Problem { at: token.at, message })
}

/// `None` for a shift by 64 or more.
fn apply(operator: Operator, left: u64, right: u64) -> Option<u64> {
    let count = u32::try_from(right).ok();
    match operator {
        Operator::Add => Some(left.wrapping_add(right)),
        Operator::Subtract => Some(left.wrapping_sub(right)),
        Operator::And => Some(left & right),
        Operator::Or => Some(left | right),
        Operator::ShiftLeft => count.and_then(|count| left.checked_shl(count)),
        Operator::ShiftRight => count.and_then(|count| left.checked_shr(count)),
    }
}

fn bits(value: u64, slice: Slice) -> u64 {
    value << (63 - slice.high) >> (63 - slice.high + slice.low)
}

fn list_text(operands: &[Operand]) -> String {
    let texts = operands.iter().map(|operand| match operand {
        Operand::Number(value) => format!("{value:#x}"),
        Operand::Register => "register".to_string(),
    });
    texts.collect::<Vec<_>>().join(", ")
}
