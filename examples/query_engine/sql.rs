//! Parses SQL text into a [`Query`]: one SELECT over `lineitem`.
//!
//! The engine supports the clauses WHERE, GROUP BY, ORDER BY of grouped columns, and LIMIT. Everything else that the
//! parser accepts is an error, so no clause is silently ignored.

use sqlparser::ast;
use sqlparser::dialect::GenericDialect;
use sqlparser::parser::Parser;

use crate::data::Column;
use crate::expression::{SqlError, column, resolve};
use crate::query::{Aggregate, Item, Query, Shape};

/// Parses one query.
pub fn parse(sql: &str) -> Result<Query, SqlError> {
    let statements =
        Parser::parse_sql(&GenericDialect {}, sql).map_err(|error| format!("the SQL cannot be parsed: {error}"))?;
    let [ast::Statement::Query(query)] = statements.as_slice() else {
        return Err("exactly one SELECT statement is expected".to_owned());
    };
    let ast::SetExpr::Select(select) = query.body.as_ref() else {
        return Err("only a plain SELECT is supported".to_owned());
    };
    reject_unsupported_clauses(query, select)?;
    check_source(&select.from)?;
    let filter = select.selection.as_ref().map(resolve).transpose()?;
    let keys = group_keys(&select.group_by)?;
    let mut names = Vec::new();
    let mut exprs = Vec::new();
    for item in &select.projection {
        match item {
            ast::SelectItem::UnnamedExpr(expr) => {
                names.push(expr.to_string());
                exprs.push(expr.clone());
            }
            ast::SelectItem::ExprWithAlias { expr, alias } => {
                names.push(alias.value.clone());
                exprs.push(expr.clone());
            }
            ast::SelectItem::Wildcard(options) if *options == ast::WildcardAdditionalOptions::default() => {
                for column in Column::all() {
                    names.push(column.name().to_owned());
                    exprs.push(ast::Expr::Identifier(ast::Ident::new(column.name())));
                }
            }
            other => return Err(format!("`{other}` is not supported in a select list")),
        }
    }
    let aggregates = exprs.iter().any(|expr| matches!(bare(expr), ast::Expr::Function(_)));
    let shape = if aggregates || !keys.is_empty() {
        let items = exprs.iter().map(|expr| group_item(expr, &keys)).collect::<Result<Vec<_>, _>>()?;
        let order = order(query.order_by.as_ref(), &keys, &items, &names)?;
        Shape::Groups { keys, items, order }
    } else {
        if query.order_by.is_some() {
            return Err("ORDER BY is supported for the columns of a GROUP BY only".to_owned());
        }
        Shape::Rows(exprs.iter().map(resolve).collect::<Result<_, _>>()?)
    };
    let limit = limit(query)?;
    Ok(Query { names, filter, shape, limit })
}

/// An expression without the parentheses around it.
fn bare(expr: &ast::Expr) -> &ast::Expr {
    match expr {
        ast::Expr::Nested(inner) => bare(inner),
        other => other,
    }
}

fn reject_unsupported_clauses(query: &ast::Query, select: &ast::Select) -> Result<(), SqlError> {
    let present = [
        (query.with.is_some(), "WITH"),
        (query.fetch.is_some(), "FETCH"),
        (!query.locks.is_empty(), "FOR UPDATE"),
        (query.for_clause.is_some(), "FOR"),
        (query.settings.is_some(), "SETTINGS"),
        (query.format_clause.is_some(), "FORMAT"),
        (!query.pipe_operators.is_empty(), "a pipe operator"),
        (select.distinct.is_some(), "DISTINCT"),
        (select.select_modifiers.is_some(), "a modifier of SELECT"),
        (select.top.is_some(), "TOP"),
        (select.exclude.is_some(), "EXCLUDE"),
        (select.into.is_some(), "INTO"),
        (!select.lateral_views.is_empty(), "LATERAL VIEW"),
        (select.prewhere.is_some(), "PREWHERE"),
        (!select.connect_by.is_empty(), "CONNECT BY"),
        (!select.cluster_by.is_empty(), "CLUSTER BY"),
        (!select.distribute_by.is_empty(), "DISTRIBUTE BY"),
        (!select.sort_by.is_empty(), "SORT BY"),
        (select.having.is_some(), "HAVING"),
        (!select.named_window.is_empty(), "WINDOW"),
        (select.qualify.is_some(), "QUALIFY"),
        (select.value_table_mode.is_some(), "AS STRUCT or AS VALUE"),
    ];
    match present.iter().find(|(used, _)| *used) {
        Some((_, name)) => Err(format!("{name} is not supported")),
        None => Ok(()),
    }
}

fn check_source(from: &[ast::TableWithJoins]) -> Result<(), SqlError> {
    let [source] = from else {
        return Err("FROM must name lineitem, and nothing else".to_owned());
    };
    let plain = matches!(
        &source.relation,
        ast::TableFactor::Table { alias: None, args: None, version: None, sample: None, .. }
    );
    let named = source.relation.to_string().eq_ignore_ascii_case("lineitem");
    if plain && named && source.joins.is_empty() {
        Ok(())
    } else {
        Err(format!("FROM must name lineitem without an alias, not `{source}`"))
    }
}

