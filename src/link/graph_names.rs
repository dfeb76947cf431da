//! Names in a [`LinkGraph`]: of blocks and symbols, and the search for externals by name.

use crate::base::until_nul;
use crate::link::content::Text;
use crate::link::definition::Definition;
use crate::link::edge::{BlockId, SymbolIndex};
use crate::link::graph::LinkGraph;
use crate::link::graph_symbol::Binding;
use crate::link::prefix_filter::PrefixFilter;

impl LinkGraph {
    /// The section name of a block.
    ///
    /// # Panics
    /// If `block` is out of range.
    pub fn block_name(&self, block: BlockId) -> &str {
        self.text(&self.blocks[block.0 as usize].name)
    }

    /// The name of a symbol. Empty if it has none, or if the name is not UTF-8.
    ///
    /// # Panics
    /// If `symbol` is out of range.
    pub fn symbol_name(&self, symbol: SymbolIndex) -> &str {
        self.text(&self.symbols[symbol.0 as usize].name)
    }

    /// The name of a symbol as bytes. Cheaper than [`symbol_name`](Self::symbol_name), because nothing checks that it
    /// is UTF-8.
    ///
    /// # Panics
    /// If `symbol` is out of range.
    pub fn name_bytes(&self, symbol: SymbolIndex) -> &[u8] {
        self.name_bytes_in(&self.bytes, symbol)
    }

    fn name_bytes_in<'a>(&'a self, object: &'a [u8], symbol: SymbolIndex) -> &'a [u8] {
        self.text_in(object, &self.symbols[symbol.0 as usize].name)
    }

    /// The bytes of a name of this graph.
    pub(crate) fn name_of<'a>(&'a self, text: &Text) -> &'a [u8] {
        self.text_in(&self.bytes, text)
    }

    fn text_in<'a>(&'a self, object: &'a [u8], text: &Text) -> &'a [u8] {
        match text {
            Text::Object(range) => object.get(range.start as usize..range.end as usize).unwrap_or(&[]),
            Text::Terminated(start) => object.get(*start as usize..).and_then(until_nul).unwrap_or(&[]),
            Text::Fixed(text) => text.as_bytes(),
            Text::Synthetic(number) => self.synthetic.names[*number as usize].as_bytes(),
        }
    }

    /// The external of this name, if the graph has one.
    #[inline] // so that the filter's bit of a constant name is a constant
    pub fn find_external(&self, name: &str) -> Option<SymbolIndex> {
        if self.may_have_external(name) { self.search_external(name) } else { None }
    }

    #[inline(never)] // few objects get here
    fn search_external(&self, name: &str) -> Option<SymbolIndex> {
        let object: &[u8] = &self.bytes;
        self.externals().find(|index| match &self.symbols[index.index()].name {
            // A different length answers most comparisons.
            Text::Object(range) if range.len() != name.len() => false,
            text => self.text_in(object, text) == name.as_bytes(),
        })
    }

    /// As [`externals`](Self::externals), with their names. Cheaper than a call of [`name_bytes`](Self::name_bytes) for
    /// each.
    pub(crate) fn named_externals(&self) -> impl Iterator<Item = (SymbolIndex, &[u8])> {
        // `ObjectBuffer::deref` is a virtual call; it is made once, not per symbol.
        let object: &[u8] = &self.bytes;
        self.externals().map(|index| (index, self.name_bytes_in(object, index)))
    }

    /// The names of weak externals that are hidden, internal or protected.
    pub(crate) fn hidden_weak_externals(&self) -> Vec<Box<str>> {
        if !self.has_weak_externals {
            return Vec::new();
        }
        let is_hidden_weak = |index: &SymbolIndex| {
            let symbol = &self.symbols[index.index()];
            symbol.is_hidden && symbol.binding == Binding::Weak
        };
        self.externals().filter(is_hidden_weak).map(|index| self.symbol_name(index).into()).collect()
    }

    /// Makes an external hidden: only the dylib of the object may define it.
    pub(crate) fn hide_external(&mut self, symbol: SymbolIndex) {
        self.symbols[symbol.index()].is_hidden = true;
    }

    /// As [`name_bytes`](Self::name_bytes), for several symbols.
    pub(crate) fn names_of(&self, symbols: impl Iterator<Item = SymbolIndex>) -> impl Iterator<Item = &[u8]> {
        // `ObjectBuffer::deref` is a virtual call; it is made once, not per symbol.
        let object: &[u8] = &self.bytes;
        symbols.map(move |symbol| self.name_bytes_in(object, symbol))
    }

    /// Whether an external of this name may exist. If this returns false, there is none. `name` may also be a prefix of
    /// four bytes or more.
    #[inline]
    pub(crate) fn may_have_external(&self, name: &str) -> bool {
        self.external_prefixes.may_contain(name.as_bytes())
    }

    /// Whether an external with one of these names may exist. If this returns false, there is none.
    #[inline]
    pub(crate) fn may_have_any_external(&self, names: &PrefixFilter) -> bool {
        self.external_prefixes.may_intersect(names)
    }

    /// All symbols without a definition in the graph. The link looks up those that some edge uses.
    pub fn externals(&self) -> impl Iterator<Item = SymbolIndex> {
        let all = (self.first_global..self.symbols.len() as u32).map(SymbolIndex);
        all.filter(|index| self.symbols[index.index()].definition == Definition::External)
    }

    pub(crate) fn text<'a>(&'a self, text: &Text) -> &'a str {
        self.text_of(&self.bytes, text)
    }

    /// As [`text`](Self::text), for an object that is still being read and whose bytes are not in the graph yet.
    pub(crate) fn text_of<'a>(&'a self, object: &'a [u8], text: &Text) -> &'a str {
        match text {
            Text::Fixed(text) => text,
            Text::Synthetic(number) => &self.synthetic.names[*number as usize],
            // The reader checked names that it made ranges of. A `Terminated` name may be other than UTF-8.
            _ => std::str::from_utf8(self.text_in(object, text)).unwrap_or(""),
        }
    }
}
