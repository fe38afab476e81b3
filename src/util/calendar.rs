//! Dates and times of day in UTC.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A moment in UTC, split into what people read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are what their names say")]
pub struct UtcTime {
    pub year: i64,
    pub month: u32,
    pub day: u32,
    pub hour: u32,
    pub minute: u32,
    pub second: u32,
}

impl From<SystemTime> for UtcTime {
    /// The civil calendar by counting 400-year eras from 1 March 0000; a clock before 1970 is 1970.
    fn from(time: SystemTime) -> Self {
        let seconds = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
        let days = (seconds / 86_400) as i64 + 719_468;
        let (era, day_of_era) = (days / 146_097, days % 146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        let year = era * 400 + year_of_era + i64::from(month <= 2);
        let second_of_day = seconds % 86_400;
        Self {
            year,
            month: month as u32,
            day: (day_of_year - (153 * month_from_march + 2) / 5 + 1) as u32,
            hour: (second_of_day / 3_600) as u32,
            minute: (second_of_day / 60 % 60) as u32,
            second: (second_of_day % 60) as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn civil_dates_are_right_around_leap_days_and_centuries() {
        for (seconds, date) in [
            (0, (1970, 1, 1)),
            (951_782_400, (2000, 2, 29)),
            (951_868_800, (2000, 3, 1)),
            (4_107_542_400, (2100, 3, 1)),
            (1_735_689_599, (2024, 12, 31)),
        ] {
            let utc = UtcTime::from(UNIX_EPOCH + Duration::from_secs(seconds));
            assert_eq!((utc.year, utc.month, utc.day), date);
        }
    }
}