fn group_keys(group_by: &ast::GroupByExpr) -> Result<Vec<Column>, SqlError> {
    let ast::GroupByExpr::Expressions(exprs, modifiers) = group_by else {
        return Err("GROUP BY ALL is not supported".to_owned());
    };
    if !modifiers.is_empty() {
        return Err("modifiers of GROUP BY are not supported".to_owned());
    }
    let mut keys = Vec::new();
    for expr in exprs {
        let key = column(bare(expr))?;
        // Grouping by a column twice is the same as once.
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    Ok(keys)
}

fn group_item(expr: &ast::Expr, keys: &[Column]) -> Result<Item, SqlError> {
    match bare(expr) {
        ast::Expr::Function(function) => aggregate(function).map(Item::Aggregate),
        ast::Expr::Identifier(_) | ast::Expr::CompoundIdentifier(_) => {
            let column = column(bare(expr))?;
            let index = keys.iter().position(|key| *key == column);
            index.map(Item::Key).ok_or_else(|| format!("`{expr}` must be in GROUP BY or inside an aggregate function"))
        }
        _ => Err(format!("`{expr}` is not supported: an aggregate query selects grouped columns and aggregates only")),
    }
}

fn aggregate(function: &ast::Function) -> Result<Aggregate, SqlError> {
    let unsupported = || format!("the function call `{function}` is not supported");
    let plain = function.over.is_none()
        && function.filter.is_none()
        && function.null_treatment.is_none()
        && function.within_group.is_empty()
        && matches!(function.parameters, ast::FunctionArguments::None);
    let ast::FunctionArguments::List(list) = &function.args else {
        return Err(unsupported());
    };
    let [ast::FunctionArg::Unnamed(argument)] = list.args.as_slice() else {
        return Err(unsupported());
    };
    if !plain || list.duplicate_treatment.is_some() || !list.clauses.is_empty() {
        return Err(unsupported());
    }
    let name = function.name.to_string().to_ascii_lowercase();
    let expr = match argument {
        ast::FunctionArgExpr::Wildcard if name == "count" => return Ok(Aggregate::Count),
        ast::FunctionArgExpr::Expr(expr) => expr,
        _ => return Err(unsupported()),
    };
    match name.as_str() {
        // The argument must be valid, but it is never NULL, so it does not change the count.
        "count" => resolve(expr).map(|_| Aggregate::Count),
        "sum" => resolve(expr).map(Aggregate::Sum),
        "avg" => resolve(expr).map(Aggregate::Average),
        "min" => resolve(expr).map(Aggregate::Minimum),
        "max" => resolve(expr).map(Aggregate::Maximum),
        _ => Err(unsupported()),
    }
}

fn order(
    order_by: Option<&ast::OrderBy>,
    keys: &[Column],
    items: &[Item],
    names: &[String],
) -> Result<Vec<(usize, bool)>, SqlError> {
    let Some(order_by) = order_by else {
        return Ok(Vec::new());
    };
    let ast::OrderByKind::Expressions(exprs) = &order_by.kind else {
        return Err("ORDER BY ALL is not supported".to_owned());
    };
    let mut order = Vec::with_capacity(exprs.len());
    for part in exprs {
        let descending = match &part.options.sort {
            None | Some(ast::OrderBySort::Asc) => false,
            Some(ast::OrderBySort::Desc) => true,
            Some(_) => return Err(format!("`{part}` is not supported in ORDER BY")),
        };
        if part.with_fill.is_some() || order_by.interpolate.is_some() {
            return Err(format!("`{part}` is not supported in ORDER BY"));
        }
        let index = order_key(bare(&part.expr), keys, items, names)
            .ok_or_else(|| format!("`{}` in ORDER BY is not a column of GROUP BY", part.expr))?;
        order.push((index, descending));
    }
    Ok(order)
}

/// The key that a part of ORDER BY refers to: a position in the select list, an alias in it, or a grouped column.
fn order_key(expr: &ast::Expr, keys: &[Column], items: &[Item], names: &[String]) -> Option<usize> {
    let item = match expr {
        ast::Expr::Value(value) => match &value.value {
            ast::Value::Number(digits, _) => items.get(digits.parse::<usize>().ok()?.checked_sub(1)?),
            _ => None,
        },
        ast::Expr::Identifier(name) => {
            let same = |known: &String| known.eq_ignore_ascii_case(&name.value);
            names.iter().position(same).and_then(|index| items.get(index))
        }
        _ => None,
    };
    match item {
        Some(Item::Key(index)) => Some(*index),
        Some(Item::Aggregate(_)) => None,
        None => {
            let column = column(expr).ok()?;
            keys.iter().position(|key| *key == column)
        }
    }
}

fn limit(query: &ast::Query) -> Result<Option<u64>, SqlError> {
    let limit = match &query.limit_clause {
        None => return Ok(None),
        Some(ast::LimitClause::LimitOffset { limit, offset: None, limit_by }) if limit_by.is_empty() => limit,
        Some(_) => return Err("OFFSET and LIMIT BY are not supported".to_owned()),
    };
    let Some(limit) = limit else {
        return Ok(None);
    };
    let digits = limit.to_string();
    let unsupported = |_| format!("`{digits}` is not a number of rows");
    digits.parse().map(Some).map_err(unsupported)
}
