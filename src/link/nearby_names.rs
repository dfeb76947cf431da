//! [`NearbyNames`]: the names of a few symbols, made sure to be text all at once.
//!
//! To look at short names one by one costs more than to look at what they are part of: in an object they stand side by side,
//! or nearly so.

use crate::link::graph::{LinkGraph, SymbolIndex, Text};

/// Names of symbols.
pub(crate) struct NearbyNames<'a> {
    graph: &'a LinkGraph,
    /// Where the text begins in the object.
    start: u32,
    /// What the names are part of; empty, where they are far apart, or between them is what is no text.
    text: &'a str,
}

impl<'a> NearbyNames<'a> {
    pub(crate) fn of(graph: &'a LinkGraph, symbols: impl Iterator<Item = SymbolIndex>) -> NearbyNames<'a> {
        let (mut start, mut end, mut room) = (u32::MAX, 0, 0);
        for symbol in symbols {
            if let Text::Object(range) = &graph.symbols[symbol.index()].name {
                (start, end) = (start.min(range.start), end.max(range.end));
                room += range.len() + ROOM_PER_NAME;
            }
        }
        let bytes = graph.bytes.get(start as usize..end as usize).filter(|bytes| bytes.len() <= room);
        let text = bytes.and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_default();
        NearbyNames { graph, start, text }
    }

    /// The name of any symbol.
    pub(crate) fn name(&self, symbol: SymbolIndex) -> &'a str {
        let part = match &self.graph.symbols[symbol.index()].name {
            Text::Object(range) => self.part(range.start, range.end),
            _ => None,
        };
        part.unwrap_or_else(|| self.graph.symbol_name(symbol))
    }

    fn part(&self, start: u32, end: u32) -> Option<&'a str> {
        self.text.get(start.checked_sub(self.start)? as usize..end.checked_sub(self.start)? as usize)
    }
}

/// Bytes of something else for each name, at most.
const ROOM_PER_NAME: usize = 128;
