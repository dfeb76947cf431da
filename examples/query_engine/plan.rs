//! Turns a [`Query`] into a typed [`Plan`], the form that is compiled.
//!
//! A number of scale s is an integer number of units of 10^-s. The rules for scales:
//!
//! * A sum or difference takes the larger scale of its operands; a product adds their scales.
//! * The sides of a comparison and the arms of a CASE are converted to the larger scale.
//! * SUM keeps the scale of its argument. AVG is rounded when it is printed.
//! * Values cannot be divided. The difference of two dates is a number of days; an integer number of days can be
//!   added to a date.
//!
//! The compiled code does not check for overflow. The planner bounds every intermediate result from the smallest and
//! the largest value of each column. It rejects a query if a result may not fit in 64 bits.

use crate::data::{Column, ColumnType, Table};
use crate::expression::SqlError;
use crate::query::{Aggregate, Arithmetic, Comparison, Expr, Item, Query, Shape};
use crate::typing::{Kind, Typing};

/// A 64-bit value computed from a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Scalar {
    Column(Column),
    Constant(i64),
    Negate(Box<Scalar>),
    Arithmetic(Arithmetic, Box<Scalar>, Box<Scalar>),
    Case(Vec<(Condition, Scalar)>, Box<Scalar>),
}

/// A truth value computed from a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Condition {
    Constant(bool),
    Compare(Comparison, Scalar, Scalar),
    /// Whether the table contains `true` at the code of a text column.
    Member(Column, Vec<bool>),
    All(Vec<Condition>),
    Any(Vec<Condition>),
    Not(Box<Condition>),
}

/// What one accumulator of a group computes.
#[derive(Clone, Debug, PartialEq)]
pub enum Fold {
    Count,
    Sum(Scalar),
    Minimum(Scalar),
    Maximum(Scalar),
}

/// A grouped column. The index of a row's group is the sum of `(value - low) * stride` over the keys.
#[derive(Clone, Debug)]
pub struct Key {
    pub column: Column,
    pub low: i64,
    pub size: usize,
    pub stride: usize,
}

/// How an output cell of a group is computed from its accumulators.
#[derive(Clone, Copy, Debug)]
pub enum Cell {
    Key(usize),
    Count,
    Sum { slot: usize, scale: u8 },
    Average { slot: usize, scale: u8 },
    Extreme { slot: usize, kind: Kind },
}

/// What is done with the rows that pass the filter.
#[derive(Clone, Debug)]
pub enum Sink {
    Rows {
        outputs: Vec<Scalar>,
        kinds: Vec<Kind>,
    },
    Groups {
        keys: Vec<Key>,
        groups: usize,
        /// The first one counts the rows of the group.
        folds: Vec<Fold>,
        cells: Vec<Cell>,
        order: Vec<(usize, bool)>,
    },
}

/// A query that is ready to be compiled.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Conditions that must all hold, in the order in which they are tested.
    pub filter: Vec<Condition>,
    pub sink: Sink,
    pub limit: Option<u64>,
}

/// A column with more possible values cannot be grouped by.
const MAX_KEY_VALUES: i64 = 256;
/// The maximum number of groups of a query.
const MAX_GROUPS: usize = 1 << 16;

/// Types a query against the table that it will run over.
pub fn plan(query: &Query, table: &Table) -> Result<Plan, SqlError> {
    let typing = Typing::new(table);
    let mut filter = Vec::new();
    if let Some(expr) = &query.filter {
        conjuncts(expr, &typing, &mut filter)?;
    }
    let sink = match &query.shape {
        Shape::Rows(exprs) => {
            let typed = exprs.iter().map(|expr| typing.scalar(expr)).collect::<Result<Vec<_>, _>>()?;
            let kinds = typed.iter().map(|t| t.kind).collect();
            let outputs = typed.into_iter().map(|t| t.scalar).collect();
            Sink::Rows { outputs, kinds }
        }
        Shape::Groups { keys, items, order } => groups(keys, items, order, table, &typing)?,
    };
    Ok(Plan { filter, sink, limit: query.limit })
}

/// Splits a filter at its ANDs, so a row is dropped at the first condition that fails.
fn conjuncts(expr: &Expr, typing: &Typing, list: &mut Vec<Condition>) -> Result<(), SqlError> {
    match expr {
        Expr::And(left, right) => {
            conjuncts(left, typing, list)?;
            conjuncts(right, typing, list)
        }
        other => {
            list.push(typing.condition(other)?);
            Ok(())
        }
    }
}

