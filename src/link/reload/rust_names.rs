//! What the mangled names of a Rust object say: which functions are of closures, and which names mean one function.
//!
//! # Closures
//! The type of a closure, and of the state of an `async` function or block, changes with its body, and a name has only its number in
//! the function around it. So the code of a closure, and all code that is an instance for its type, may serve only values that
//! its own version has made.
//!
//! # Numbers
//! A name has the number of an `impl` block among those of its module. If a block comes or goes, its successors have other names.
//! [`RustName::unnumbered`] is the name without such numbers. Back references count bytes, so they are written again.
//!
//! Format: the mangling of version 0, <https://doc.rust-lang.org/rustc/symbol-mangling/v0.html>. Only its grammar is walked; a path of
//! the namespace `C` is that of a closure. What a back reference (`B`) leads to was walked.

use std::collections::HashMap;

/// What a mangled name says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RustName {
    /// Whether there is a closure in it, also as an argument of a type.
    pub(super) mentions_closure: bool,
    /// The name without the numbers of blocks. It is no mangled name.
    pub(super) unnumbered: String,
}

impl RustName {
    /// Reads a name of version 0. `None` for another one.
    pub(super) fn read(name: &str) -> Option<RustName> {
        let rest = name.strip_prefix("_R")?.as_bytes();
        let mut walk =
            Walk { rest, length: rest.len(), out: String::new(), places: HashMap::new(), found: false, depth: 0 };
        Some(match walk.path() {
            Some(()) => {
                let unnumbered = walk.out + &String::from_utf8_lossy(walk.rest);
                RustName { mentions_closure: walk.found, unnumbered }
            }
            // What cannot be read may be a closure.
            None => RustName { mentions_closure: true, unnumbered: name.to_string() },
        })
    }
}

/// Whether a mangled name has a closure in it.
pub(super) fn mentions_closure(name: &str) -> bool {
    RustName::read(name).is_some_and(|name| name.mentions_closure)
}

struct Walk<'a> {
    rest: &'a [u8],
    /// Bytes of the name.
    length: usize,
    /// What was walked, without the numbers of blocks.
    out: String,
    /// For each place in the name that a back reference may mean, the place in `out`.
    places: HashMap<usize, usize>,
    found: bool,
    depth: usize,
}

impl Walk<'_> {
    fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        self.out.push(char::from(*first));
        Some(*first)
    }

    fn take(&mut self, byte: u8) -> bool {
        self.peek() == Some(byte) && self.next().is_some()
    }

    /// Notes the place of what may be referred to later.
    fn mark(&mut self) {
        self.places.insert(self.length - self.rest.len(), self.out.len());
    }

    /// After `B`.
    fn back_reference(&mut self) -> Option<()> {
        let place = match self.rest.iter().position(|byte| *byte == b'_')? {
            0 => 0,
            end => {
                let digit = |value: usize, byte: &u8| {
                    let digit = char::from(*byte).to_digit(36)? as usize;
                    let is_large = byte.is_ascii_uppercase();
                    value.checked_mul(62)?.checked_add(digit + if is_large { 26 } else { 0 })
                };
                self.rest[..end].iter().try_fold(0, digit)?.checked_add(1)?
            }
        };
        let end = self.rest.iter().position(|byte| *byte == b'_')?;
        self.rest = &self.rest[end + 1..];
        self.out += &format!("{}_", self.places.get(&place)?);
        Some(())
    }

    /// A number of base 62 ends with an underscore.
    fn base62(&mut self) -> Option<()> {
        while self.next()? != b'_' {}
        Some(())
    }

    /// The number of one of several things of one name. It is left out if `is_kept` is false.
    fn disambiguator(&mut self, is_kept: bool) -> Option<()> {
        let end = self.out.len();
        if self.take(b's') {
            self.base62()?;
        }
        if !is_kept {
            self.out.truncate(end);
        }
        Some(())
    }

    fn identifier(&mut self, keeps_number: bool) -> Option<()> {
        self.disambiguator(keeps_number)?;
        self.plain_identifier()
    }

    fn plain_identifier(&mut self) -> Option<()> {
        self.take(b'u');
        let mut length = 0usize;
        while let Some(digit @ b'0'..=b'9') = self.peek() {
            self.next();
            length = length.checked_mul(10)?.checked_add(usize::from(digit - b'0'))?;
            if length == 0 {
                break;
            }
        }
        self.take(b'_');
        self.out += &String::from_utf8_lossy(self.rest.get(..length)?);
        self.rest = &self.rest[length..];
        Some(())
    }

    /// All that may be nested in itself.
    fn nested(&mut self, walk: impl FnOnce(&mut Self) -> Option<()>) -> Option<()> {
        self.depth += 1;
        let walked = (self.depth < DEEPEST).then(|| walk(self)).flatten();
        self.depth -= 1;
        walked
    }

    fn path(&mut self) -> Option<()> {
        self.mark();
        let tag = self.next()?;
        self.path_of(tag)
    }

    fn path_of(&mut self, tag: u8) -> Option<()> {
        self.nested(|walk| match tag {
            b'C' => walk.identifier(true),
            b'M' => walk.impl_path().and_then(|()| walk.a_type()),
            b'X' => {
                walk.impl_path()?;
                walk.a_type()?;
                walk.path()
            }
            b'Y' => walk.a_type().and_then(|()| walk.path()),
            b'N' => {
                let is_closure = walk.next()? == b'C';
                walk.found |= is_closure;
                walk.path()?;
                walk.identifier(is_closure)
            }
            b'I' => {
                walk.path()?;
                walk.until_end(Self::argument)
            }
            b'B' => walk.back_reference(),
            _ => None,
        })
    }

    fn impl_path(&mut self) -> Option<()> {
        self.disambiguator(false)?;
        self.path()
    }

    fn until_end(&mut self, mut walk: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        while !self.take(b'E') {
            walk(self)?;
        }
        Some(())
    }

    fn argument(&mut self) -> Option<()> {
        match self.peek()? {
            b'L' => self.lifetime(),
            b'K' => {
                self.next();
                self.constant()
            }
            _ => self.a_type(),
        }
    }

    fn lifetime(&mut self) -> Option<()> {
        if self.take(b'L') { self.base62() } else { Some(()) }
    }

    fn binder(&mut self) -> Option<()> {
        if self.take(b'G') { self.base62() } else { Some(()) }
    }

    fn a_type(&mut self) -> Option<()> {
        self.mark();
        let tag = self.next()?;
        self.nested(|walk| match tag {
            b'a'..=b'z' => Some(()),
            b'A' => walk.a_type().and_then(|()| walk.constant()),
            b'S' | b'P' | b'O' => walk.a_type(),
            b'R' | b'Q' => walk.lifetime().and_then(|()| walk.a_type()),
            b'T' => walk.until_end(Self::a_type),
            b'F' => walk.signature(),
            b'D' => {
                walk.binder()?;
                walk.until_end(Self::bound)?;
                walk.lifetime()
            }
            _ => walk.path_of(tag),
        })
    }

    fn signature(&mut self) -> Option<()> {
        self.binder()?;
        self.take(b'U');
        if self.take(b'K') && !self.take(b'C') {
            self.plain_identifier()?;
        }
        self.until_end(Self::a_type)?;
        self.a_type()
    }

    /// A trait of `dyn`, with its associated types.
    fn bound(&mut self) -> Option<()> {
        self.path()?;
        while self.take(b'p') {
            self.plain_identifier()?;
            self.a_type()?;
        }
        Some(())
    }

    fn constant(&mut self) -> Option<()> {
        self.mark();
        let tag = self.next()?;
        self.nested(|walk| match tag {
            b'p' => Some(()),
            b'B' => walk.back_reference(),
            b'e' => walk.digits(),
            b'R' | b'Q' => walk.constant(),
            b'A' | b'T' => walk.until_end(Self::constant),
            b'V' => {
                walk.path()?;
                match walk.next()? {
                    b'U' => Some(()),
                    b'T' => walk.until_end(Self::constant),
                    b'S' => walk.until_end(|walk| walk.identifier(true).and_then(|()| walk.constant())),
                    _ => None,
                }
            }
            b'a'..=b'z' => {
                walk.take(b'n');
                walk.digits()
            }
            _ => None,
        })
    }

    /// Digits of base 16 end with an underscore.
    fn digits(&mut self) -> Option<()> {
        self.base62()
    }
}

