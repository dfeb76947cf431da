//! Calendar dates as days since 1970-01-01. The functions convert from and to year, month and day, and add months.
//!
//! There is no time of day and no time zone. Years are from 1 to 9999.

/// 0001-01-01.
pub const FIRST_DAY: i32 = -EPOCH;
/// 9999-12-31.
pub const LAST_DAY: i32 = 2_932_896;

/// The days since 1970-01-01 of a civil date; `None` if the date does not exist.
pub fn from_civil(year: i32, month: u32, day: u32) -> Option<i32> {
    if !(1..=9999).contains(&year) || !(1..=12).contains(&month) || day == 0 || day > days_in_month(year, month) {
        return None;
    }
    let before_year = days_before_year(year);
    let before_month: u32 = (1..month).map(|m| days_in_month(year, m)).sum();
    Some(before_year + (before_month + day - 1) as i32 - EPOCH)
}

/// Year, month and day of a number of days since 1970-01-01.
pub fn to_civil(days: i32) -> (i32, u32, u32) {
    let total = days + EPOCH;
    // A year has at most 366 days, so the estimate is never too late. The loop corrects it.
    let mut year = total.div_euclid(366).max(0) + 1;
    while days_before_year(year + 1) <= total {
        year += 1;
    }
    let mut rest = (total - days_before_year(year)) as u32;
    let mut month = 1;
    while rest >= days_in_month(year, month) {
        rest -= days_in_month(year, month);
        month += 1;
    }
    (year, month, rest + 1)
}

/// Parses `YYYY-MM-DD`.
pub fn parse(text: &str) -> Option<i32> {
    let mut parts = text.split('-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() || year.len() != 4 {
        return None;
    }
    from_civil(year.parse().ok()?, month.parse().ok()?, day.parse().ok()?)
}

/// Formats as `YYYY-MM-DD`.
pub fn format(days: i32) -> String {
    let (year, month, day) = to_civil(days);
    format!("{year:04}-{month:02}-{day:02}")
}

/// The same day `months` months later. If that month is too short, it is the month's last day, as in SQL.
pub fn add_months(days: i32, months: i32) -> Option<i32> {
    let (year, month, day) = to_civil(days);
    let index = year.checked_mul(12)?.checked_add(month as i32 - 1)?;
    let index = index.checked_add(months)?;
    let (year, month) = (index.div_euclid(12), index.rem_euclid(12) as u32 + 1);
    if !(1..=9999).contains(&year) {
        return None;
    }
    from_civil(year, month, day.min(days_in_month(year, month)))
}

/// Days from 0001-01-01 to 1970-01-01.
const EPOCH: i32 = 719_162;

fn days_before_year(year: i32) -> i32 {
    let y = year - 1;
    y * 365 + y / 4 - y / 100 + y / 400
}

fn days_in_month(year: i32, month: u32) -> u32 {
    let leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_epoch_is_day_zero_and_every_day_round_trips() {
        assert_eq!(from_civil(1970, 1, 1), Some(0));
        assert_eq!(from_civil(1992, 1, 1), Some(8035));
        assert_eq!(from_civil(1, 1, 1), Some(FIRST_DAY));
        assert_eq!(from_civil(9999, 12, 31), Some(LAST_DAY));
        for days in -40_000..40_000 {
            let (y, m, d) = to_civil(days);
            assert_eq!(from_civil(y, m, d), Some(days));
        }
    }

    #[test]
    fn adding_months_clamps_to_the_last_day_of_the_month() {
        let january = from_civil(1996, 1, 31);
        let february = from_civil(1996, 2, 29);
        assert_eq!(january.and_then(|d| add_months(d, 1)), february);
        assert_eq!(parse("1998-02-29"), None);
        assert_eq!(parse("1998-12-01").map(format).as_deref(), Some("1998-12-01"));
    }
}
