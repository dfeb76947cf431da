//! A rule's tree as a number, asked of an image.
//!
//! In LLVM's evaluator a name is an address of the linker's own inside a load, and one of the target outside. Here it is
//! the target's in both, and a load finds the linker's bytes by it: that comes to the same wherever theirs is defined, and
//! gives a meaning to loads within loads.

use super::Image;
use super::expression::{Atom, Chain, Operator, Place, Problem, Slice, Term, Word};
use super::operands::{Decoded, Operand};

/// Evaluates the two sides of one rule, and remembers what their parts came to.
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
                message: format!("a shift by {right} leaves nothing of 64 bits"),
            })
        })
    }

    fn term(&mut self, term: &Term) -> Result<u64, Problem> {
        let value = self.atom(term)?;
        self.remember(term, value);
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
            Atom::GotEntry { file, symbol } => found(file, self.image.got_entry(&file.text, &symbol.text)),
            Atom::Stub { file, symbol } => found(file, self.image.stub(&file.text, &symbol.text)),
            Atom::Section { file, section } => found(file, self.image.section(&file.text, &section.text)),
        }
    }

    /// Once for each spelling, and not what shows its value anyway.
    fn remember(&mut self, term: &Term, value: u64) {
        let part = &self.text[term.start..term.end];
        let is_plain = matches!(term.atom, Atom::Number(_) | Atom::Group(_));
        if !is_plain && !self.parts.iter().any(|(known, _)| known == part) {
            self.parts.push((part.to_string(), value));
        }
    }

    fn symbol(&self, name: &Word) -> Result<u64, Problem> {
        self.image
            .symbol(&name.text)
            .ok_or_else(|| Problem { at: name.at, message: format!("no symbol `{}`", name.text) })
    }

    fn load(&self, at: usize, address: u64, size: usize) -> Result<u64, Problem> {
        let bytes = self.image.bytes_at(address);
        let Some(bytes) = bytes.and_then(|bytes| bytes.get(..size)) else {
            let there = bytes.map_or(0, <[u8]>::len);
            let message = format!("no {size} bytes to load at {address:#x}, where {there} were linked");
            return Err(Problem { at, message });
        };
        Ok(bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    /// An instruction and its address.
    fn decode(&self, place: &Place) -> Result<(Decoded, u64), Problem> {
        let address = self.symbol(&place.symbol)?.wrapping_add(place.offset);
        let bytes = self.image.bytes_at(address);
        match bytes.and_then(Decoded::from_bytes) {
            Some(decoded) => Ok((decoded, address)),
            None => {
                let there = if bytes.is_some() { "no whole x86-64 instruction" } else { "nothing linked" };
                Err(place.problem(format!("there is {there} at {address:#x}")))
            }
        }
    }

    fn next_pc(&self, place: &Place) -> Result<u64, Problem> {
        let (decoded, address) = self.decode(place)?;
        match decoded.length() {
            Some(length) => Ok(address.wrapping_add(length)),
            None => {
                Err(place.problem(format!("LLVM takes the prefix of this `{decoded}` for an instruction of its own")))
            }
        }
    }

    fn operand(&self, place: &Place, index: u64) -> Result<u64, Problem> {
        let (decoded, _) = self.decode(place)?;
        let Some(operands) = decoded.operands() else {
            return Err(place.problem(format!("how LLVM numbers the operands of this `{decoded}` is not known here")));
        };
        match usize::try_from(index).ok().and_then(|index| operands.get(index)) {
            Some(Operand::Number(value)) => Ok(*value),
            Some(Operand::Register) => Err(place.problem(format!(
                "operand {index} of this `{decoded}` is a register, and not an immediate: {}",
                listed(&operands)
            ))),
            None => Err(place.problem(format!(
                "this `{decoded}` has {} operands, and no operand {index}: {}",
                operands.len(),
                listed(&operands)
            ))),
        }
    }
}

impl Place {
    fn problem(&self, message: String) -> Problem {
        Problem { at: self.symbol.at, message }
    }
}

fn found(word: &Word, answer: Result<u64, String>) -> Result<u64, Problem> {
    answer.map_err(|message| Problem { at: word.at, message })
}

/// `None` for a shift that has no result.
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

fn listed(operands: &[Operand]) -> String {
    let shown = operands.iter().map(|operand| match operand {
        Operand::Number(value) => format!("{value:#x}"),
        Operand::Register => "register".to_string(),
    });
    shown.collect::<Vec<_>>().join(", ")
}
