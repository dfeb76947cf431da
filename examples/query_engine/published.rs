//! Queries 1 and 6 of TPC-H with the substitutions of its validation run, and the answers that the specification
//! publishes for scale factor 1.
//!
//! The published decimals are rounded to two places. Answers are rounded in the same way, only for this comparison.

use crate::data::Table;
use crate::value::Answer;

/// One of the two queries that run over the full table.
pub struct Benchmark {
    pub name: &'static str,
    pub sql: &'static str,
    answer: &'static [&'static str],
}

/// The pricing summary report, with DELTA = 90.
pub const Q1: Benchmark = Benchmark {
    name: "Q1",
    sql: "select l_returnflag, l_linestatus, \
          sum(l_quantity) as sum_qty, \
          sum(l_extendedprice) as sum_base_price, \
          sum(l_extendedprice * (1 - l_discount)) as sum_disc_price, \
          sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) as sum_charge, \
          avg(l_quantity) as avg_qty, \
          avg(l_extendedprice) as avg_price, \
          avg(l_discount) as avg_disc, \
          count(*) as count_order \
          from lineitem \
          where l_shipdate <= date '1998-12-01' - interval '90' day \
          group by l_returnflag, l_linestatus \
          order by l_returnflag, l_linestatus",
    answer: &[
        "A|F|37734107.00|56586554400.73|53758257134.87|55909065222.83|25.52|38273.13|0.05|1478493",
        "N|F|991417.00|1487504710.38|1413082168.05|1469649223.19|25.52|38284.47|0.05|38854",
        "N|O|74476040.00|111701729697.74|106118230307.61|110367043872.50|25.50|38249.12|0.05|2920374",
        "R|F|37719753.00|56568041380.90|53741292684.60|55889619119.83|25.51|38250.85|0.05|1478870",
    ],
};

/// The forecasting revenue change query.
pub const Q6: Benchmark = Benchmark {
    name: "Q6",
    sql: "select sum(l_extendedprice * l_discount) as revenue \
          from lineitem \
          where l_shipdate >= date '1994-01-01' \
          and l_shipdate < date '1994-01-01' + interval '1' year \
          and l_discount between 0.06 - 0.01 and 0.06 + 0.01 \
          and l_quantity < 24",
    answer: &["123141078.23"],
};

impl Benchmark {
    /// Describes the first difference from the published answer at scale factor 1.
    pub fn difference(&self, answer: &Answer, table: &Table) -> Option<String> {
        let rows: Vec<String> = answer
            .rows()
            .map(|row| {
                let cells: Vec<String> = row.iter().map(|v| v.display_published(table)).collect();
                cells.join("|")
            })
            .collect();
        if rows == self.answer {
            return None;
        }
        let index = (0..rows.len().max(self.answer.len()))
            .find(|&index| rows.get(index).map(String::as_str) != self.answer.get(index).copied())?;
        let got = rows.get(index).map_or("missing", String::as_str);
        let published = self.answer.get(index).copied().unwrap_or("no such row");
        Some(format!("row {index} is {got}; published is {published}"))
    }
}
