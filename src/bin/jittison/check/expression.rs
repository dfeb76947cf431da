//! [`Equation`]: parses the text of a rule (LLVM: `jitlink-check`, `RuntimeDyldChecker`) into a tree.
//!
//! ```text
//! equation   = chain "=" chain
//! chain      = term { ("+" | "-" | "&" | "|" | "<<" | ">>") term }
//! term       = ( number | name | call | load | "(" chain ")" ) [ "[" number ":" number "]" ]
//! load       = "*" "{" number "}" chain
//! call       = "decode_operand" "(" place "," number ")" | "next_pc" "(" place ")"
//!            | "got_addr" "(" file "," name ")" | "stub_addr" "(" file "," name ")"
//!            | "section_addr" "(" file "," section ")"
//! place      = name [ ("+" | "-") number ]
//! ```
//!
//! The address of a load is the entire chain after it, so `*{4}a + 4` loads from `a + 4`. A file name is all text before the
//! comma, a section name all text before the parenthesis. Numbers are decimal, hexadecimal after `0x`, octal after `0`.

/// How deep parentheses and loads may nest. The parser is recursive, so the limit protects the stack.
const MAX_DEPTH: usize = 64;

/// An error, and its byte offset in the rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub at: usize,
    pub message: String,
}

#[derive(Debug)]
pub struct Equation {
    pub left: Chain,
    pub right: Chain,
}

/// Terms and the operators between them, to be evaluated from left to right.
#[derive(Debug)]
pub struct Chain {
    pub first: Term,
    pub rest: Vec<(Operator, Term)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    Add,
    Subtract,
    And,
    Or,
    ShiftLeft,
    ShiftRight,
}

#[derive(Debug)]
pub struct Term {
    /// The byte offsets in the rule where the atom starts and ends.
    pub start: usize,
    pub end: usize,
    pub atom: Atom,
    pub slice: Option<Slice>,
}

#[derive(Debug)]
pub enum Atom {
    Number(u64),
    Symbol(Token),
    Group(Box<Chain>),
    Load { size: usize, address: Box<Chain> },
    Operand { place: SymbolOffset, index: u64 },
    NextPc { place: SymbolOffset },
    GotEntry { file: Token, symbol: Token },
    Stub { file: Token, symbol: Token },
    Section { file: Token, section: Token },
}

/// Bits `low` to `high`, both included: `low <= high < 64`.
#[derive(Debug, Clone, Copy)]
pub struct Slice {
    pub high: u32,
    pub low: u32,
}

/// An address: a symbol and an offset, which wraps around if it is negative.
#[derive(Debug)]
pub struct SymbolOffset {
    pub symbol: Token,
    pub offset: u64,
}

/// A name in the rule, and its byte offset.
#[derive(Debug)]
pub struct Token {
    pub at: usize,
    pub text: String,
}

impl Equation {
    pub fn parse(text: &str) -> Result<Equation, Problem> {
        let mut reader = Reader { text, at: 0, depth: 0 };
        reader.skip_blanks();
        let left = reader.chain()?;
        reader.expect("=")?;
        let right = reader.chain()?;
        match reader.rest() {
            "" => Ok(Equation { left, right }),
            _ => Err(reader.unexpected("the end of the rule")),
        }
    }
}

