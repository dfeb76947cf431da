//! A plain interpreter. Every compiled answer is checked against its answer.
//!
//! It evaluates the expressions of a [`Query`] row by row. Values carry their own scale, texts are compared as texts,
//! and groups are collected in a hash map. It shares no plans, bounds, dictionary order or machine code with the
//! compiled path, and it is slow.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::ops::Range;

use crate::data::{Column, ColumnType, Table};
use crate::query::{Aggregate, Arithmetic, Comparison, Expr, Item, Query, Shape};
use crate::value::{Answer, Value};

/// The value of an expression in one row.
#[derive(Clone, Copy, Debug)]
enum Datum<'a> {
    Number(i128, u8),
    Date(i64),
    /// A text, and its column unless it is a literal.
    Text(&'a str, Option<Column>),
    Bool(bool),
}

/// The planner checks types before a query is interpreted.
const UNTYPED: &str = "the planner accepted an expression of mixed types";

/// Runs a query over a range of rows.
pub fn interpret(query: &Query, table: &Table, rows: Range<usize>) -> Answer {
    let passing = rows.filter(|&row| match &query.filter {
        Some(filter) => truth(filter, table, row),
        None => true,
    });
    let limit = query.limit.map_or(usize::MAX, |limit| limit as usize);
    match &query.shape {
        Shape::Rows(exprs) => {
            let mut answer = Answer::new(exprs.len());
            for row in passing.take(limit) {
                answer.push(exprs.iter().map(|e| value(evaluate(e, table, row), table)));
            }
            answer
        }
        Shape::Groups { keys, items, order } => {
            let mut groups: HashMap<Vec<i64>, Group> = HashMap::new();
            if keys.is_empty() {
                groups.insert(Vec::new(), Group::new(items));
            }
            let mut key = Vec::with_capacity(keys.len());
            for row in passing {
                key.clear();
                key.extend(keys.iter().map(|&column| table.value(column, row)));
                match groups.get_mut(&key) {
                    Some(group) => group.add(items, table, row),
                    None => {
                        let mut group = Group::new(items);
                        group.add(items, table, row);
                        groups.insert(key.clone(), group);
                    }
                }
            }
            let mut groups: Vec<(Vec<i64>, Group)> = groups.into_iter().collect();
            groups.sort_by(|(a, _), (b, _)| by_keys(a, b, keys, order, table));
            let mut answer = Answer::new(items.len());
            for (key, group) in groups.into_iter().take(limit) {
                answer.push(group.finish(&key, keys, items, table));
            }
            answer
        }
    }
}

fn by_keys(a: &[i64], b: &[i64], keys: &[Column], order: &[(usize, bool)], table: &Table) -> Ordering {
    let compare = |index: usize| {
        let left = stored(keys[index], a[index], table);
        compare(left, stored(keys[index], b[index], table))
    };
    for &(index, descending) in order {
        let ordering = compare(index);
        if ordering != Ordering::Equal {
            return if descending { ordering.reverse() } else { ordering };
        }
    }
    let open = (0..keys.len()).map(compare);
    open.fold(Ordering::Equal, Ordering::then)
}

/// The aggregates of one group so far.
struct Group<'a> {
    count: u64,
    partial: Vec<Option<Datum<'a>>>,
}

impl<'a> Group<'a> {
    fn new(items: &[Item]) -> Group<'a> {
        Group { count: 0, partial: vec![None; items.len()] }
    }

    fn add(&mut self, items: &'a [Item], table: &'a Table, row: usize) {
        self.count += 1;
        for (item, partial) in items.iter().zip(&mut self.partial) {
            let Item::Aggregate(aggregate) = item else {
                continue;
            };
            let (expr, extreme) = match aggregate {
                Aggregate::Count => continue,
                Aggregate::Sum(expr) | Aggregate::Average(expr) => (expr, None),
                Aggregate::Minimum(expr) => (expr, Some(Ordering::Less)),
                Aggregate::Maximum(expr) => (expr, Some(Ordering::Greater)),
            };
            let new = evaluate(expr, table, row);
            *partial = Some(match (*partial, extreme) {
                (None, _) => new,
                (Some(old), None) => arithmetic(Arithmetic::Add, old, new),
                (Some(old), Some(wanted)) if compare(new, old) == wanted => new,
                (Some(old), Some(_)) => old,
            });
        }
    }

    fn finish(self, key: &[i64], keys: &[Column], items: &[Item], table: &Table) -> Vec<Value> {
        let cells = items.iter().zip(self.partial);
        cells
            .map(|(item, partial)| match (item, partial) {
                (Item::Key(index), _) => value(stored(keys[*index], key[*index], table), table),
                (Item::Aggregate(Aggregate::Count), _) => Value::Number { units: i128::from(self.count), scale: 0 },
                (_, None) => Value::Null,
                (Item::Aggregate(Aggregate::Average(_)), Some(Datum::Number(sum, scale))) => {
                    Value::Average { sum, scale, count: self.count }
                }
                (_, Some(datum)) => value(datum, table),
            })
            .collect()
    }
}

