//! The `lineitem` table of TPC-H in memory, with one array per column.
//!
//! Text columns hold one-byte codes into a sorted dictionary, so codes compare as their texts do. Prices and rates
//! are integers in hundredths. The comment column is left out, and no column contains NULL. `tpchgen` generates the
//! rows; this file stores them.

use std::sync::LazyLock;
use std::thread;

use tpchgen::distribution::Distributions;
use tpchgen::generators::LineItemGenerator;
use tpchgen::text::TextPool;

/// The source of the comments. The engine does not read comments, so a small pool replaces the generator's own pool
/// of 300 MB. No other column depends on it.
static COMMENTS: LazyLock<TextPool> = LazyLock::new(|| TextPool::new(64 * 1024, Distributions::static_default()));

/// A column of `lineitem`; the number is its index in [`COLUMNS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Column(u8);

/// How to read the values of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnType {
    /// A number with this many decimals.
    Number(u8),
    /// Days since 1970-01-01.
    Date,
    /// Codes into a dictionary.
    Text,
}

/// Name and type of every column, in the order of the TPC-H specification.
const COLUMNS: [(&str, ColumnType); 15] = [
    ("l_orderkey", ColumnType::Number(0)),
    ("l_partkey", ColumnType::Number(0)),
    ("l_suppkey", ColumnType::Number(0)),
    ("l_linenumber", ColumnType::Number(0)),
    ("l_quantity", ColumnType::Number(2)),
    ("l_extendedprice", ColumnType::Number(2)),
    ("l_discount", ColumnType::Number(2)),
    ("l_tax", ColumnType::Number(2)),
    ("l_returnflag", ColumnType::Text),
    ("l_linestatus", ColumnType::Text),
    ("l_shipdate", ColumnType::Date),
    ("l_commitdate", ColumnType::Date),
    ("l_receiptdate", ColumnType::Date),
    ("l_shipinstruct", ColumnType::Text),
    ("l_shipmode", ColumnType::Text),
];

impl Column {
    pub fn by_name(name: &str) -> Option<Column> {
        let index = COLUMNS.iter().position(|(n, _)| n.eq_ignore_ascii_case(name))?;
        Some(Column(index as u8))
    }

    pub fn all() -> impl Iterator<Item = Column> {
        (0..COLUMNS.len() as u8).map(Column)
    }

    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    pub fn name(self) -> &'static str {
        COLUMNS[self.index()].0
    }

    pub fn kind(self) -> ColumnType {
        COLUMNS[self.index()].1
    }
}

/// The array of one column. A query is compiled for the width of its columns.
enum Values {
    Byte(Vec<u8>),
    Word(Vec<i32>),
    Long(Vec<i64>),
}

struct ColumnData {
    values: Values,
    /// The smallest and the largest value. From these the planner proves that arithmetic cannot overflow.
    low: i64,
    high: i64,
    /// Sorted; empty unless the column is text.
    dictionary: Vec<&'static str>,
}

/// The table.
pub struct Table {
    columns: Vec<ColumnData>,
    rows: usize,
}

impl Table {
    /// Generates the table at a scale factor, in `threads` parts at the same time.
    pub fn generate(scale: f64, threads: usize) -> Table {
        let count = i32::try_from(threads.max(1)).unwrap_or(1);
        let parts: Vec<Part> = thread::scope(|scope| {
            let handles: Vec<_> =
                (1..=count).map(|part| scope.spawn(move || Part::generate(scale, part, count))).collect();
            let joined = handles.into_iter().map(|handle| handle.join());
            joined.map(|part| part.expect("a generator thread panicked")).collect()
        });
        Table::assemble(parts)
    }

