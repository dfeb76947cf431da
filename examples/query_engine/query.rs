//! A query after parsing: names are resolved to columns, and nothing has a type yet.
//!
//! This is the last form that the compiled and the interpreted path share. Each path computes decimal scales,
//! dictionary positions and the layout of groups on its own, so a mistake in one path shows as a difference.

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
    /// Value, lower bound, upper bound. Both bounds are inclusive.
    Between(Box<Expr>, Box<Expr>, Box<Expr>),
    In(Box<Expr>, Vec<Expr>),
    /// Conditions with their results, and the result if no condition holds.
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

/// An aggregate function and its argument.
#[derive(Clone, Debug)]
pub enum Aggregate {
    /// COUNT of any expression counts rows, because no value is NULL.
    Count,
    Sum(Expr),
    Average(Expr),
    Minimum(Expr),
    Maximum(Expr),
}

/// One entry of the select list of an aggregate query.
#[derive(Clone, Debug)]
pub enum Item {
    /// A column of GROUP BY, by its index there.
    Key(usize),
    Aggregate(Aggregate),
}

/// What happens to the rows that pass the filter.
#[derive(Clone, Debug)]
pub enum Shape {
    /// Each becomes an output row.
    Rows(Vec<Expr>),
    /// Each group becomes an output row. Without keys there is one group, even if no row passes.
    Groups {
        keys: Vec<Column>,
        items: Vec<Item>,
        /// The keys to order by, by index, and whether each is descending. Groups that these leave equal are ordered
        /// by all keys, ascending.
        order: Vec<(usize, bool)>,
    },
}

/// A query over `lineitem`.
#[derive(Clone, Debug)]
pub struct Query {
    /// The headings of the output columns.
    pub names: Vec<String>,
    pub filter: Option<Expr>,
    pub shape: Shape,
    pub limit: Option<u64>,
}
