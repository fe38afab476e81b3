//! Formats tables, times, durations and CSV for the command line.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::util::UtcTime;
use crate::util::one_line;

pub(super) use talaria_platform::operator::table;

/// `2026-11-16 04:12:33`, in UTC.
pub(super) fn moment(at: i64) -> String {
    let UtcTime { year, month, day, hour, minute, second } = utc(at);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

/// A time for programs: `2026-11-16T04:12:33Z`.
pub(super) fn exact(at: i64) -> String {
    format!("{}Z", moment(at).replace(' ', "T"))
}

fn utc(at: i64) -> UtcTime {
    UtcTime::from(UNIX_EPOCH + Duration::from_secs(u64::try_from(at).unwrap_or_default()))
}

/// Current time in seconds since 1970.
pub(super) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// A duration with its two largest units: `3 d 4 h`, `2 h 10 min`, `5 min`, `12 s`.
pub(super) fn length(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min"),
        (0, ..) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

/// Parses a duration: `90s`, `30m`, `24h`, `7d`, `2w`. Returns seconds.
pub(super) fn span(text: &str) -> Result<i64, String> {
    let wrong = || "write a length of time such as 30m, 24h, 7d or 2w".to_owned();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: i64 = number.parse().map_err(|_| wrong())?;
    let unit = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 60 * 60,
        "d" => 24 * 60 * 60,
        "w" => 7 * 24 * 60 * 60,
        _ => return Err(wrong()),
    };
    number.checked_mul(unit).ok_or_else(wrong)
}

/// One line of CSV, each value in quotes, without characters that break the line or are invisible. JSON has
/// every byte.
pub(super) fn csv<const N: usize>(cells: [&str; N]) -> String {
    let cell = |cell: &str| {
        let cell = one_line(cell, usize::MAX);
        let mark = if is_formula(&cell) { "'" } else { "" };
        format!("\"{mark}{}\"", cell.replace('"', "\"\""))
    };
    cells.map(cell).join(",") + "\n"
}

/// Whether a spreadsheet might execute a cell instead of showing it; quotes do not prevent that. A cell that
/// begins with `@` can call something only with a bracket, a bar or the like: an ordinary id has none of them
/// and stays as it is, so that it can still be searched for.
fn is_formula(cell: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-:/".contains(c);
    let mut rest = cell.chars();
    match rest.next() {
        Some('=' | '+' | '-' | '＝' | '＋' | '－' | '＠') => true,
        Some('@') => !rest.all(plain),
        Some(_) | None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_hostile_cells_stay_in_their_line() {
        let rows = [
            ["@ann:test".to_owned(), "x".to_owned()],
            ["\u{1b}[2J@b\nob\u{202e}".to_owned(), "y".repeat(200)],
        ];
        let text = table(["WHO", "WHAT"], &rows);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[..2], ["WHO        WHAT", "@ann:test  x"]);
        assert_eq!(lines[2], format!("[2J@b ob   {}", "y".repeat(80)));
        assert_eq!(lines.len(), 3);
    }

    #[test]
    fn times_and_lengths_are_read_and_written() {
        assert_eq!(moment(1_709_210_096), "2024-02-29 12:34:56");
        assert_eq!(exact(1_709_210_096), "2024-02-29T12:34:56Z");
        for (seconds, words) in
            [(0, "0 s"), (59, "59 s"), (60, "1 min"), (7_800, "2 h 10 min"), (273_600, "3 d 4 h")]
        {
            assert_eq!(length(seconds), words);
        }
        for (text, seconds) in
            [("90s", 90), ("30m", 1800), ("24h", 86_400), ("7d", 604_800), ("2w", 1_209_600)]
        {
            assert_eq!(span(text), Ok(seconds));
        }
        for wrong in ["", "h", "1", "1y", "-1h", "1h1", "9223372036854775807w"] {
            assert!(span(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn values_are_quoted_and_stay_in_their_line() {
        assert_eq!(csv(["a", "b,c", "d\"e", ""]), "\"a\",\"b,c\",\"d\"\"e\",\"\"\n");
        assert_eq!(csv(["a\nb\r\u{1b}[2J\u{202e}"]), "\"a b [2J\"\n");
    }

    #[test]
    fn no_value_is_a_formula() {
        for (cell, shown) in [
            ("@ann:example.org", "@ann:example.org"),
            ("@a_b-c/d.e:[::1]", "'@a_b-c/d.e:[::1]"),
            ("@SUM(1+1)*cmd|' /C calc'!A0", "'@SUM(1+1)*cmd|' /C calc'!A0"),
            ("=1+1", "'=1+1"),
            ("\t\r\n =1+1", "'=1+1"),
            ("\u{200b}=1+1", "'=1+1"),
            ("+1", "'+1"),
            ("-1", "'-1"),
            ("＝1", "'＝1"),
            ("a=1", "a=1"),
        ] {
            assert_eq!(csv([cell]), format!("\"{shown}\"\n"));
        }
    }
}
