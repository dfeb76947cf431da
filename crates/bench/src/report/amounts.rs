//! Figures as text, with three digits and a unit.

use super::spread::Spread;
use crate::measure::scenario::Unit;

/// All three in the median's unit: `7.90 (7.51–8.33) µs`.
pub fn spread_text(unit: Unit, spread: Spread) -> String {
    let (size, name) = scale(unit, spread.median);
    let [median, min, max] = [spread.median, spread.min, spread.max].map(|value| number(unit, value / size));
    if min == max { format!("{median}{name}") } else { format!("{median} ({min}–{max}){name}") }
}

/// A figure with its unit, rounded to three digits.
pub fn amount(unit: Unit, value: f64) -> String {
    let (size, name) = scale(unit, value);
    format!("{}{name}", number(unit, value / size))
}

/// The unit in which a figure is printed, and its name.
fn scale(unit: Unit, value: f64) -> (f64, &'static str) {
    let of = |names: [&'static str; 3]| match value.abs() {
        size if size < 999.5 => (1.0, names[0]),
        size if size < 999_500.0 => (1e3, names[1]),
        _ => (1e6, names[2]),
    };
    match unit {
        Unit::Nanoseconds => of([" ns", " µs", " ms"]),
        Unit::PerSecond => of(["/s", " k/s", " M/s"]),
        Unit::Bytes if value.abs() >= 1e6 => (1e6, " MB"),
        Unit::Bytes => (1.0, " B"),
        Unit::Count => (1.0, ""),
        Unit::Ratio => (1.0, "×"),
    }
}

/// Three digits, or all digits before the decimal point.
fn number(unit: Unit, value: f64) -> String {
    let is_integer = (value - value.round()).abs() < 0.005 && unit != Unit::Ratio;
    match value.abs() {
        size if size >= 1e3 => grouped(value),
        size if size >= 100.0 || is_integer => format!("{:.0}", value.round() + 0.0),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// `12,345`.
pub fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::from(if value <= -0.5 { "-" } else { "" });
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

pub fn unit_name(unit: Unit) -> &'static str {
    match unit {
        Unit::Nanoseconds => "ns",
        Unit::PerSecond => "per second",
        Unit::Bytes => "bytes",
        Unit::Count => "count",
        Unit::Ratio => "ratio",
    }
}
