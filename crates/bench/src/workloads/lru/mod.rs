//! Workload b: a cache of compiled expressions, with readers that hold an entry while they call it.
//!
//! The sizes are those of ClickHouse's vectorised expressions; the number of entries is its default. The frequency of
//! keys follows Zipf's law. With a realistic exponent and a million keys, a cache of this size would hit in four of
//! five lookups. The number of keys is therefore chosen to give the hit rates of real caches.

mod cache;
mod expressions;
mod reader;
mod replay;

pub use replay::scenarios;
