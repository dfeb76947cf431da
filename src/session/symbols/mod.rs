//! The symbol table of a dylib ([`symbol_table`]), its index of symbols that are looked up often ([`ready_index`]), and the
//! names whose definition invalidates cached searches ([`name_watch`]).
//!
//! The table is plain data. The lock of its dylib guards it. It is generic over the trackers, units and lookups that it
//! stores ([`TableTypes`](symbol_table::TableTypes)); it only asks a lookup whether a symbol state satisfies it, and hands it
//! the symbol.
//!
//! The sub-room imports `types` only. It takes no lock except that of the index, and calls no code of the embedder.

mod failed_symbols;
pub(in crate::session) mod name_watch;
pub(in crate::session) mod ready_index;
pub(in crate::session) mod symbol_table;
