//! A moment on the command line: a time in UTC, the milliseconds of a link of the dashboard, or how long ago it was.

use std::str::FromStr;

use leasehold::duration::HumanDuration;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// A moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeArg {
    /// Milliseconds since 1970.
    At(u64),
    /// Milliseconds before now.
    Ago(u64),
}

impl TimeArg {
    /// Milliseconds since 1970.
    pub const fn at(self, now_ms: u64) -> u64 {
        match self {
            Self::At(at) => at,
            Self::Ago(ago) => now_ms.saturating_sub(ago),
        }
    }
}

/// The last time that has a date with four digits of the year.
const MAX_TIME_MS: u64 = 253_402_300_799_000;

impl FromStr for TimeArg {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = "must be a time such as 2026-11-18T20:15:07Z, milliseconds since 1970, or a duration before now such as 10m";
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            return text.parse().ok().filter(|at| *at <= MAX_TIME_MS).map(Self::At).ok_or(invalid);
        }
        if let Ok(ago) = text.parse::<HumanDuration>() {
            return Ok(Self::Ago(ago.millis()));
        }
        // `leasehold history` prints a space.
        let at = OffsetDateTime::parse(&text.replacen(' ', "T", 1), &Rfc3339).map_err(|_| invalid)?;
        u64::try_from(at.unix_timestamp_nanos() / 1_000_000).map(Self::At).map_err(|_| invalid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_a_time_milliseconds_or_a_duration_before_now() {
        let parsed = |text: &str| text.parse::<TimeArg>();
        for same in
            ["2026-11-18T20:15:07.123Z", "2026-11-18 20:15:07.123Z", "2026-11-18T21:15:07.123+01:00", "1795032907123"]
        {
            assert_eq!(parsed(same), Ok(TimeArg::At(1_795_032_907_123)), "{same}");
        }
        assert_eq!(parsed("10m").expect("a duration").at(1_000_000), 400_000);
        assert_eq!(parsed("10m").expect("a duration").at(1_000), 0);
        for invalid in [
            "",
            "now",
            "2026-11-18",
            "2026-11-18T20:15:07",
            "99999999999999999999",
            "253402300799001",
            "1969-01-01T00:00:00Z",
        ] {
            assert!(parsed(invalid).is_err(), "{invalid}");
        }
    }
}
