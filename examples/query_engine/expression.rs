//! Translates the SQL parser's expressions into those of [`crate::query`].
//!
//! It resolves column names, reads literals, folds intervals into dates and expands shorthands (`CASE x WHEN …`). It
//! does not check types. For an unsupported construct it returns an error of one sentence.

use sqlparser::ast;

use crate::data::Column;
use crate::date;
use crate::query::{Arithmetic, Comparison, Expr};

/// The maximum number of decimals of a literal.
const LITERAL_DECIMALS: usize = 9;

/// Why a query cannot run, in one sentence.
pub type SqlError = String;

/// Resolves a scalar or boolean expression.
pub fn resolve(expr: &ast::Expr) -> Result<Expr, SqlError> {
    match expr {
        ast::Expr::Nested(inner) => resolve(inner),
        ast::Expr::Identifier(_) | ast::Expr::CompoundIdentifier(_) => Ok(Expr::Column(column(expr)?)),
        ast::Expr::Value(value) => literal(&value.value),
        ast::Expr::TypedString(text) => date_literal(text),
        ast::Expr::UnaryOp { op, expr } => unary(*op, expr),
        ast::Expr::BinaryOp { left, op, right } => binary(left, op, right),
        ast::Expr::Between { expr, negated, low, high } => {
            let between = Expr::Between(boxed(expr)?, boxed(low)?, boxed(high)?);
            Ok(negate_if(*negated, between))
        }
        ast::Expr::InList { expr, list, negated } => {
            let list = list.iter().map(resolve).collect::<Result<_, _>>()?;
            Ok(negate_if(*negated, Expr::In(boxed(expr)?, list)))
        }
        ast::Expr::Case { operand, conditions, else_result, .. } => {
            case(operand.as_deref(), conditions, else_result.as_deref())
        }
        ast::Expr::Function(_) => Err(format!("the function call `{expr}` is not supported here")),
        ast::Expr::IsNull(_) | ast::Expr::IsNotNull(_) => {
            Err(format!("`{expr}` is not supported: no column of lineitem can be NULL"))
        }
        _ => Err(format!("the expression `{expr}` is not supported")),
    }
}

/// Resolves an expression that must name a column.
pub fn column(expr: &ast::Expr) -> Result<Column, SqlError> {
    let name = match expr {
        ast::Expr::Identifier(name) => name,
        ast::Expr::CompoundIdentifier(path) => match path.as_slice() {
            [table, name] if table.value.eq_ignore_ascii_case("lineitem") => name,
            _ => return Err(format!("`{expr}` is not a column of lineitem")),
        },
        _ => return Err(format!("`{expr}` is not the name of a column")),
    };
    let missing = || format!("lineitem has no column `{}`", name.value);
    Column::by_name(&name.value).ok_or_else(missing)
}

fn boxed(expr: &ast::Expr) -> Result<Box<Expr>, SqlError> {
    resolve(expr).map(Box::new)
}

fn negate_if(negated: bool, expr: Expr) -> Expr {
    if negated { Expr::Not(Box::new(expr)) } else { expr }
}

fn literal(value: &ast::Value) -> Result<Expr, SqlError> {
    match value {
        ast::Value::Number(digits, _) => number(digits),
        ast::Value::SingleQuotedString(text) => Ok(Expr::Text(text.clone())),
        ast::Value::Boolean(truth) => Ok(Expr::Bool(*truth)),
        ast::Value::Null => Err("NULL literals are not supported".to_owned()),
        other => Err(format!("the literal `{other}` is not supported")),
    }
}

