//! Times of a bearer file: TOML date-times with an offset, as seconds since 1970.

use time::{Date, Month, OffsetDateTime, Time, UtcOffset};
use toml::value::{Datetime, Offset};

/// Seconds since 1970; none for a date-time without date, time or offset, or before 1970.
pub(super) fn seconds(at: &Datetime) -> Option<u64> {
    let (date, time, offset) = (at.date?, at.time?, at.offset?);
    let date = Date::from_calendar_date(date.year.into(), Month::try_from(date.month).ok()?, date.day).ok()?;
    let time = Time::from_hms(time.hour, time.minute, time.second.unwrap_or(0)).ok()?;
    let minutes = match offset {
        Offset::Z => 0,
        Offset::Custom { minutes } => minutes,
    };
    let offset = UtcOffset::from_whole_seconds(i32::from(minutes) * 60).ok()?;
    u64::try_from(OffsetDateTime::new_in_offset(date, time, offset).unix_timestamp()).ok()
}

/// A time as a TOML date-time in UTC.
pub fn timestamp_text(seconds: u64) -> String {
    let at = i64::try_from(seconds).ok().and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok());
    let at = at.unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let (year, month, day) = (at.year(), u8::from(at.month()), at.day());
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", at.hour(), at.minute(), at.second())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_parsed_from_its_own_text_and_with_other_offsets() {
        for at in [0, 951_782_400, 1_795_000_000, 4_102_444_799] {
            let parsed: Datetime = timestamp_text(at).parse().expect("a date-time");
            assert_eq!(seconds(&parsed), Some(at));
        }
        let of = |text: &str| seconds(&text.parse().expect("a date-time"));
        assert_eq!(of("2026-11-18T10:00:00+01:00"), of("2026-11-18T09:00:00Z"));
        for incomplete in ["2026-11-18T10:00:00", "2026-11-18", "10:00:00", "1969-12-31T23:59:59Z"] {
            assert_eq!(of(incomplete), None, "{incomplete}");
        }
    }
}
