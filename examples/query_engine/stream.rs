//! A stream of random queries, as SQL text.
//!
//! The same seed gives the same queries. Values are drawn from ranges near those of the table, not from the table
//! itself. Arithmetic is shallow enough that the planner accepts every query.

use crate::date;

/// A small random number generator (SplitMix64).
pub struct Random {
    state: u64,
}

impl Random {
    /// Creates the generator of one query of a seeded stream.
    pub fn new(seed: u64, index: u64) -> Random {
        let mut random = Random { state: seed };
        random.state = random.next() ^ index.wrapping_mul(0xd129_8a15_22f3_9b6b);
        random
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 to `bound - 1`. The bias of the modulus is negligible for such small bounds.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// A number from `low` to `high`, both included.
    fn within(&mut self, low: i64, high: i64) -> i64 {
        low + self.below((high - low + 1) as u64) as i64
    }

    pub fn one_in(&mut self, chances: u64) -> bool {
        self.below(chances) == 0
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len() as u64) as usize]
    }

    /// A random selection of a list, in its order, with at least one entry.
    fn some_of<'a>(&mut self, from: &[&'a str]) -> Vec<&'a str> {
        let required = self.pick(from);
        from.iter().copied().filter(|&entry| entry == required || self.one_in(3)).collect()
    }
}

const DATES: [&str; 3] = ["l_shipdate", "l_commitdate", "l_receiptdate"];
const COMPARISONS: [&str; 6] = ["=", "<>", "<", "<=", ">", ">="];
const GROUPS: [&str; 5] = ["l_returnflag", "l_linestatus", "l_shipmode", "l_shipinstruct", "l_linenumber"];
const TEXTS: [(&str, &[&str]); 4] = [
    ("l_returnflag", &["A", "N", "R", "Z"]),
    ("l_linestatus", &["F", "O"]),
    ("l_shipmode", &["AIR", "FOB", "MAIL", "RAIL", "REG AIR", "SHIP", "TRUCK", "CANOE"]),
    ("l_shipinstruct", &["COLLECT COD", "DELIVER IN PERSON", "NONE", "TAKE BACK RETURN", "it's a gift"]),
];

/// A random query.
pub fn query(random: &mut Random) -> String {
    match random.below(16) {
        0 | 1 => pricing_summary(random),
        2 | 3 => revenue_change(random),
        4..=6 => projection(random),
        _ => aggregation(random),
    }
}

/// Query 1 with a random DELTA.
fn pricing_summary(random: &mut Random) -> String {
    crate::published::Q1.sql.replace("'90'", &format!("'{}'", random.within(60, 120)))
}

/// Query 6 with random substitutions.
fn revenue_change(random: &mut Random) -> String {
    let year = random.within(1993, 1997);
    let discount = random.within(2, 9);
    let quantity = random.within(24, 25);
    crate::published::Q6
        .sql
        .replace("1994-01-01", &format!("{year}-01-01"))
        .replace("0.06", &format!("0.0{discount}"))
        .replace("< 24", &format!("< {quantity}"))
}

fn projection(random: &mut Random) -> String {
    let columns = [
        "l_orderkey",
        "l_partkey",
        "l_suppkey",
        "l_linenumber",
        "l_shipdate",
        "l_receiptdate",
        "l_returnflag",
        "l_shipmode",
        "l_shipinstruct",
    ];
    let mut list: Vec<String> = random.some_of(&columns).into_iter().map(str::to_owned).collect();
    for _ in 0..random.below(3) {
        list.push(amount(random, 3));
    }
    let limit = random.within(0, 200);
    format!("select {} from lineitem{} limit {limit}", list.join(", "), filter(random))
}

fn aggregation(random: &mut Random) -> String {
    let mut keys = if random.one_in(3) { Vec::new() } else { random.some_of(&GROUPS) };
    // Three keys are enough groups for a few thousand rows.
    keys.truncate(3);
    let mut list: Vec<String> = keys.iter().map(|&key| key.to_owned()).collect();
    for _ in 0..=random.below(5) {
        list.push(aggregate(random));
    }
    let mut sql = format!("select {} from lineitem{}", list.join(", "), filter(random));
    if !keys.is_empty() {
        sql += &format!(" group by {}", keys.join(", "));
        if random.one_in(2) {
            let order: Vec<String> =
                keys.iter().rev().map(|key| format!("{key}{}", random.pick(&["", " desc", " asc"]))).collect();
            sql += &format!(" order by {}", order.join(", "));
        }
        if random.one_in(6) {
            sql += &format!(" limit {}", random.within(1, 10));
        }
    }
    sql
}

fn aggregate(random: &mut Random) -> String {
    match random.below(12) {
        0 | 1 => "count(*)".to_owned(),
        2..=5 => format!("sum({})", amount(random, 3)),
        6 | 7 => format!("avg({})", amount(random, 2)),
        8 => format!("min({})", amount(random, 2)),
        9 => format!("max({})", amount(random, 2)),
        10 => format!("{}({})", random.pick(&["min", "max"]), random.pick(&DATES)),
        _ => {
            let (column, _) = TEXTS[random.below(4) as usize];
            format!("{}({column})", random.pick(&["min", "max"]))
        }
    }
}