/// Reads tokens from left to right, each with the blanks after it.
struct Reader<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl Reader<'_> {
    fn chain(&mut self) -> Result<Chain, Problem> {
        let first = self.term()?;
        let mut rest = Vec::new();
        while let Some(operator) = self.operator() {
            rest.push((operator, self.term()?));
        }
        Ok(Chain { first, rest })
    }

    fn operator(&mut self) -> Option<Operator> {
        const OPERATORS: [(&str, Operator); 6] = [
            ("<<", Operator::ShiftLeft),
            (">>", Operator::ShiftRight),
            ("+", Operator::Add),
            ("-", Operator::Subtract),
            ("&", Operator::And),
            ("|", Operator::Or),
        ];
        OPERATORS.into_iter().find(|(sign, _)| self.accept(sign)).map(|(_, operator)| operator)
    }

    fn term(&mut self) -> Result<Term, Problem> {
        let start = self.at;
        let atom = match self.rest().chars().next() {
            Some('(') => self.nested(Reader::group)?,
            Some('*') => self.nested(Reader::load)?,
            Some(digit) if digit.is_ascii_digit() => Atom::Number(self.number()?),
            Some(letter) if is_name_character(letter) => self.symbol_or_call()?,
            _ => return Err(self.unexpected("a number, a name, `*{` or `(`")),
        };
        let end = self.text[..self.at].trim_end().len();
        let slice = if self.rest().starts_with('[') { Some(self.slice()?) } else { None };
        Ok(Term { start, end, atom, slice })
    }

    fn nested(&mut self, read: fn(&mut Self) -> Result<Atom, Problem>) -> Result<Atom, Problem> {
        if self.depth == MAX_DEPTH {
            return Err(self.problem(format!("parentheses and loads are nested more than {MAX_DEPTH} deep")));
        }
        self.depth += 1;
        let atom = read(self);
        self.depth -= 1;
        atom
    }

    fn group(&mut self) -> Result<Atom, Problem> {
        self.expect("(")?;
        let chain = self.chain()?;
        self.expect(")")?;
        Ok(Atom::Group(Box::new(chain)))
    }

    fn load(&mut self) -> Result<Atom, Problem> {
        self.expect("*")?;
        self.expect("{")?;
        let at = self.at;
        let size = match self.number()? {
            size @ 1..=8 => size as usize,
            size => return Err(Problem { at, message: format!("a load has 1 to 8 bytes, not {size}") }),
        };
        self.expect("}")?;
        Ok(Atom::Load { size, address: Box::new(self.chain()?) })
    }

    fn slice(&mut self) -> Result<Slice, Problem> {
        let at = self.at;
        self.expect("[")?;
        let high = self.number()?;
        self.expect(":")?;
        let low = self.number()?;
        self.expect("]")?;
        if low <= high && high < 64 {
            return Ok(Slice { high: high as u32, low: low as u32 });
        }
        Err(Problem { at, message: format!("bits {high} to {low} are not a range within 63 to 0") })
    }

    fn symbol_or_call(&mut self) -> Result<Atom, Problem> {
        let token = self.name()?;
        match token.text.as_str() {
            "decode_operand" => self.arguments(|reader| {
                let place = reader.place()?;
                reader.expect(",")?;
                Ok(Atom::Operand { place, index: reader.number()? })
            }),
            "next_pc" => self.arguments(|reader| Ok(Atom::NextPc { place: reader.place()? })),
            "got_addr" => self.arguments(|reader| Ok(Atom::GotEntry { file: reader.file()?, symbol: reader.name()? })),
            "stub_addr" => self.arguments(|reader| Ok(Atom::Stub { file: reader.file()?, symbol: reader.name()? })),
            "section_addr" => self.arguments(|reader| {
                let file = reader.file()?;
                Ok(Atom::Section { file, section: reader.until(')', "a section")? })
            }),
            _ => Ok(Atom::Symbol(token)),
        }
    }

    fn arguments(&mut self, read: impl FnOnce(&mut Self) -> Result<Atom, Problem>) -> Result<Atom, Problem> {
        self.expect("(")?;
        let atom = read(self)?;
        self.expect(")")?;
        Ok(atom)
    }

    fn place(&mut self) -> Result<SymbolOffset, Problem> {
        let symbol = self.name()?;
        let offset = if self.accept("+") {
            self.number()?
        } else if self.accept("-") {
            self.number()?.wrapping_neg()
        } else {
            0
        };
        Ok(SymbolOffset { symbol, offset })
    }

    fn file(&mut self) -> Result<Token, Problem> {
        let file = self.until(',', "a file")?;
        self.expect(",")?;
        Ok(file)
    }

    /// All text before `end`. File and section names may contain any character.
    fn until(&mut self, end: char, what: &str) -> Result<Token, Problem> {
        let Some((text, _)) = self.rest().split_once(end) else {
            return Err(self.problem(format!("expected {what} and `{end}`")));
        };
        let token = Token { at: self.at, text: text.trim_end().to_string() };
        self.skip(text.len());
        match token.text.is_empty() {
            true => Err(Problem { at: token.at, message: format!("expected {what} before `{end}`") }),
            false => Ok(token),
        }
    }

    fn name(&mut self) -> Result<Token, Problem> {
        let length = self.rest().find(|character| !is_name_character(character)).unwrap_or(self.rest().len());
        if length == 0 {
            return Err(self.unexpected("a name"));
        }
        let token = Token { at: self.at, text: self.rest()[..length].to_string() };
        self.skip(length);
        Ok(token)
    }

    fn number(&mut self) -> Result<u64, Problem> {
        let rest = self.rest();
        let (prefix, radix) = match rest.as_bytes() {
            [b'0', b'x', ..] => (2, 16),
            [b'0', b'0'..=b'9', ..] => (1, 8),
            [b'0'..=b'9', ..] => (0, 10),
            _ => return Err(self.unexpected("a number")),
        };
        // Take all letters and digits, so that `08` or `12ab` is one bad number and not two tokens.
        let digits = &rest[prefix..];
        let digits = &digits[..digits.find(|digit: char| !digit.is_ascii_alphanumeric()).unwrap_or(digits.len())];
        let value = u64::from_str_radix(digits, radix)
            .map_err(|_| self.problem(format!("`{}{digits}` is not a number of 64 bits", &rest[..prefix])))?;
        self.skip(prefix + digits.len());
        Ok(value)
    }

    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn accept(&mut self, token: &str) -> bool {
        let is_next = self.rest().starts_with(token);
        if is_next {
            self.skip(token.len());
        }
        is_next
    }

    fn expect(&mut self, token: &str) -> Result<(), Problem> {
        match self.accept(token) {
            true => Ok(()),
            false => Err(self.unexpected(&format!("`{token}`"))),
        }
    }

    fn skip(&mut self, length: usize) {
        self.at += length;
        self.skip_blanks();
    }

    fn skip_blanks(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    fn problem(&self, message: String) -> Problem {
        Problem { at: self.at, message }
    }

    fn unexpected(&self, expected: &str) -> Problem {
        self.problem(match self.rest().chars().next() {
            Some(found) => format!("expected {expected}, found `{}`", found.escape_debug()),
            None => format!("expected {expected}, found the end of the rule"),
        })
    }
}

fn is_name_character(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '.' | ':' | '$')
}