/// A stored value, read according to its column's type.
fn stored(column: Column, value: i64, table: &Table) -> Datum<'_> {
    match column.kind() {
        ColumnType::Number(scale) => Datum::Number(i128::from(value), scale),
        ColumnType::Date => Datum::Date(value),
        ColumnType::Text => Datum::Text(table.text(column, value as u8), Some(column)),
    }
}

fn value(datum: Datum, table: &Table) -> Value {
    match datum {
        Datum::Number(units, scale) => Value::Number { units, scale },
        Datum::Date(days) => Value::Date(days as i32),
        Datum::Text(text, Some(column)) => {
            let index = table.dictionary(column).iter().position(|known| *known == text);
            Value::Text(column, index.expect("a stored text is in the dictionary") as u8)
        }
        Datum::Text(_, None) | Datum::Bool(_) => unreachable!("{UNTYPED}"),
    }
}

fn truth(expr: &Expr, table: &Table, row: usize) -> bool {
    match evaluate(expr, table, row) {
        Datum::Bool(truth) => truth,
        _ => unreachable!("{UNTYPED}"),
    }
}

fn evaluate<'a>(expr: &'a Expr, table: &'a Table, row: usize) -> Datum<'a> {
    let eval = |expr| evaluate(expr, table, row);
    let holds = |expr| truth(expr, table, row);
    match expr {
        Expr::Column(column) => stored(*column, table.value(*column, row), table),
        Expr::Number { units, scale } => Datum::Number(i128::from(*units), *scale),
        Expr::Text(text) => Datum::Text(text, None),
        Expr::Date(days) => Datum::Date(i64::from(*days)),
        Expr::Bool(truth) => Datum::Bool(*truth),
        Expr::Negate(inner) => match eval(inner) {
            Datum::Number(units, scale) => Datum::Number(-units, scale),
            _ => unreachable!("{UNTYPED}"),
        },
        Expr::Arithmetic(op, left, right) => arithmetic(*op, eval(left), eval(right)),
        Expr::Compare(op, left, right) => {
            let ordering = compare(eval(left), eval(right));
            Datum::Bool(match op {
                Comparison::Equal => ordering.is_eq(),
                Comparison::NotEqual => ordering.is_ne(),
                Comparison::Less => ordering.is_lt(),
                Comparison::LessOrEqual => ordering.is_le(),
                Comparison::Greater => ordering.is_gt(),
                Comparison::GreaterOrEqual => ordering.is_ge(),
            })
        }
        Expr::And(left, right) => Datum::Bool(holds(left) && holds(right)),
        Expr::Or(left, right) => Datum::Bool(holds(left) || holds(right)),
        Expr::Not(inner) => Datum::Bool(!holds(inner)),
        Expr::Between(middle, low, high) => {
            let middle = eval(middle);
            Datum::Bool(compare(middle, eval(low)).is_ge() && compare(middle, eval(high)).is_le())
        }
        Expr::In(needle, list) => {
            let needle = eval(needle);
            Datum::Bool(list.iter().any(|entry| compare(needle, eval(entry)).is_eq()))
        }
        Expr::Case(arms, otherwise) => {
            let arm = arms.iter().find(|(condition, _)| holds(condition));
            eval(arm.map_or(otherwise.as_ref(), |(_, result)| result))
        }
    }
}

/// Two numbers in units of the finer of their scales.
fn align(a: i128, a_scale: u8, b: i128, b_scale: u8) -> (i128, i128, u8) {
    let factor = |gap: u8| 10_i128.pow(u32::from(gap));
    match a_scale.cmp(&b_scale) {
        Ordering::Less => (a * factor(b_scale - a_scale), b, b_scale),
        Ordering::Equal => (a, b, a_scale),
        Ordering::Greater => (a, b * factor(a_scale - b_scale), a_scale),
    }
}

fn arithmetic<'a>(op: Arithmetic, left: Datum<'a>, right: Datum<'a>) -> Datum<'a> {
    use Datum::{Date, Number};
    match (op, left, right) {
        (Arithmetic::Multiply, Number(a, x), Number(b, y)) => Number(a * b, x + y),
        (Arithmetic::Add, Number(a, x), Number(b, y)) => {
            let (a, b, scale) = align(a, x, b, y);
            Number(a + b, scale)
        }
        (Arithmetic::Subtract, Number(a, x), Number(b, y)) => {
            let (a, b, scale) = align(a, x, b, y);
            Number(a - b, scale)
        }
        (Arithmetic::Subtract, Date(a), Date(b)) => Number(i128::from(a - b), 0),
        (Arithmetic::Add, Date(date), Number(days, 0)) | (Arithmetic::Add, Number(days, 0), Date(date)) => {
            Date(date + days as i64)
        }
        (Arithmetic::Subtract, Date(date), Number(days, 0)) => Date(date - days as i64),
        _ => unreachable!("{UNTYPED}"),
    }
}

fn compare(left: Datum, right: Datum) -> Ordering {
    match (left, right) {
        (Datum::Number(a, x), Datum::Number(b, y)) => {
            let (a, b, _) = align(a, x, b, y);
            a.cmp(&b)
        }
        (Datum::Date(a), Datum::Date(b)) => a.cmp(&b),
        (Datum::Text(a, _), Datum::Text(b, _)) => a.cmp(b),
        _ => unreachable!("{UNTYPED}"),
    }
}