fn number(digits: &str) -> Result<Expr, SqlError> {
    let (integer, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let unsupported = || format!("the number `{digits}` is not a decimal that this engine can store");
    let plain = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if !plain(integer) || !plain(fraction) || fraction.len() > LITERAL_DECIMALS {
        return Err(unsupported());
    }
    let units = format!("{integer}{fraction}").parse().map_err(|_| unsupported())?;
    Ok(Expr::Number { units, scale: fraction.len() as u8 })
}

fn date_literal(text: &ast::TypedString) -> Result<Expr, SqlError> {
    let ast::Value::SingleQuotedString(value) = &text.value.value else {
        return Err(format!("`{text}` is not a date literal"));
    };
    if text.data_type != ast::DataType::Date {
        return Err(format!("`{text}` is not supported: the only typed literal is date"));
    }
    let days = date::parse(value).ok_or_else(|| format!("`{value}` is not a date"))?;
    Ok(Expr::Date(days))
}

fn unary(op: ast::UnaryOperator, expr: &ast::Expr) -> Result<Expr, SqlError> {
    match op {
        ast::UnaryOperator::Plus => resolve(expr),
        ast::UnaryOperator::Minus => Ok(Expr::Negate(boxed(expr)?)),
        ast::UnaryOperator::Not => Ok(Expr::Not(boxed(expr)?)),
        other => Err(format!("the operator `{other}` is not supported")),
    }
}

fn binary(left: &ast::Expr, op: &ast::BinaryOperator, right: &ast::Expr) -> Result<Expr, SqlError> {
    use ast::BinaryOperator as Op;
    if let ast::Expr::Interval(interval) = right {
        return match op {
            Op::Plus => add_interval(resolve(left)?, interval, 1),
            Op::Minus => add_interval(resolve(left)?, interval, -1),
            _ => Err(format!("an interval cannot be used with `{op}`")),
        };
    }
    let arithmetic = |op| Ok(Expr::Arithmetic(op, boxed(left)?, boxed(right)?));
    let compare = |op| Ok(Expr::Compare(op, boxed(left)?, boxed(right)?));
    match op {
        Op::Plus => arithmetic(Arithmetic::Add),
        Op::Minus => arithmetic(Arithmetic::Subtract),
        Op::Multiply => arithmetic(Arithmetic::Multiply),
        Op::Divide | Op::Modulo => {
            Err(format!("`{op}` is not supported: its result would be rounded, but all answers are exact"))
        }
        Op::Eq => compare(Comparison::Equal),
        Op::NotEq => compare(Comparison::NotEqual),
        Op::Lt => compare(Comparison::Less),
        Op::LtEq => compare(Comparison::LessOrEqual),
        Op::Gt => compare(Comparison::Greater),
        Op::GtEq => compare(Comparison::GreaterOrEqual),
        Op::And => Ok(Expr::And(boxed(left)?, boxed(right)?)),
        Op::Or => Ok(Expr::Or(boxed(left)?, boxed(right)?)),
        other => Err(format!("the operator `{other}` is not supported")),
    }
}

/// Adds an interval to a date. If the date is a literal, the result is a literal; otherwise the interval becomes a
/// number of days. Months have no fixed number of days, so they can only be added to literals.
fn add_interval(left: Expr, interval: &ast::Interval, sign: i32) -> Result<Expr, SqlError> {
    let unsupported = || format!("the interval `{interval}` is not supported");
    let ast::Expr::Value(value) = interval.value.as_ref() else {
        return Err(unsupported());
    };
    let amount = match &value.value {
        ast::Value::SingleQuotedString(text) => text.trim(),
        ast::Value::Number(text, _) => text.as_str(),
        _ => return Err(unsupported()),
    };
    let amount: i32 = amount.parse().map_err(|_| unsupported())?;
    // This exceeds every date, and keeps the sums below from overflowing.
    if amount.unsigned_abs() > 1_000_000 || interval.last_field.is_some() {
        return Err(unsupported());
    }
    let amount = amount * sign;
    use ast::DateTimeField as Field;
    let months = match &interval.leading_field {
        Some(Field::Day | Field::Days) => None,
        Some(Field::Month | Field::Months) => Some(amount),
        Some(Field::Year | Field::Years) => Some(amount * 12),
        _ => return Err(unsupported()),
    };
    let outside = || format!("the interval `{interval}` leads to a date outside the calendar");
    match (left, months) {
        (Expr::Date(days), None) => Some(days + amount)
            .filter(|days| (date::FIRST_DAY..=date::LAST_DAY).contains(days))
            .map(Expr::Date)
            .ok_or_else(outside),
        (Expr::Date(days), Some(months)) => date::add_months(days, months).map(Expr::Date).ok_or_else(outside),
        (left, None) => {
            let days = Expr::Number { units: i64::from(amount), scale: 0 };
            Ok(Expr::Arithmetic(Arithmetic::Add, Box::new(left), Box::new(days)))
        }
        (_, Some(_)) => Err(format!("the interval `{interval}` can only be added to a date literal")),
    }
}

fn case(
    operand: Option<&ast::Expr>,
    conditions: &[ast::CaseWhen],
    otherwise: Option<&ast::Expr>,
) -> Result<Expr, SqlError> {
    let Some(otherwise) = otherwise else {
        return Err("CASE needs an ELSE, because this engine has no NULL within a row".to_owned());
    };
    let mut arms = Vec::with_capacity(conditions.len());
    for arm in conditions {
        let condition = match operand {
            Some(operand) => Expr::Compare(Comparison::Equal, boxed(operand)?, boxed(&arm.condition)?),
            None => resolve(&arm.condition)?,
        };
        arms.push((condition, resolve(&arm.result)?));
    }
    Ok(Expr::Case(arms, boxed(otherwise)?))
}
