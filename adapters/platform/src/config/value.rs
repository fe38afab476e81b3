//! Values with a form of their own in the file: lengths of time, times of the day, and whole numbers with bounds.
//!
//! They are checked while they are parsed, because only then is the line known. An error is always "invalid value,
//! expected …" followed by our own words; see `yaml_error`.

use std::fmt;
use std::time::Duration;

use serde::de::{self, Deserialize, Deserializer, Unexpected, Visitor};

/// The longest time that can be written. Far beyond use, and far from overflowing a clock.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// A length of time: `10s`, `5m`, `1h`, `250ms`, or plain seconds. At least `LEAST_MS` milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeSpan<const LEAST_MS: u64>(pub Duration);

impl<const LEAST_MS: u64> TimeSpan<LEAST_MS> {
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let number: u64 = number.parse().ok()?;
        let length = match unit {
            "ms" => Some(Duration::from_millis(number)),
            "" | "s" => Some(Duration::from_secs(number)),
            "m" => number.checked_mul(60).map(Duration::from_secs),
            "h" => number.checked_mul(60 * 60).map(Duration::from_secs),
            _ => None,
        }?;
        (Duration::from_millis(LEAST_MS)..=LONGEST).contains(&length).then_some(Self(length))
    }
}

impl<'de, const LEAST_MS: u64> Deserialize<'de> for TimeSpan<LEAST_MS> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TimeSpanVisitor<const LEAST_MS: u64>;

        impl<const LEAST_MS: u64> Visitor<'_> for TimeSpanVisitor<LEAST_MS> {
            type Value = TimeSpan<LEAST_MS>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a length of time such as `10s`, `5m`, `1h` or `250ms`")?;
                f.write_str(if LEAST_MS > 0 { ", more than zero and" } else { "," })?;
                f.write_str(" at most `720h`")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                TimeSpan::parse(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
            }

            fn visit_u64<E: de::Error>(self, seconds: u64) -> Result<Self::Value, E> {
                self.visit_str(&seconds.to_string())
            }
        }

        deserializer.deserialize_any(TimeSpanVisitor)
    }
}

/// A retention time: `30d`, `12h`, or `forever`, which is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepFor(pub Option<Duration>);

impl KeepFor {
    /// The most days that can be written. Far beyond use, and far from overflowing a clock.
    const MOST_DAYS: u64 = 36_500;

    fn parse(text: &str) -> Option<Self> {
        const HOUR: u64 = 60 * 60;
        let text = text.trim();
        if text == "forever" {
            return Some(Self(None));
        }
        let (number, unit) = text.split_at(text.bytes().take_while(u8::is_ascii_digit).count());
        let hours = match unit {
            "h" => 1,
            "d" => 24,
            _ => return None,
        };
        let hours = number.parse::<u64>().ok()?.checked_mul(hours)?;
        let fits = (1..=Self::MOST_DAYS * 24).contains(&hours);
        fits.then(|| Self(Some(Duration::from_secs(hours * HOUR))))
    }
}

impl<'de> Deserialize<'de> for KeepFor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeepForVisitor;

        impl Visitor<'_> for KeepForVisitor {
            type Value = KeepFor;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`forever`, or days or hours such as `30d` or `12h`, at most `36500d`")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<KeepFor, E> {
                KeepFor::parse(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
            }
        }

        deserializer.deserialize_any(KeepForVisitor)
    }
}

/// A time of the day, such as `04:00`, as the time since midnight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeOfDay(pub Duration);

impl TimeOfDay {
    fn parse(text: &str) -> Option<Self> {
        let (hours, minutes) = text.trim().split_once(':')?;
        let number = |text: &str, below: u64| {
            let plain = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse::<u64>().ok().filter(|number| plain && *number < below)
        };
        Some(Self(Duration::from_secs(number(hours, 24)? * 3600 + number(minutes, 60)? * 60)))
    }
}

impl<'de> Deserialize<'de> for TimeOfDay {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TimeOfDayVisitor;

