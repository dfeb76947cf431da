//! [`mentions_closure`]: which functions of a Rust object belong to one version.
//!
//! The type of a closure, and of the state of an `async` function or block, changes with its body, and a name has only its number in
//! the function around it. So the code of a closure, and all code that is an instance for its type, may serve only values that
//! its own version has made.
//!
//! Format: the mangling of version 0, <https://doc.rust-lang.org/rustc/symbol-mangling/v0.html>. Only its grammar is walked; a path of
//! the namespace `C` is that of a closure. References to earlier places (`B`) are not followed, because those were walked.

/// Whether a mangled name has a closure in it, also as an argument of a type. True for a name of version 0 that cannot be read.
pub(super) fn mentions_closure(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("_R") else { return false };
    let mut walk = Walk { rest: rest.as_bytes(), found: false, depth: 0 };
    walk.path().is_none() || walk.found
}

struct Walk<'a> {
    rest: &'a [u8],
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
        Some(*first)
    }

    fn take(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        if is_next {
            self.rest = &self.rest[1..];
        }
        is_next
    }

    /// A number of base 62 ends with an underscore.
    fn base62(&mut self) -> Option<()> {
        while self.next()? != b'_' {}
        Some(())
    }

    fn disambiguator(&mut self) -> Option<()> {
        if self.take(b's') { self.base62() } else { Some(()) }
    }

    fn identifier(&mut self) -> Option<()> {
        self.disambiguator()?;
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
        self.rest = self.rest.get(length..)?;
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
        let tag = self.next()?;
        self.path_of(tag)
    }

    fn path_of(&mut self, tag: u8) -> Option<()> {
        self.nested(|walk| match tag {
            b'C' => walk.identifier(),
            b'M' => walk.impl_path().and_then(|()| walk.a_type()),
            b'X' => {
                walk.impl_path()?;
                walk.a_type()?;
                walk.path()
            }
            b'Y' => walk.a_type().and_then(|()| walk.path()),
            b'N' => {
                walk.found |= walk.next()? == b'C';
                walk.path()?;
                walk.identifier()
            }
            b'I' => {
                walk.path()?;
                walk.until_end(Self::argument)
            }
            b'B' => walk.base62(),
            _ => None,
        })
    }

    fn impl_path(&mut self) -> Option<()> {
        self.disambiguator()?;
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
        let tag = self.next()?;
        self.nested(|walk| match tag {
            b'p' => Some(()),
            b'B' => walk.base62(),
            b'e' => walk.digits(),
            b'R' | b'Q' => walk.constant(),
            b'A' | b'T' => walk.until_end(Self::constant),
            b'V' => {
                walk.path()?;
                match walk.next()? {
                    b'U' => Some(()),
                    b'T' => walk.until_end(Self::constant),
                    b'S' => walk.until_end(|walk| walk.identifier().and_then(|()| walk.constant())),
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
            "_RNvXs_NtC1a1bINtB2_3MapKj9_NCNvC1a4main0EC1a",
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
            "_RNvMs_NtC1a1bNtB2_8FUNCNv0x3run",
            "_RINvMs2_NtCsgEmfK2I1SDS_4core3fmtNtB6_9Arguments3newKj9_Kj1_ECs2UdLs6tZp7i_5hello",
            "_RNvMNtCslNYArtu3iFV_5alloc5boxedINtB2_3BoxAIBv_DNtCs2UdLs6tZp7i_5hello5SpeakEL_Ej2_E10new_uninitBM_",
            "_RINvC1a1fDG_INtC1a2FnTRL0_eEEp6OutputyEL_FUKCmEuE",
            "main",
            "_ZN4core3ptr13drop_in_place17h0123456789abcdefE",
        ] {
            assert!(!mentions_closure(name), "{name}");
        }
    }
}