/// How deep types of a name may be nested.
const DEEPEST: usize = 256;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn closures_are_found_in_paths_and_in_arguments() {
        for name in [
            "_RNCNvCs2UdLs6tZp7i_5hello4mains_0B3_",
            "_RINvNvNtCsjrHSEGnQ3l9_3std9panicking12catch_unwind8do_catchNCNvCs2UdLs6tZp7i_5hello4mains_0mEBZ_",
            "_RNSNvYNCNvCs2UdLs6tZp7i_5hello4main0INtNtNtCsgEmfK2I1SDS_4core3ops8function6FnOnceTmEE9call_once6vtableB8_",
            "_RNvXs_NtC1a1bINtB4_3MapKj9_NCNvC1a4main0EC1a",
            "_Rbroken",
            "_RNvC1a99",
        ] {
            assert!(mentions_closure(name), "{name}");
        }
    }

    #[test]
    fn functions_and_their_instances_have_no_closure() {
        for name in [
            "_RNvCs2UdLs6tZp7i_5hello4step",
            "_RINvCs2UdLs6tZp7i_5hello5twicelEB2_",
            "_RNvMs_NtC1a1bNtB4_8FUNCNv0x3run",
            "_RINvMs2_NtCsgEmfK2I1SDS_4core3fmtNtB6_9Arguments3newKj9_Kj1_ECs2UdLs6tZp7i_5hello",
            "_RNvMNtCslNYArtu3iFV_5alloc5boxedINtB2_3BoxAIBv_DNtCs2UdLs6tZp7i_5hello5SpeakEL_Ej2_E10new_uninitBM_",
            "_RINvC1a1fDG_INtC1a2FnTRL0_eEEp6OutputyEL_FUKCmEuE",
            "main",
            "_ZN4core3ptr13drop_in_place17h0123456789abcdefE",
        ] {
            assert!(!mentions_closure(name), "{name}");
        }
    }

    #[test]
    fn a_name_without_numbers_is_the_same_after_an_impl_block_came() {
        let unnumbered = |name: &str| RustName::read(name).unwrap().unnumbered;
        // `<a::b::Cat>::run`, with blocks before it.
        let names = ["_RNvMNtC1a1bNtB2_3Cat3run", "_RNvMs_NtC1a1bNtB4_3Cat3run", "_RNvMs0_NtC1a1bNtB5_3Cat3run"];
        assert_eq!(names.map(unnumbered), [unnumbered(names[0]), unnumbered(names[0]), unnumbered(names[0])]);
        assert_ne!(unnumbered(names[0]), unnumbered("_RNvMNtC1a1bNtB2_3Dog3run"));
        // Closures and crates keep theirs.
        assert_ne!(unnumbered("_RNCNvC1a1f0"), unnumbered("_RNCNvC1a1fs_0"));
        assert_ne!(unnumbered("_RNvCs_1a1f"), unnumbered("_RNvCs0_1a1f"));
    }
}
