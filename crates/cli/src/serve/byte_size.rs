//! Byte sizes in settings: a whole number and a unit, for example `64MiB`.

use std::fmt;
use std::str::FromStr;

/// The units, largest first.
const UNITS: [(&str, u64); 5] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

impl FromStr for ByteSize {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let unit = UNITS.iter().find(|(name, _)| *name == unit);
        let (false, Some((_, unit))) = (number.is_empty(), unit) else {
            return Err(
                "not a size; write a whole number and B, KiB, MiB, GiB or TiB without a space, for example 64MiB",
            );
        };
        let bytes = number.parse().ok().and_then(|number: u64| number.checked_mul(*unit));
        bytes.map(Self).ok_or("size is too large; for example 64MiB")
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = UNITS.iter().find(|(_, unit)| self.0 != 0 && self.0.is_multiple_of(*unit));
        let (name, unit) = whole.unwrap_or(&("B", 1));
        write!(f, "{}{name}", self.0 / unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_round_trip() {
        for (text, bytes) in [("0B", 0), ("17B", 17), ("4KiB", 4_096), ("64MiB", 64 << 20), ("1GiB", 1 << 30)] {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)));
            assert_eq!(ByteSize(bytes).to_string(), text);
        }
        assert_eq!(ByteSize(1_025).to_string(), "1025B");
    }

    #[test]
    fn invalid_sizes_are_rejected_with_an_example() {
        for text in
            ["", "64", "MiB", "64 MiB", "64MB", "64mib", "-1B", "1.5GiB", "20000000TiB", "99999999999999999999B"]
        {
            let refused = text.parse::<ByteSize>().expect_err(text);
            assert!(refused.ends_with("for example 64MiB"), "{text}: {refused}");
        }
    }
}
