//! Intervals and hours of the wall clock, in UTC.

/// Length of an interval.
pub const INTERVAL_NS: u64 = 300_000_000_000;
/// Length of an hour, in seconds.
pub const HOUR_S: i64 = 3600;
pub(crate) const SECOND_NS: u64 = 1_000_000_000;

/// The start of the interval in which a moment lies.
pub(crate) fn interval_of(unix_ns: u64) -> u64 {
    unix_ns / INTERVAL_NS * INTERVAL_NS
}

pub(crate) fn seconds(unix_ns: u64) -> i64 {
    (unix_ns / SECOND_NS).cast_signed()
}

/// `YYYY-MM-DD` and the hour of a moment.
pub(crate) fn date_and_hour(unix_s: i64) -> (String, i64) {
    let (days, hour) = (unix_s.div_euclid(86_400), unix_s.rem_euclid(86_400) / HOUR_S);
    let (year, month, day) = civil(days);
    (format!("{year:04}-{month:02}-{day:02}"), hour)
}

/// The date of a day since 1970-01-01. Years begin in March, so that the day of a leap year is the last.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + i64::from(month <= 2), month, day)
}

/// The day since 1970-01-01 of a date, `YYYY-MM-DD`. `None` if it is none.
pub fn day_of(date: &str) -> Option<i64> {
    let [year, month, day] = date.split('-').collect::<Vec<_>>().try_into().ok()?;
    let is_plain = date.len() == 10 && date.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    let [year, month, day]: [i64; 3] = [year.parse().ok()?, month.parse().ok()?, day.parse().ok()?];
    let (from_march, year) = if month > 2 { (month - 3, year) } else { (month + 9, year - 1) };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * from_march + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    // What comes back as another date, such as the 31st of a short month, is none.
    (is_plain && date_and_hour(days.saturating_mul(86_400)).0 == date).then_some(days)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        // By `date -u -d @SECONDS`.
        let cases = [
            (0, "1970-01-01", 0),
            (951_782_400, "2000-02-29", 0),
            (951_868_799, "2000-02-29", 23),
            (951_868_800, "2000-03-01", 0),
            (1_793_491_200, "2026-11-01", 0),
            (4_107_542_400, "2100-03-01", 0),
            (-1, "1969-12-31", 23),
        ];
        for (at, date, hour) in cases {
            assert_eq!(date_and_hour(at), (date.to_owned(), hour), "{at}");
            assert_eq!(day_of(date), Some(at.div_euclid(86_400)), "{date}");
        }
        for wrong in ["2026-02-29", "2026-13-01", "2026-00-10", "2026-1-1", "x", "2026-01-01-01", "+026-01-01"] {
            assert_eq!(day_of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn an_interval_begins_at_a_multiple_of_five_minutes() {
        assert_eq!(interval_of(1_793_491_200 * SECOND_NS + 299 * SECOND_NS), 1_793_491_200 * SECOND_NS);
        assert_eq!(seconds(interval_of(1_793_491_500 * SECOND_NS)), 1_793_491_500);
    }
}
