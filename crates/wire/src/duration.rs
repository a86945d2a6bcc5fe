//! Durations as people write them: a whole number and a unit, such as `10s` or `1500ms`.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};

/// The units, largest first, in milliseconds.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// A duration in whole milliseconds, written as a number and a unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(value_type = String, examples("10s", "1500ms")))]
pub struct HumanDuration(u64);

impl HumanDuration {
    /// Creates a duration from milliseconds.
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms)
    }

    /// Returns the milliseconds.
    pub const fn millis(self) -> u64 {
        self.0
    }
}

/// Invalid text of a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseDurationError {
    /// The unit is missing.
    NoUnit,
    /// Not digits followed by a unit.
    Shape,
    /// More than 2^64 - 1 milliseconds.
    TooLong,
}

impl fmt::Display for ParseDurationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoUnit => "duration has no unit; write it like 10s or 1500ms",
            Self::Shape => "not a duration; write a whole number and one of ms, s, m, h, d without a space, like 10s",
            Self::TooLong => "duration is too long; write it like 10s or 1500ms",
        })
    }
}

impl std::error::Error for ParseDurationError {}

impl FromStr for HumanDuration {
    type Err = ParseDurationError;

    fn from_str(text: &str) -> Result<Self, ParseDurationError> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        if number.is_empty() {
            return Err(ParseDurationError::Shape);
        }
        if unit.is_empty() {
            return Err(ParseDurationError::NoUnit);
        }
        let (_, millis) = UNITS.iter().find(|(name, _)| *name == unit).ok_or(ParseDurationError::Shape)?;
        let number = number.parse::<u64>().map_err(|_| ParseDurationError::TooLong)?;
        number.checked_mul(*millis).map(Self).ok_or(ParseDurationError::TooLong)
    }
}

impl fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |(_, millis): &&(&str, u64)| self.0 != 0 && self.0.is_multiple_of(*millis);
        let (unit, millis) = UNITS.iter().find(fits).unwrap_or(&("s", 1_000));
        write!(f, "{}{unit}", self.0 / millis)
    }
}

impl Serialize for HumanDuration {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for HumanDuration {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Text;

        impl Visitor<'_> for Text {
            type Value = HumanDuration;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration in quotes with its unit, like \"10s\" or \"1500ms\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<HumanDuration, E> {
                text.parse().map_err(E::custom)
            }
        }

        from.deserialize_any(Text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_number_and_a_unit_parse() {
        for (text, ms) in
            [("0s", 0), ("1ms", 1), ("1500ms", 1_500), ("10s", 10_000), ("2m", 120_000), ("3h", 10_800_000)]
        {
            assert_eq!(text.parse(), Ok(HumanDuration(ms)), "{text}");
        }
        assert_eq!("7d".parse(), Ok(HumanDuration(604_800_000)));
    }

    #[test]
    fn other_text_is_refused_with_an_example() {
        let table = [
            ("", ParseDurationError::Shape),
            ("10", ParseDurationError::NoUnit),
            ("0", ParseDurationError::NoUnit),
            ("-1", ParseDurationError::Shape),
            ("-1s", ParseDurationError::Shape),
            ("+1s", ParseDurationError::Shape),
            ("10 s", ParseDurationError::Shape),
            (" 10s", ParseDurationError::Shape),
            ("10s ", ParseDurationError::Shape),
            ("1e3", ParseDurationError::Shape),
            ("1e3s", ParseDurationError::Shape),
            ("1.5s", ParseDurationError::Shape),
            ("1h30m", ParseDurationError::Shape),
            ("10S", ParseDurationError::Shape),
            ("10sec", ParseDurationError::Shape),
            ("NaN", ParseDurationError::Shape),
            ("inf", ParseDurationError::Shape),
            ("∞", ParseDurationError::Shape),
            ("٣s", ParseDurationError::Shape),
            ("18446744073709551616ms", ParseDurationError::TooLong),
            ("18446744073709551615s", ParseDurationError::TooLong),
        ];
        for (text, error) in table {
            assert_eq!(text.parse::<HumanDuration>(), Err(error), "{text:?}");
            assert!(error.to_string().contains("10s"), "{error}");
        }
    }

    #[test]
    fn json_accepts_only_text_never_a_number() {
        assert_eq!(serde_json::from_str::<HumanDuration>("\"10s\"").unwrap(), HumanDuration(10_000));
        for body in ["10", "1e3", "-1", "10.5", "null", "true", "\"10\"", "[]", "{}"] {
            let error = serde_json::from_str::<HumanDuration>(body).unwrap_err().to_string();
            assert!(error.contains("10s"), "{body}: {error}");
        }
    }

    proptest! {
        #[test]
        fn printed_durations_parse_back(ms in any::<u64>()) {
            prop_assert_eq!(HumanDuration(ms).to_string().parse(), Ok(HumanDuration(ms)));
            let json = serde_json::to_string(&HumanDuration(ms)).expect("a duration serializes");
            prop_assert_eq!(serde_json::from_str::<HumanDuration>(&json).expect("just printed"), HumanDuration(ms));
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,24}") {
            if let Ok(duration) = text.parse::<HumanDuration>() {
                prop_assert_eq!(duration.to_string().parse(), Ok(duration));
            }
        }
    }
}