fn groups(
    columns: &[Column],
    items: &[Item],
    order: &[(usize, bool)],
    table: &Table,
    typing: &Typing,
) -> Result<Sink, SqlError> {
    let mut keys = Vec::with_capacity(columns.len());
    let mut groups = 1;
    // The last key varies fastest, so groups come in the order of the keys.
    for &column in columns.iter().rev() {
        let (low, high) = table.bounds(column);
        let size = high - low + 1;
        if size > MAX_KEY_VALUES {
            let name = column.name();
            return Err(format!("cannot group by `{name}`: it has more than {MAX_KEY_VALUES} possible values"));
        }
        let size = size as usize;
        keys.push(Key { column, low, size, stride: groups });
        groups *= size;
        if groups > MAX_GROUPS {
            return Err(format!("the GROUP BY has more than {MAX_GROUPS} possible groups"));
        }
    }
    keys.reverse();
    let mut folds = vec![Fold::Count];
    let cells = items
        .iter()
        .map(|item| match item {
            Item::Key(index) => Ok(Cell::Key(*index)),
            Item::Aggregate(aggregate) => cell(aggregate, typing, &mut folds),
        })
        .collect::<Result<_, _>>()?;
    Ok(Sink::Groups { keys, groups, folds, cells, order: order.to_vec() })
}

fn cell(aggregate: &Aggregate, typing: &Typing, folds: &mut Vec<Fold>) -> Result<Cell, SqlError> {
    // Aggregates of the same expression share an accumulator.
    let mut slot = |fold: Fold| {
        folds.iter().position(|known| *known == fold).unwrap_or_else(|| {
            folds.push(fold);
            folds.len() - 1
        })
    };
    let number = |expr, name: &str| {
        let typed = typing.scalar(expr)?;
        match typed.kind {
            Kind::Number(scale) => Ok((typed.scalar, scale)),
            _ => Err(format!("{name} needs a number")),
        }
    };
    Ok(match aggregate {
        Aggregate::Count => Cell::Count,
        Aggregate::Sum(expr) => {
            let (scalar, scale) = number(expr, "SUM")?;
            Cell::Sum { slot: slot(Fold::Sum(scalar)), scale }
        }
        Aggregate::Average(expr) => {
            let (scalar, scale) = number(expr, "AVG")?;
            Cell::Average { slot: slot(Fold::Sum(scalar)), scale }
        }
        Aggregate::Minimum(expr) => {
            let typed = typing.scalar(expr)?;
            Cell::Extreme { slot: slot(Fold::Minimum(typed.scalar)), kind: typed.kind }
        }
        Aggregate::Maximum(expr) => {
            let typed = typing.scalar(expr)?;
            Cell::Extreme { slot: slot(Fold::Maximum(typed.scalar)), kind: typed.kind }
        }
    })
}

/// The type of a column's values.
pub fn column_kind(column: Column) -> Kind {
    match column.kind() {
        ColumnType::Number(scale) => Kind::Number(scale),
        ColumnType::Date => Kind::Date,
        ColumnType::Text => Kind::Text(column),
    }
}

impl Plan {
    /// The columns that the query reads, each once.
    pub fn columns(&self) -> Vec<Column> {
        let mut columns = Vec::new();
        for condition in &self.filter {
            condition.columns(&mut columns);
        }
        match &self.sink {
            Sink::Rows { outputs, .. } => {
                for output in outputs {
                    output.columns(&mut columns);
                }
            }
            Sink::Groups { keys, folds, .. } => {
                columns.extend(keys.iter().map(|key| key.column));
                for fold in folds {
                    match fold {
                        Fold::Count => {}
                        Fold::Sum(s) | Fold::Minimum(s) | Fold::Maximum(s) => {
                            s.columns(&mut columns);
                        }
                    }
                }
            }
        }
        columns.sort_unstable_by_key(|column| column.index());
        columns.dedup();
        columns
    }
}

impl Scalar {
    fn columns(&self, list: &mut Vec<Column>) {
        match self {
            Scalar::Column(column) => list.push(*column),
            Scalar::Constant(_) => {}
            Scalar::Negate(inner) => inner.columns(list),
            Scalar::Arithmetic(_, left, right) => {
                left.columns(list);
                right.columns(list);
            }
            Scalar::Case(arms, otherwise) => {
                for (condition, result) in arms {
                    condition.columns(list);
                    result.columns(list);
                }
                otherwise.columns(list);
            }
        }
    }
}

impl Condition {
    fn columns(&self, list: &mut Vec<Column>) {
        match self {
            Condition::Constant(_) => {}
            Condition::Compare(_, left, right) => {
                left.columns(list);
                right.columns(list);
            }
            Condition::Member(column, _) => list.push(*column),
            Condition::All(parts) | Condition::Any(parts) => {
                for part in parts {
                    part.columns(list);
                }
            }
            Condition::Not(inner) => inner.columns(list),
        }
    }
}
