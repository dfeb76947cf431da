//! A query as it was written: names resolved to columns, nothing typed yet.
//!
//! This is the last form that the compiled and the interpreted path share.
//! Scales of decimals, places of texts in dictionaries and the layout of
//! groups are each path's own business, so that a mistake in one of them
//! shows as a difference.

use crate::data::Column;

/// A scalar or boolean expression over the columns of one row.
#[derive(Clone, Debug)]
pub enum Expr {
    Column(Column),
    /// `units` times 10^-`scale`.
    Number {
        units: i64,
        scale: u8,
    },
    Text(String),
    /// Days since 1970-01-01.
    Date(i32),
    Bool(bool),
    Negate(Box<Expr>),
    Arithmetic(Arithmetic, Box<Expr>, Box<Expr>),
    Compare(Comparison, Box<Expr>, Box<Expr>),
    And(Box<Expr>, Box<Expr>),
    Or(Box<Expr>, Box<Expr>),
    Not(Box<Expr>),
    /// Value, lower bound, upper bound; both bounds belong to it.
    Between(Box<Expr>, Box<Expr>, Box<Expr>),
    In(Box<Expr>, Vec<Expr>),
    /// Conditions with their results, and what holds if no condition does.
    Case(Vec<(Expr, Expr)>, Box<Expr>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    Add,
    Subtract,
    Multiply,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// An aggregate function and what it is applied to.
#[derive(Clone, Debug)]
pub enum Aggregate {
    /// COUNT of anything counts rows, because nothing is NULL.
    Count,
    Sum(Expr),
    Average(Expr),
    Minimum(Expr),
    Maximum(Expr),
}

/// One entry of the select list of an aggregate query.
#[derive(Clone, Debug)]
pub enum Item {
    /// A column of GROUP BY, by its place there.
    Key(usize),
    Aggregate(Aggregate),
}

/// What becomes of the rows that pass the filter.
#[derive(Clone, Debug)]
pub enum Shape {
    /// One output row each.
    Rows(Vec<Expr>),
    /// One output row per group. Without keys there is one group, even if no
    /// row passes.
    Groups {
        keys: Vec<Column>,
        items: Vec<Item>,
        /// Keys to order by, by their place, and whether descending. What is
        /// left open by them is settled by the keys in ascending order.
        order: Vec<(usize, bool)>,
    },
}

/// A whole query over `lineitem`.
#[derive(Clone, Debug)]
pub struct Query {
    /// Heads of the output columns.
    pub names: Vec<String>,
    pub filter: Option<Expr>,
    pub shape: Shape,
    pub limit: Option<u64>,
}