        impl Visitor<'_> for TimeOfDayVisitor {
            type Value = TimeOfDay;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time of the day such as `04:00`, from `00:00` to `23:59`")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<TimeOfDay, E> {
                TimeOfDay::parse(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
            }
        }

        deserializer.deserialize_any(TimeOfDayVisitor)
    }
}

/// A whole number from `LEAST` to `MOST`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WholeNumber<const LEAST: usize, const MOST: usize>(pub usize);

impl<'de, const LEAST: usize, const MOST: usize> Deserialize<'de> for WholeNumber<LEAST, MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct WholeNumberVisitor<const LEAST: usize, const MOST: usize>;

        impl<const LEAST: usize, const MOST: usize> Visitor<'_> for WholeNumberVisitor<LEAST, MOST> {
            type Value = WholeNumber<LEAST, MOST>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a whole number from {LEAST} to {MOST}")
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Self::Value, E> {
                usize::try_from(number)
                    .ok()
                    .filter(|number| (LEAST..=MOST).contains(number))
                    .map(WholeNumber)
                    .ok_or_else(|| E::invalid_value(Unexpected::Unsigned(number), &self))
            }
        }

        deserializer.deserialize_any(WholeNumberVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time() {
        for (text, millis) in [
            ("250ms", Some(250)),
            ("10s", Some(10_000)),
            ("10", Some(10_000)),
            (" 5m ", Some(300_000)),
            ("1h", Some(3_600_000)),
            ("720h", Some(2_592_000_000)),
            ("0s", Some(0)),
            ("721h", None),
            ("", None),
            ("s", None),
            ("-1s", None),
            ("1.5s", None),
            ("10 s", None),
            ("10S", None),
            ("1d", None),
            ("99999999999999999999s", None),
            ("18446744073709551615h", None),
        ] {
            let length = TimeSpan::<0>::parse(text).map(|span| span.0);
            assert_eq!(length, millis.map(Duration::from_millis), "{text:?}");
        }
        assert_eq!(TimeSpan::<1>::parse("0s"), None);
    }

    #[test]
    fn lengths_of_keeping() {
        for (text, hours) in [
            ("30d", Some(Some(720))),
            (" 12h ", Some(Some(12))),
            ("forever", Some(None)),
            ("36500d", Some(Some(876_000))),
            ("36501d", None),
            ("0d", None),
            ("30", None),
            ("30m", None),
            ("-1d", None),
            ("d", None),
            ("never", None),
            ("99999999999999999999d", None),
            ("18446744073709551615d", None),
        ] {
            let kept = KeepFor::parse(text).map(|kept| kept.0);
            let expected =
                hours.map(|hours: Option<u64>| hours.map(|hours| Duration::from_secs(hours * 3600)));
            assert_eq!(kept, expected, "{text:?}");
        }
        let error = serde_yaml::from_str::<KeepFor>("30").unwrap_err().to_string();
        assert!(error.contains("expected `forever`, or days or hours such as `30d` or `12h`"), "{error}");
    }

    #[test]
    fn values_say_what_they_have_to_be() {
        let error = serde_yaml::from_str::<TimeSpan<1>>("soon").unwrap_err().to_string();
        assert!(error.ends_with(
            "expected a length of time such as `10s`, `5m`, `1h` or `250ms`, more than zero and at most `720h`"
        ));
        assert_eq!(serde_yaml::from_str::<TimeSpan<0>>("90").unwrap().0, Duration::from_secs(90));

        assert_eq!(serde_yaml::from_str::<WholeNumber<1, 1000>>("1000").unwrap(), WholeNumber(1000));
        for text in ["0", "1001", "-1", "1.5", "many", "[]"] {
            let error = serde_yaml::from_str::<WholeNumber<1, 1000>>(text).unwrap_err().to_string();
            assert!(error.contains("expected a whole number from 1 to 1000"), "{text}: {error}");
        }
    }
}
