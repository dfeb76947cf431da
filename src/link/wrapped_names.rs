//! [`WrappedNames`]: symbols whose references go to another function, as `ld --wrap` does.
//!
//! | undefined reference to | is a reference to |
//! |---|---|
//! | a wrapped symbol `f` | `__wrap_f` |
//! | `__real_f`, if `f` is wrapped | `f` |
//!
//! Only undefined symbols of an object are renamed. A reference inside the object that defines `f` stays with its own `f`, and so
//! does the definition. Renaming comes first in a link: whatever the linker or a plugin does later sees the new names only.

use rustc_hash::FxHashMap;

use crate::link::graph::LinkGraph;

/// The wrapped symbols of a layer.
#[derive(Debug, Default)]
pub(crate) struct WrappedNames {
    /// The new name of each renamed one.
    new_names: FxHashMap<Box<str>, Box<str>>,
}

impl WrappedNames {
    /// `None` if there is no symbol to wrap.
    pub(crate) fn new(symbols: &[String]) -> Option<WrappedNames> {
        let real = |symbol: &String| (format!("__real_{symbol}").into(), symbol.as_str().into());
        let wrap = |symbol: &String| (symbol.as_str().into(), format!("__wrap_{symbol}").into());
        // A name that is both is a wrapped symbol.
        let new_names: FxHashMap<_, _> = symbols.iter().map(real).chain(symbols.iter().map(wrap)).collect();
        (!new_names.is_empty()).then_some(WrappedNames { new_names })
    }

    /// The name that an undefined reference to `name` has.
    pub(crate) fn of_reference<'a>(&'a self, name: &'a str) -> &'a str {
        self.new_names.get(name).map_or(name, |new_name| new_name)
    }

    /// Renames the undefined symbols of an object that was just read.
    pub(crate) fn rename(&self, graph: &mut LinkGraph) {
        let new_name = |name: &[u8]| self.new_names.get(std::str::from_utf8(name).ok()?);
        let renamed: Vec<_> =
            graph.named_externals().filter_map(|(symbol, name)| Some((symbol, new_name(name)?))).collect();
        for (symbol, name) in renamed {
            graph.rename_symbol(symbol, name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_is_renamed_once() {
        let names = WrappedNames::new(&["f".to_string(), "__wrap_f".to_string(), "__real_g".to_string()]).unwrap();
        let cases = [
            ("f", "__wrap_f"),
            ("__real_f", "f"),
            ("__wrap_f", "__wrap___wrap_f"),
            ("__real___wrap_f", "__wrap_f"),
            ("__real_g", "__wrap___real_g"),
            ("g", "g"),
            ("__real_h", "__real_h"),
        ];
        for (name, expected) in cases {
            assert_eq!(names.of_reference(name), expected);
        }
        assert!(WrappedNames::new(&[]).is_none());
    }
}
