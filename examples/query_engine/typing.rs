//! The types of expressions: kinds, scales and bounds.
//!
//! [`crate::plan`] states the rules. Texts occur only as a text column, and as literals that are compared with one. A
//! text that is missing from the column's dictionary still has a position in the sort order.

use crate::data::{Column, Table};
use crate::date;
use crate::expression::SqlError;
use crate::plan::{Condition, Scalar, column_kind};
use crate::query::{Arithmetic, Comparison, Expr};
use crate::value::power_of_ten;

/// The type of a scalar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number with this many decimals.
    Number(u8),
    Date,
    /// A code into the dictionary of this column.
    Text(Column),
}

/// A scalar, its type and the bounds of its value.
#[derive(Clone, Debug)]
pub struct Typed {
    pub scalar: Scalar,
    pub kind: Kind,
    low: i64,
    high: i64,
}

/// Types the expressions of queries over one table.
pub struct Typing<'a> {
    table: &'a Table,
}

/// A larger scale cannot come from a value that fits in 64 bits.
const LARGEST_SCALE: u8 = 18;
/// The days that dates can have.
const CALENDAR: std::ops::RangeInclusive<i128> = (date::FIRST_DAY as i128)..=(date::LAST_DAY as i128);

impl Typed {
    fn constant(units: i64, kind: Kind) -> Typed {
        Typed { scalar: Scalar::Constant(units), kind, low: units, high: units }
    }

    fn new(scalar: Scalar, kind: Kind, bounds: &[i128]) -> Result<Typed, SqlError> {
        let fitting: Option<Vec<i64>> = bounds.iter().map(|&bound| i64::try_from(bound).ok()).collect();
        let scale_fits = !matches!(kind, Kind::Number(scale) if scale > LARGEST_SCALE);
        if kind == Kind::Date && bounds.iter().any(|bound| !CALENDAR.contains(bound)) {
            return Err("a date may leave the years 1 to 9999".to_owned());
        }
        match fitting {
            Some(bounds) if scale_fits => {
                let low = bounds.iter().copied().min().unwrap_or(0);
                let high = bounds.iter().copied().max().unwrap_or(0);
                Ok(Typed { scalar, kind, low, high })
            }
            _ => Err("an intermediate result may not fit in 64 bits".to_owned()),
        }
    }

    /// The same number with more decimals.
    fn rescale(self, from: u8, to: u8) -> Result<Typed, SqlError> {
        if from == to {
            return Ok(self);
        }
        let factor =
            Typed::constant(i64::try_from(power_of_ten(to - from)).unwrap_or(i64::MAX), Kind::Number(to - from));
        combine(Arithmetic::Multiply, self, factor, Kind::Number(to))
    }
}

/// An arithmetic operation on operands of the right scales.
fn combine(op: Arithmetic, left: Typed, right: Typed, kind: Kind) -> Result<Typed, SqlError> {
    let apply = |a: i64, b: i64| {
        let (a, b) = (i128::from(a), i128::from(b));
        match op {
            Arithmetic::Add => a + b,
            Arithmetic::Subtract => a - b,
            Arithmetic::Multiply => a * b,
        }
    };
    // Each operation is monotonic in either operand, so the extremes are among the four corners.
    let corners = [
        apply(left.low, right.low),
        apply(left.low, right.high),
        apply(left.high, right.low),
        apply(left.high, right.high),
    ];
    let scalar = match (&left.scalar, &right.scalar) {
        (Scalar::Constant(_), Scalar::Constant(_)) => {
            let typed = Typed::new(Scalar::Constant(0), kind, &corners)?;
            return Ok(Typed::constant(typed.low, kind));
        }
        _ => Scalar::Arithmetic(op, Box::new(left.scalar), Box::new(right.scalar)),
    };
    Typed::new(scalar, kind, &corners)
}

/// Brings two numbers to the same scale.
fn align(left: Typed, a: u8, right: Typed, b: u8) -> Result<(Typed, Typed, u8), SqlError> {
    let scale = a.max(b);
    Ok((left.rescale(a, scale)?, right.rescale(b, scale)?, scale))
}

