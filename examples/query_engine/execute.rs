//! Calls a linked query over a range of rows and reads its answer.
//!
//! It prepares the buffers that [`crate::codegen`] describes, and turns groups and rows of 64-bit values back into
//! typed values. It computes nothing from the rows itself.

use std::ops::Range;

use jittison::Function;

use crate::data::Table;
use crate::engine::{QueryFunction, RowRange};
use crate::plan::{Cell, Fold, Key, Plan, Sink};
use crate::typing::Kind;
use crate::value::{Answer, Value};

/// Rows that a query without groups returns from one call.
const BATCH: u64 = 16 * 1024;

/// Runs a query over a range of the table's rows.
///
/// # Safety
///
/// `function` must be compiled from this plan for this table.
pub unsafe fn execute(function: &Function<QueryFunction>, plan: &Plan, table: &Table, rows: Range<usize>) -> Answer {
    // A range beyond the table would read past the ends of the columns.
    let end = rows.end.min(table.rows());
    let begin = rows.start.min(end);
    let range = RowRange { begin: begin as u64, end: end as u64 };
    match &plan.sink {
        Sink::Rows { kinds, .. } => {
            // SAFETY: the caller promises that the function fits; the range is clamped to the table.
            unsafe { fetch_rows(function, table, range, kinds, plan.limit) }
        }
        Sink::Groups { keys, groups, folds, cells, order } => {
            let mut accumulators = initial(folds, *groups);
            let addresses = table.addresses();
            let mut range = range;
            // SAFETY: the function is compiled for this plan and table. It reads the columns within the range, which
            // lies in the table. It writes `groups * folds.len()` accumulators of 16 bytes, the size of the buffer,
            // which is aligned for them.
            unsafe {
                function.call(addresses.as_ptr(), &raw mut range, accumulators.as_mut_ptr().cast(), 0);
            }
            debug_assert_eq!(range.begin, range.end);
            let mut rows = read_groups(keys, folds.len(), cells, order, &accumulators);
            if let Some(limit) = plan.limit {
                rows.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
            }
            let mut answer = Answer::new(cells.len());
            for row in rows {
                answer.push(row);
            }
            answer
        }
    }
}

/// # Safety
///
/// As for [`execute`]. In addition, the plan has no groups, its outputs have these kinds, and the range lies in the
/// table.
unsafe fn fetch_rows(
    function: &Function<QueryFunction>,
    table: &Table,
    mut range: RowRange,
    kinds: &[Kind],
    limit: Option<u64>,
) -> Answer {
    let mut answer = Answer::new(kinds.len());
    let mut remaining = limit.unwrap_or(u64::MAX);
    let capacity = BATCH.min(remaining).min(range.end - range.begin);
    let mut buffer = vec![0_i64; capacity as usize * kinds.len()];
    let addresses = table.addresses();
    while remaining > 0 && range.begin < range.end {
        let capacity = capacity.min(remaining);
        // SAFETY: the caller promises that the function and the range fit. The function writes at most `capacity`
        // rows of `kinds.len()` values of 8 bytes; the buffer holds as many.
        let passed = unsafe { function.call(addresses.as_ptr(), &raw mut range, buffer.as_mut_ptr().cast(), capacity) };
        for row in buffer.chunks(kinds.len()).take(passed as usize) {
            answer.push(row.iter().zip(kinds).map(|(&cell, &kind)| value(cell, kind)));
        }
        remaining -= passed;
    }
    answer
}

/// Converts a 64-bit value of a known kind.
fn value(cell: i64, kind: Kind) -> Value {
    match kind {
        Kind::Number(scale) => Value::Number { units: i128::from(cell), scale },
        // The planner keeps dates within the calendar.
        Kind::Date => Value::Date(cell as i32),
        Kind::Text(column) => Value::Text(column, cell as u8),
    }
}

/// The accumulators of groups without rows.
fn initial(folds: &[Fold], groups: usize) -> Vec<i128> {
    let one_group = folds.iter().map(|fold| match fold {
        Fold::Count | Fold::Sum(_) => 0,
        Fold::Minimum(_) => i128::from(i64::MAX),
        Fold::Maximum(_) => i128::from(i64::MIN),
    });
    let one_group: Vec<i128> = one_group.collect();
    one_group.repeat(groups)
}

/// The output rows of all groups that have rows, in order.
fn read_groups(
    keys: &[Key],
    width: usize,
    cells: &[Cell],
    order: &[(usize, bool)],
    accumulators: &[i128],
) -> Vec<Vec<Value>> {
    // Counts and extremes use only the low half.
    let low = |slot: i128| slot as i64;
    let key_code = |key: &Key, group: usize| (group / key.stride % key.size) as i64 + key.low;
    let mut groups: Vec<usize> = (0..accumulators.len() / width)
        .filter(|group| keys.is_empty() || low(accumulators[group * width]) > 0)
        .collect();
    // The sort is stable, and groups come in ascending order of the keys.
    groups.sort_by(|&a, &b| {
        let mut ordering = std::cmp::Ordering::Equal;
        for &(index, descending) in order {
            let (x, y) = (key_code(&keys[index], a), key_code(&keys[index], b));
            let by_key = if descending { y.cmp(&x) } else { x.cmp(&y) };
            ordering = ordering.then(by_key);
        }
        ordering
    });
    let row = |group: usize| {
        let slots = &accumulators[group * width..(group + 1) * width];
        let count = low(slots[0]);
        let cell = |cell: &Cell| match *cell {
            Cell::Key(index) => {
                let key = &keys[index];
                value(key_code(key, group), crate::plan::column_kind(key.column))
            }
            Cell::Count => Value::Number { units: i128::from(count), scale: 0 },
            _ if count == 0 => Value::Null,
            Cell::Sum { slot, scale } => Value::Number { units: slots[slot], scale },
            Cell::Average { slot, scale } => Value::Average { sum: slots[slot], scale, count: count as u64 },
            Cell::Extreme { slot, kind } => value(low(slots[slot]), kind),
        };
        cells.iter().map(cell).collect()
    };
    groups.into_iter().map(row).collect()
}
