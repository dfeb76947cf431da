//! The values that queries return, and answers made of them. All values are exact.
//!
//! A decimal is an integer number of units of 10^-scale, so no value is rounded before it is compared. An average is
//! stored as its sum and its count. It is rounded only when it is printed: to two decimals, halves away from zero.
//! There is no floating point.

use crate::data::{Column, Table};
use crate::date;

/// One cell of an answer.
#[derive(Clone, Copy, Debug)]
pub enum Value {
    /// The result of an aggregate other than COUNT over no rows.
    Null,
    /// `units` times 10^-`scale`.
    Number { units: i128, scale: u8 },
    /// `sum` units of 10^-`scale`, divided by `count`.
    Average { sum: i128, scale: u8, count: u64 },
    /// Days since 1970-01-01.
    Date(i32),
    /// An entry of a column's dictionary.
    Text(Column, u8),
}

impl PartialEq for Value {
    /// Compares the numbers, not their scales: 1.5 equals 1.50.
    fn eq(&self, other: &Value) -> bool {
        use Value::{Average, Date, Null, Number, Text};
        match (*self, *other) {
            (Null, Null) => true,
            (Date(a), Date(b)) => a == b,
            (Text(a, x), Text(b, y)) => a == b && x == y,
            (Number { units: a, scale: x }, Number { units: b, scale: y }) => is_same_number(a, x, b, y),
            (Average { sum: a, scale: x, count: m }, Average { sum: b, scale: y, count: n }) => {
                m == n && is_same_number(a, x, b, y)
            }
            _ => false,
        }
    }
}

/// Whether two decimals of different scales are the same number. It divides the finer one, because a multiplication
/// could overflow.
fn is_same_number(a: i128, a_scale: u8, b: i128, b_scale: u8) -> bool {
    let (fine, coarse, gap) = if a_scale >= b_scale { (a, b, a_scale - b_scale) } else { (b, a, b_scale - a_scale) };
    let unit = power_of_ten(gap);
    fine % unit == 0 && fine / unit == coarse
}

/// 10^`exponent`. The planner keeps scales small enough.
pub fn power_of_ten(exponent: u8) -> i128 {
    10_i128.pow(u32::from(exponent))
}

/// `numerator / denominator`, rounded to the nearest integer, halves away from zero. The denominator is positive.
pub fn divide_rounding(numerator: i128, denominator: i128) -> i128 {
    let quotient = numerator / denominator;
    let rest = (numerator % denominator).abs();
    // The same as `2 * rest >= denominator`, without a product that could overflow.
    if rest >= denominator - rest { quotient + numerator.signum() } else { quotient }
}

/// `units` of 10^-`scale` in units of 10^-2.
pub fn round_to_cents(units: i128, scale: u8) -> i128 {
    if scale <= 2 { units * power_of_ten(2 - scale) } else { divide_rounding(units, power_of_ten(scale - 2)) }
}

/// The average in units of 10^-2.
fn average_in_cents(sum: i128, scale: u8, count: u64) -> i128 {
    let count = i128::from(count.max(1));
    if scale <= 2 {
        divide_rounding(sum * power_of_ten(2 - scale), count)
    } else {
        // A single division, so the value is rounded only once.
        divide_rounding(sum, count * power_of_ten(scale - 2))
    }
}

/// Prints a decimal with all its digits.
pub fn format_decimal(units: i128, scale: u8) -> String {
    if scale == 0 {
        return units.to_string();
    }
    let width = usize::from(scale) + 1;
    let digits = format!("{:0width$}", units.unsigned_abs());
    let (whole, fraction) = digits.split_at(digits.len() - usize::from(scale));
    let sign = if units < 0 { "-" } else { "" };
    format!("{sign}{whole}.{fraction}")
}

impl Value {
    /// The value with all its digits; an average has two decimals.
    pub fn display(&self, table: &Table) -> String {
        match *self {
            Value::Null => "NULL".to_owned(),
            Value::Number { units, scale } => format_decimal(units, scale),
            Value::Average { sum, scale, count } => format_decimal(average_in_cents(sum, scale, count), 2),
            Value::Date(days) => date::format(days),
            Value::Text(column, code) => table.text(column, code).to_owned(),
        }
    }

    /// The value as TPC-H publishes it: decimals are rounded to two places.
    pub fn display_published(&self, table: &Table) -> String {
        match *self {
            Value::Number { units, scale } if scale > 2 => format_decimal(round_to_cents(units, scale), 2),
            other => other.display(table),
        }
    }
}

/// The rows of an answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    width: usize,
    cells: Vec<Value>,
}

impl Answer {
    pub fn new(width: usize) -> Answer {
        Answer { width, cells: Vec::new() }
    }

    pub fn push(&mut self, row: impl IntoIterator<Item = Value>) {
        self.cells.extend(row);
        debug_assert_eq!(self.cells.len() % self.width, 0);
    }

    pub fn rows(&self) -> impl Iterator<Item = &[Value]> {
        self.cells.chunks(self.width.max(1))
    }

    pub fn len(&self) -> usize {
        self.cells.len() / self.width.max(1)
    }

    /// Describes the first difference between this answer and another.
    pub fn difference(&self, expected: &Answer, table: &Table) -> Option<String> {
        if self.len() != expected.len() {
            let (got, want) = (self.len(), expected.len());
            return Some(format!("{got} rows instead of {want}"));
        }
        let pairs = self.rows().zip(expected.rows()).enumerate();
        for (index, (got, want)) in pairs {
            if got != want {
                let show = |row: &[Value]| {
                    let cells: Vec<String> = row.iter().map(|v| v.display(table)).collect();
                    cells.join("|")
                };
                return Some(format!("row {index} is {} instead of {}", show(got), show(want)));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_round_away_from_zero() {
        assert_eq!(divide_rounding(5, 2), 3);
        assert_eq!(divide_rounding(-5, 2), -3);
        assert_eq!(divide_rounding(7, 3), 2);
        assert_eq!(divide_rounding(-7, 3), -2);
        assert_eq!(divide_rounding(0, 3), 0);
        assert_eq!(round_to_cents(1_2345, 4), 123);
        assert_eq!(round_to_cents(1_2350, 4), 124);
        assert_eq!(round_to_cents(7, 0), 700);
        assert_eq!(average_in_cents(1, 4, 3), 0);
        assert_eq!(average_in_cents(10, 0, 4), 250);
    }

    #[test]
    fn decimals_keep_their_leading_zeros_and_their_sign() {
        assert_eq!(format_decimal(5, 2), "0.05");
        assert_eq!(format_decimal(-5, 2), "-0.05");
        assert_eq!(format_decimal(-12345, 2), "-123.45");
        assert_eq!(format_decimal(12, 0), "12");
    }

    #[test]
    fn numbers_of_different_scale_can_be_equal() {
        let a = Value::Number { units: 15, scale: 1 };
        let b = Value::Number { units: 150, scale: 2 };
        let c = Value::Number { units: 151, scale: 2 };
        assert!(a == b && b == a && a != c);
    }
}
