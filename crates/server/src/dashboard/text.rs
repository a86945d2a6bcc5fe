//! Text of the dashboard: times, durations and names as people read them.

use leasehold_core::unicode::is_invisible;
use maud::{Markup, html};
use time::OffsetDateTime;

/// A duration with its two largest units, such as `3 h 12 min`.
pub fn duration(ms: u64) -> String {
    let (s, m, h, d) = (ms / 1_000, ms / 60_000, ms / 3_600_000, ms / 86_400_000);
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..10_000 => format!("{}.{} s", s, ms % 1_000 / 100),
        10_000..60_000 => format!("{s} s"),
        60_000..3_600_000 => with_rest(m, "min", s % 60, "s"),
        3_600_000..86_400_000 => with_rest(h, "h", m % 60, "min"),
        _ => with_rest(d, "d", h % 24, "h"),
    }
}

fn with_rest(large: u64, unit: &str, small: u64, small_unit: &str) -> String {
    if small == 0 { format!("{large} {unit}") } else { format!("{large} {unit} {small} {small_unit}") }
}

/// A time in UTC, such as `2026-11-18 20:15:07.123`.
pub fn date_time(wall_ms: u64) -> String {
    let at = utc(wall_ms);
    format!("{:04}-{:02}-{:02} {}", at.year(), u8::from(at.month()), at.day(), clock_time(wall_ms))
}

/// A time of day in UTC, such as `20:15:07.123`.
pub fn clock_time(wall_ms: u64) -> String {
    format!("{}.{:03}", clock_seconds(wall_ms), wall_ms % 1_000)
}

/// A time of day in UTC without milliseconds.
pub fn clock_seconds(wall_ms: u64) -> String {
    let at = utc(wall_ms);
    format!("{:02}:{:02}:{:02}", at.hour(), at.minute(), at.second())
}

fn utc(wall_ms: u64) -> OffsetDateTime {
    let seconds = i64::try_from(wall_ms / 1_000).unwrap_or(i64::MAX);
    OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

/// A number with spaces between thousands.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// A number of bytes.
pub fn bytes(number: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if number < 1_024 {
        return format!("{number} B");
    }
    let (mut value, mut unit) = (number as f64 / 1_024.0, 0);
    while value >= 1_024.0 && unit < UNITS.len() - 1 {
        value /= 1_024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// `1 waiter`, `2 waiters`.
pub fn plural(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(number), if number == 1 { "" } else { "s" })
}

/// Text of a caller in which characters that are invisible or mislead a reader are visible.
pub fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_control() || is_invisible(letter) {
            shown.push_str(&letter.escape_unicode().to_string());
        } else {
            shown.push(letter);
        }
    }
    shown
}

/// A name of a caller. Its direction does not change that of the text around it.
pub fn name(text: &str) -> Markup {
    html! { bdi.name { (visible(text)) } }
}

/// A name that is shortened to a number of characters.
pub fn shortened(text: &str, max: usize) -> String {
    let text = visible(text);
    if text.chars().count() <= max {
        return text;
    }
    text.chars().take(max.saturating_sub(1)).chain(['\u{2026}']).collect()
}

/// A text as a part of a path, percent-encoded. Slashes stay.
pub fn path_part(text: &str) -> String {
    encoded(text, b"-._~/")
}

/// A text as a value of a query, percent-encoded.
pub fn query_value(text: &str) -> String {
    encoded(text, b"-._~")
}

fn encoded(text: &str, plain: &[u8]) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || plain.contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// The address of the page of a resource.
pub fn resource_path(resource: &str) -> String {
    format!("/ui/resource/{}", path_part(resource))
}

/// A link to the page of a resource.
pub fn resource_link(resource: &str) -> Markup {
    html! { a href=(resource_path(resource)) { (name(resource)) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_at_most_two_units() {
        let texts = [0, 7, 1_234, 59_999, 60_000, 61_000, 3_600_000, 11_520_000, 90_000_000].map(duration);
        assert_eq!(texts, ["0 ms", "7 ms", "1.2 s", "59 s", "1 min", "1 min 1 s", "1 h", "3 h 12 min", "1 d 1 h"]);
    }

    #[test]
    fn times_are_in_utc_and_any_number_is_a_time() {
        assert_eq!(date_time(1_795_032_907_123), "2026-11-18 20:15:07.123");
        assert_eq!(clock_seconds(u64::MAX).len(), 8);
    }

    #[test]
    fn names_of_callers_are_escaped_and_what_misleads_is_visible() {
        assert_eq!(name("<script>\"a\"").into_string(), "<bdi class=\"name\">&lt;script&gt;&quot;a&quot;</bdi>");
        assert_eq!(visible("a\u{202e}b\n"), "a\\u{202e}b\\u{a}");
        assert_eq!(resource_path("a b/c#d?e%/\u{e4}\""), "/ui/resource/a%20b/c%23d%3Fe%25/%C3%A4%22");
        assert_eq!(query_value("a/b&c=d"), "a%2Fb%26c%3Dd");
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(count(1_234_567), "1\u{202f}234\u{202f}567");
        assert_eq!((plural(1, "waiter").as_str(), plural(2, "waiter").as_str()), ("1 waiter", "2 waiters"));
        assert_eq!((bytes(1_023).as_str(), bytes(1_536).as_str()), ("1023 B", "1.5 KiB"));
    }
}