/// A numeric expression.
fn amount(random: &mut Random, depth: u32) -> String {
    if depth == 0 || random.one_in(4) {
        let columns = ["l_quantity", "l_extendedprice", "l_discount", "l_tax", "l_linenumber"];
        return match random.below(6) {
            0 => format!("{}.{:02}", random.within(0, 999), random.within(0, 99)),
            _ => random.pick(&columns).to_owned(),
        };
    }
    let inner = amount(random, depth - 1);
    match random.below(8) {
        0 => format!("({inner} + {})", amount(random, depth - 1)),
        1 => format!("({inner} - {})", amount(random, depth - 1)),
        2..=4 => format!("{inner} * {}", rate(random)),
        5 if random.one_in(2) => {
            // The conditions overlap; the first one that holds must win.
            let (first, second) = (predicate(random, 1), predicate(random, 0));
            let (then, otherwise) = (amount(random, depth - 1), amount(random, 0));
            format!("case when {first} then {inner} when {second} then {then} else {otherwise} end")
        }
        5 => {
            let (column, texts) = TEXTS[random.below(4) as usize];
            let text = random.pick(texts).replace('\'', "''");
            let otherwise = amount(random, depth - 1);
            format!("case {column} when '{text}' then {inner} else {otherwise} end")
        }
        6 => format!("(-{inner})"),
        _ => format!("({} - {})", random.pick(&DATES), random.pick(&DATES)),
    }
}

/// A factor so small that a product of several still fits.
fn rate(random: &mut Random) -> String {
    match random.below(5) {
        0 => "(1 - l_discount)".to_owned(),
        1 => "(1 + l_tax)".to_owned(),
        2 => "l_discount".to_owned(),
        3 => format!("{}.{}", random.within(0, 9), random.within(0, 99)),
        _ => "l_tax".to_owned(),
    }
}

fn filter(random: &mut Random) -> String {
    if random.one_in(12) {
        return String::new();
    }
    let mut parts = Vec::new();
    for _ in 0..=random.below(4) {
        parts.push(predicate(random, 2));
    }
    format!(" where {}", parts.join(" and "))
}

fn predicate(random: &mut Random, depth: u32) -> String {
    if depth > 0 && random.one_in(4) {
        let left = predicate(random, depth - 1);
        return match random.below(3) {
            0 => format!("not ({left})"),
            1 => format!("({left} or {})", predicate(random, depth - 1)),
            _ => format!("({left} or {} and {})", predicate(random, 0), predicate(random, 0)),
        };
    }
    let op = random.pick(&COMPARISONS);
    match random.below(12) {
        0..=2 => date_predicate(random),
        3 => format!("l_quantity {op} {}", random.within(1, 50)),
        4 => {
            let low = random.within(0, 8);
            format!("l_discount between 0.0{low} and 0.0{}", random.within(low, 9))
        }
        5 => format!("l_extendedprice {op} {}.{:02}", random.within(900, 105_000), random.below(100)),
        6 => format!("l_tax * 100 {op} l_linenumber"),
        7..=9 => text_predicate(random),
        10 => {
            let negated = random.pick(&["", "not "]);
            let (a, b, c) = (random.within(1, 3), random.within(3, 5), random.within(5, 8));
            format!("l_linenumber {negated}in ({a}, {b}, {c}.0)")
        }
        _ => format!("case when l_returnflag = 'R' then l_discount else l_tax end {op} 0.0{}", random.within(0, 9)),
    }
}

fn date_predicate(random: &mut Random) -> String {
    let column = random.pick(&DATES);
    let op = random.pick(&COMPARISONS);
    // 1992-01-01 to 1998-12-31.
    let day = date::format(random.within(8_035, 10_591) as i32);
    match random.below(5) {
        0 => format!("{column} {} date '{day}'", random.pick(&["<", ">=", "<=", ">"])),
        1 => format!(
            "{column} between date '{day}' and date '{day}' + interval '{}' {}",
            random.within(1, 30),
            random.pick(&["day", "month"])
        ),
        2 => format!("{column} {op} {}", random.pick(&DATES)),
        3 => format!("l_shipdate + interval '{}' day {op} {}", random.within(0, 60), random.pick(&DATES)),
        _ => format!("l_receiptdate - l_shipdate {op} {}", random.within(1, 30)),
    }
}

fn text_predicate(random: &mut Random) -> String {
    let (column, texts) = TEXTS[random.below(4) as usize];
    let quote = |text: &str| format!("'{}'", text.replace('\'', "''"));
    match random.below(4) {
        0 => {
            let list: Vec<String> = random.some_of(texts).into_iter().map(quote).collect();
            format!("{column} in ({})", list.join(", "))
        }
        1 => {
            let list: Vec<String> = random.some_of(texts).into_iter().map(quote).collect();
            format!("{column} not in ({})", list.join(", "))
        }
        2 => format!("{} {} {column}", quote(random.pick(texts)), random.pick(&COMPARISONS)),
        _ => format!("{column} {} {}", random.pick(&COMPARISONS), quote(random.pick(texts))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_planner_accepts_every_random_query() {
        let table = crate::data::Table::generate(0.001, 1);
        for index in 0..2_000 {
            let sql = query(&mut Random::new(7, index));
            let parsed = crate::sql::parse(&sql);
            let planned = parsed.and_then(|query| crate::plan::plan(&query, &table));
            assert!(planned.is_ok(), "{sql}: {planned:?}");
        }
    }
}