impl<'a> Typing<'a> {
    pub fn new(table: &'a Table) -> Typing<'a> {
        Typing { table }
    }

    pub fn scalar(&self, expr: &Expr) -> Result<Typed, SqlError> {
        match expr {
            Expr::Column(column) => {
                let (low, high) = self.table.bounds(*column);
                let scalar = Scalar::Column(*column);
                Ok(Typed { scalar, kind: column_kind(*column), low, high })
            }
            Expr::Number { units, scale } => Ok(Typed::constant(*units, Kind::Number(*scale))),
            Expr::Date(days) => Ok(Typed::constant(i64::from(*days), Kind::Date)),
            Expr::Text(text) => Err(format!("the text '{text}' can only be compared with a text column")),
            Expr::Negate(inner) => {
                let zero = Typed::constant(0, Kind::Number(0));
                let inner = self.scalar(inner)?;
                let Kind::Number(_) = inner.kind else {
                    return Err("only a number can be negated".to_owned());
                };
                let kind = inner.kind;
                let mut typed = combine(Arithmetic::Subtract, zero, inner.clone(), kind)?;
                if !matches!(typed.scalar, Scalar::Constant(_)) {
                    typed.scalar = Scalar::Negate(Box::new(inner.scalar));
                }
                Ok(typed)
            }
            Expr::Arithmetic(op, left, right) => self.arithmetic(*op, left, right),
            Expr::Case(arms, otherwise) => self.case(arms, otherwise),
            _ => Err("a condition cannot be used as a value".to_owned()),
        }
    }

    fn arithmetic(&self, op: Arithmetic, left: &Expr, right: &Expr) -> Result<Typed, SqlError> {
        use Arithmetic::{Add, Multiply, Subtract};
        let (left, right) = (self.scalar(left)?, self.scalar(right)?);
        match (op, left.kind, right.kind) {
            (Multiply, Kind::Number(a), Kind::Number(b)) => {
                let scale = a.saturating_add(b);
                combine(op, left, right, Kind::Number(scale))
            }
            (_, Kind::Number(a), Kind::Number(b)) => {
                let (left, right, scale) = align(left, a, right, b)?;
                combine(op, left, right, Kind::Number(scale))
            }
            (Subtract, Kind::Date, Kind::Date) => combine(op, left, right, Kind::Number(0)),
            (Add | Subtract, Kind::Date, Kind::Number(0)) => combine(op, left, right, Kind::Date),
            (Add, Kind::Number(0), Kind::Date) => combine(op, left, right, Kind::Date),
            _ => Err("arithmetic is defined for numbers, and for dates and days".to_owned()),
        }
    }

    fn case(&self, arms: &[(Expr, Expr)], otherwise: &Expr) -> Result<Typed, SqlError> {
        let mut conditions = Vec::with_capacity(arms.len());
        let mut results = Vec::with_capacity(arms.len() + 1);
        for (condition, result) in arms {
            conditions.push(self.condition(condition)?);
            results.push(self.scalar(result)?);
        }
        results.push(self.scalar(otherwise)?);
        let scale_of = |typed: &Typed| match typed.kind {
            Kind::Number(scale) => Some(scale),
            _ => None,
        };
        let scales: Option<Vec<u8>> = results.iter().map(scale_of).collect();
        if let Some(scales) = scales {
            let scale = scales.iter().copied().max().unwrap_or(0);
            results = results
                .into_iter()
                .zip(scales)
                .map(|(typed, scale_of_result)| typed.rescale(scale_of_result, scale))
                .collect::<Result<_, _>>()?;
        } else if results.iter().any(|typed| typed.kind != results[0].kind) {
            return Err("the results of a CASE must have the same type".to_owned());
        }
        let kind = results[0].kind;
        let bounds: Vec<i128> =
            results.iter().flat_map(|typed| [i128::from(typed.low), i128::from(typed.high)]).collect();
        let mut scalars = results.into_iter().map(|typed| typed.scalar);
        let arms = conditions.into_iter().zip(scalars.by_ref()).collect();
        let last = scalars.next().unwrap_or(Scalar::Constant(0));
        Typed::new(Scalar::Case(arms, Box::new(last)), kind, &bounds)
    }

    pub fn condition(&self, expr: &Expr) -> Result<Condition, SqlError> {
        Ok(match expr {
            Expr::Bool(truth) => Condition::Constant(*truth),
            Expr::Compare(op, left, right) => self.compare(*op, left, right)?,
            Expr::And(left, right) => Condition::All(vec![self.condition(left)?, self.condition(right)?]),
            Expr::Or(left, right) => Condition::Any(vec![self.condition(left)?, self.condition(right)?]),
            Expr::Not(inner) => Condition::Not(Box::new(self.condition(inner)?)),
            Expr::Between(value, low, high) => Condition::All(vec![
                self.compare(Comparison::GreaterOrEqual, value, low)?,
                self.compare(Comparison::LessOrEqual, value, high)?,
            ]),
            Expr::In(value, list) => self.member(value, list)?,
            _ => return Err("a value cannot be used as a condition".to_owned()),
        })
    }

    fn compare(&self, op: Comparison, left: &Expr, right: &Expr) -> Result<Condition, SqlError> {
        match (left, right) {
            (Expr::Text(a), Expr::Text(b)) => Ok(Condition::Constant(holds(op, a, b))),
            (Expr::Text(text), other) => self.compare_text(mirror(op), other, text),
            (other, Expr::Text(text)) => self.compare_text(op, other, text),
            _ => {
                let (left, right) = (self.scalar(left)?, self.scalar(right)?);
                let (left, right) = match (left.kind, right.kind) {
                    (Kind::Number(a), Kind::Number(b)) => {
                        let (left, right, _) = align(left, a, right, b)?;
                        (left, right)
                    }
                    (a, b) if a == b => (left, right),
                    (Kind::Text(_), Kind::Text(_)) => {
                        return Err("texts of different columns cannot be compared".to_owned());
                    }
                    _ => return Err("values of different types cannot be compared".to_owned()),
                };
                Ok(Condition::Compare(op, left.scalar, right.scalar))
            }
        }
    }

    /// A comparison with a literal text becomes a comparison with a position in the sorted dictionary. Codes below
    /// `below` are smaller texts; codes from `above` on are larger ones.
    fn compare_text(&self, op: Comparison, left: &Expr, text: &str) -> Result<Condition, SqlError> {
        let left = self.scalar(left)?;
        let Kind::Text(column) = left.kind else {
            return Err(match left.kind {
                Kind::Date => format!("a date is compared with a date literal: write date '{text}'"),
                _ => format!("a number cannot be compared with the text '{text}'"),
            });
        };
        let dictionary = self.table.dictionary(column);
        let below = dictionary.partition_point(|known| *known < text) as i64;
        let above = dictionary.partition_point(|known| *known <= text) as i64;
        let against = |op, code| Condition::Compare(op, left.scalar.clone(), Scalar::Constant(code));
        Ok(match op {
            Comparison::Equal if below == above => Condition::Constant(false),
            Comparison::NotEqual if below == above => Condition::Constant(true),
            Comparison::Equal | Comparison::NotEqual => against(op, below),
            Comparison::Less => against(Comparison::Less, below),
            Comparison::GreaterOrEqual => against(Comparison::GreaterOrEqual, below),
            Comparison::LessOrEqual => against(Comparison::Less, above),
            Comparison::Greater => against(Comparison::GreaterOrEqual, above),
        })
    }

    fn member(&self, value: &Expr, list: &[Expr]) -> Result<Condition, SqlError> {
        let texts: Option<Vec<&str>> = list
            .iter()
            .map(|entry| match entry {
                Expr::Text(text) => Some(text.as_str()),
                _ => None,
            })
            .collect();
        // A text column and a list of literals become a table of bytes.
        if let (Expr::Column(column), Some(texts)) = (value, texts)
            && column_kind(*column) == Kind::Text(*column)
        {
            let dictionary = self.table.dictionary(*column);
            let table = dictionary.iter().map(|known| texts.contains(known)).collect();
            return Ok(Condition::Member(*column, table));
        }
        let any = list.iter().map(|entry| self.compare(Comparison::Equal, value, entry)).collect::<Result<_, _>>()?;
        Ok(Condition::Any(any))
    }
}

/// The comparison with its sides exchanged.
fn mirror(op: Comparison) -> Comparison {
    match op {
        Comparison::Less => Comparison::Greater,
        Comparison::LessOrEqual => Comparison::GreaterOrEqual,
        Comparison::Greater => Comparison::Less,
        Comparison::GreaterOrEqual => Comparison::LessOrEqual,
        same => same,
    }
}

fn holds(op: Comparison, a: &str, b: &str) -> bool {
    match op {
        Comparison::Equal => a == b,
        Comparison::NotEqual => a != b,
        Comparison::Less => a < b,
        Comparison::LessOrEqual => a <= b,
        Comparison::Greater => a > b,
        Comparison::GreaterOrEqual => a >= b,
    }
}