    fn assemble(parts: Vec<Part>) -> Table {
        let mut all_rows = Part::default();
        let mut texts: [Vec<&'static str>; 4] = Default::default();
        for (which, dictionary) in texts.iter_mut().enumerate() {
            dictionary.extend(parts.iter().flat_map(|part| part.texts[which].iter()));
            dictionary.sort_unstable();
            dictionary.dedup();
        }
        for mut part in parts {
            for (which, dictionary) in texts.iter().enumerate() {
                // Codes were assigned in order of appearance. Replace each by its index in the sorted dictionary.
                let index = |text| dictionary.binary_search(text).map_or(0, |at| at as u8);
                let renumber: Vec<u8> = part.texts[which].iter().map(index).collect();
                for code in &mut part.codes[which] {
                    *code = renumber[usize::from(*code)];
                }
                all_rows.codes[which].append(&mut part.codes[which]);
            }
            all_rows.order.append(&mut part.order);
            all_rows.line.append(&mut part.line);
            for (all, some) in all_rows.words.iter_mut().zip(&mut part.words) {
                all.append(some);
            }
            for (all, some) in all_rows.decimals.iter_mut().zip(&mut part.decimals) {
                all.append(some);
            }
        }
        let rows = all_rows.order.len();
        let [part, supplier, ship, commit, receipt] = all_rows.words;
        let [quantity, price, discount, tax] = all_rows.decimals;
        let [flag, status, instruct, mode] = all_rows.codes;
        let [flags, statuses, instructs, modes] = texts;
        let plain = |values| ColumnData::new(values, Vec::new());
        let text = |codes, dictionary| ColumnData::new(Values::Byte(codes), dictionary);
        let columns = vec![
            plain(Values::Long(all_rows.order)),
            plain(Values::Word(part)),
            plain(Values::Word(supplier)),
            plain(Values::Byte(all_rows.line)),
            plain(Values::Long(quantity)),
            plain(Values::Long(price)),
            plain(Values::Long(discount)),
            plain(Values::Long(tax)),
            text(flag, flags),
            text(status, statuses),
            plain(Values::Word(ship)),
            plain(Values::Word(commit)),
            plain(Values::Word(receipt)),
            text(instruct, instructs),
            text(mode, modes),
        ];
        Table { columns, rows }
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The value of a column in a row: units, days or a dictionary code.
    #[inline]
    pub fn value(&self, column: Column, row: usize) -> i64 {
        match &self.columns[column.index()].values {
            Values::Byte(values) => i64::from(values[row]),
            Values::Word(values) => i64::from(values[row]),
            Values::Long(values) => values[row],
        }
    }

    /// Smallest and largest value of a column.
    pub fn bounds(&self, column: Column) -> (i64, i64) {
        let data = &self.columns[column.index()];
        (data.low, data.high)
    }

    /// The sorted texts of a text column.
    pub fn dictionary(&self, column: Column) -> &[&'static str] {
        &self.columns[column.index()].dictionary
    }

    /// The text behind a code of a text column.
    pub fn text(&self, column: Column, code: u8) -> &'static str {
        self.columns[column.index()].dictionary[usize::from(code)]
    }

    /// Bytes of one value of a column: 1, 4 or 8.
    pub fn width(&self, column: Column) -> usize {
        match self.columns[column.index()].values {
            Values::Byte(_) => 1,
            Values::Word(_) => 4,
            Values::Long(_) => 8,
        }
    }

    /// The address of each column's first value: a parameter of compiled queries.
    pub fn addresses(&self) -> [*const u8; COLUMNS.len()] {
        std::array::from_fn(|index| match &self.columns[index].values {
            Values::Byte(values) => values.as_ptr(),
            Values::Word(values) => values.as_ptr().cast(),
            Values::Long(values) => values.as_ptr().cast(),
        })
    }
}

impl ColumnData {
    fn new(mut values: Values, dictionary: Vec<&'static str>) -> ColumnData {
        fn bounds<T: Copy + Ord + Into<i64>>(values: &mut Vec<T>) -> (i64, i64) {
            values.shrink_to_fit();
            let low = values.iter().min().map_or(0, |&v| v.into());
            let high = values.iter().max().map_or(0, |&v| v.into());
            (low, high)
        }
        let (low, high) = match &mut values {
            Values::Byte(values) => bounds(values),
            Values::Word(values) => bounds(values),
            Values::Long(values) => bounds(values),
        };
        ColumnData { values, low, high, dictionary }
    }
}

/// The rows that one thread generated.
#[derive(Default)]
struct Part {
    order: Vec<i64>,
    line: Vec<u8>,
    /// Part key, supplier key, ship date, commit date, receipt date.
    words: [Vec<i32>; 5],
    /// Quantity, extended price, discount, tax.
    decimals: [Vec<i64>; 4],
    /// Return flag, line status, ship instructions, ship mode.
    codes: [Vec<u8>; 4],
    texts: [Vec<&'static str>; 4],
}

impl Part {
    fn generate(scale: f64, part: i32, count: i32) -> Part {
        let mut rows = Part::default();
        let generator = LineItemGenerator::new_with_distributions_and_text_pool(
            scale,
            part,
            count,
            Distributions::static_default(),
            &COMMENTS,
        );
        for item in generator.iter() {
            rows.order.push(item.l_orderkey);
            // An order has at most seven lines.
            rows.line.push(item.l_linenumber as u8);
            let words = [
                // Keys stay below 2^31 up to a scale factor of 10,000.
                item.l_partkey as i32,
                item.l_suppkey as i32,
                item.l_shipdate.to_unix_epoch(),
                item.l_commitdate.to_unix_epoch(),
                item.l_receiptdate.to_unix_epoch(),
            ];
            for (column, value) in rows.words.iter_mut().zip(words) {
                column.push(value);
            }
            let decimals = [
                item.l_quantity * 100,
                item.l_extendedprice.into_inner(),
                item.l_discount.into_inner(),
                item.l_tax.into_inner(),
            ];
            for (column, value) in rows.decimals.iter_mut().zip(decimals) {
                column.push(value);
            }
            let texts = [item.l_returnflag, item.l_linestatus, item.l_shipinstruct, item.l_shipmode];
            for (which, text) in texts.into_iter().enumerate() {
                let code = intern(&mut rows.texts[which], text);
                rows.codes[which].push(code);
            }
        }
        rows
    }
}

/// The index of a text in a short list; adds it if it is missing.
fn intern(texts: &mut Vec<&'static str>, text: &'static str) -> u8 {
    let index = texts.iter().position(|known| *known == text);
    let index = index.unwrap_or_else(|| {
        texts.push(text);
        texts.len() - 1
    });
    index as u8
}
