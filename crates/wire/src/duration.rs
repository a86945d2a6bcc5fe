//! How long, as people write it: a whole number and its unit, `10s` or `1500ms`, and nothing else.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};

/// The units, largest first, in milliseconds.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// A length of time in whole milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(value_type = String, examples("10s", "1500ms")))]
pub struct Lasting(u64);

impl Lasting {
    /// So many milliseconds.
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms)
    }

    /// In milliseconds.
    pub const fn millis(self) -> u64 {
        self.0
    }
}

/// Text that is not a length of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotADuration {
    /// No unit behind the number.
    NoUnit,
    /// Anything else than digits and a unit.
    Shape,
    /// More milliseconds than a number holds.
    TooLong,
}

impl fmt::Display for NotADuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoUnit => "a number without a unit; write it like 10s or 1500ms",
            Self::Shape => "not a duration; write a whole number and one of ms, s, m, h, d without a space, like 10s",
            Self::TooLong => "longer than can be counted; write it like 10s or 1500ms",
        })
    }
}

impl std::error::Error for NotADuration {}

impl FromStr for Lasting {
    type Err = NotADuration;

    fn from_str(text: &str) -> Result<Self, NotADuration> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        if number.is_empty() {
            return Err(NotADuration::Shape);
        }
        if unit.is_empty() {
            return Err(NotADuration::NoUnit);
        }
        let (_, millis) = UNITS.iter().find(|(name, _)| *name == unit).ok_or(NotADuration::Shape)?;
        let number = number.parse::<u64>().map_err(|_| NotADuration::TooLong)?;
        number.checked_mul(*millis).map(Self).ok_or(NotADuration::TooLong)
    }
}

impl fmt::Display for Lasting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |(_, millis): &&(&str, u64)| self.0 != 0 && self.0.is_multiple_of(*millis);
        let (unit, millis) = UNITS.iter().find(fits).unwrap_or(&("s", 1_000));
        write!(f, "{}{unit}", self.0 / millis)
    }
}

impl Serialize for Lasting {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Lasting {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Text;

        impl Visitor<'_> for Text {
            type Value = Lasting;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration in quotes with its unit, like \"10s\" or \"1500ms\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Lasting, E> {
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
    fn a_number_and_a_unit_are_read() {
        for (text, ms) in
            [("0s", 0), ("1ms", 1), ("1500ms", 1_500), ("10s", 10_000), ("2m", 120_000), ("3h", 10_800_000)]
        {
            assert_eq!(text.parse(), Ok(Lasting(ms)), "{text}");
        }
        assert_eq!("7d".parse(), Ok(Lasting(604_800_000)));
    }

    #[test]
    fn anything_else_is_refused_with_an_example() {
        let table = [
            ("", NotADuration::Shape),
            ("10", NotADuration::NoUnit),
            ("0", NotADuration::NoUnit),
            ("-1", NotADuration::Shape),
            ("-1s", NotADuration::Shape),
            ("+1s", NotADuration::Shape),
            ("10 s", NotADuration::Shape),
            (" 10s", NotADuration::Shape),
            ("10s ", NotADuration::Shape),
            ("1e3", NotADuration::Shape),
            ("1e3s", NotADuration::Shape),
            ("1.5s", NotADuration::Shape),
            ("1h30m", NotADuration::Shape),
            ("10S", NotADuration::Shape),
            ("10sec", NotADuration::Shape),
            ("NaN", NotADuration::Shape),
            ("inf", NotADuration::Shape),
            ("∞", NotADuration::Shape),
            ("٣s", NotADuration::Shape),
            ("18446744073709551616ms", NotADuration::TooLong),
            ("18446744073709551615s", NotADuration::TooLong),
        ];
        for (text, why) in table {
            assert_eq!(text.parse::<Lasting>(), Err(why), "{text:?}");
            assert!(why.to_string().contains("10s"), "{why}");
        }
    }

    #[test]
    fn in_json_it_is_a_text_and_never_a_number() {
        assert_eq!(serde_json::from_str::<Lasting>("\"10s\"").unwrap(), Lasting(10_000));
        for body in ["10", "1e3", "-1", "10.5", "null", "true", "\"10\"", "[]", "{}"] {
            let error = serde_json::from_str::<Lasting>(body).unwrap_err().to_string();
            assert!(error.contains("10s"), "{body}: {error}");
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_back(ms in any::<u64>()) {
            prop_assert_eq!(Lasting(ms).to_string().parse(), Ok(Lasting(ms)));
            let json = serde_json::to_string(&Lasting(ms)).expect("a text");
            prop_assert_eq!(serde_json::from_str::<Lasting>(&json).expect("just printed"), Lasting(ms));
        }

        #[test]
        fn no_text_at_all_panics(text in "\\PC{0,24}") {
            if let Ok(lasting) = text.parse::<Lasting>() {
                prop_assert_eq!(lasting.to_string().parse(), Ok(lasting));
            }
        }
    }
}
