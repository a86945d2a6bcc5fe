//! Text for a terminal: control characters and text-direction characters are escaped, because names, comments and messages come from
//! servers, targets, files and other users.

use std::borrow::Cow;
use std::fmt::Write;

use leasehold_core::unicode::is_misleading;

/// Escapes text of several lines. Line breaks and tabs stay.
pub fn escape_lines(text: &str) -> Cow<'_, str> {
    escape(text, |c| is_misleading(c) && !matches!(c, '\n' | '\t'))
}

/// Escapes text that belongs on one line; line breaks and tabs too.
pub fn escape_line(text: &str) -> Cow<'_, str> {
    escape(text, is_misleading)
}

fn escape(text: &str, unsafe_char: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&unsafe_char) {
        return text.into();
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if unsafe_char(c) {
            escaped.extend(c.escape_default());
        } else {
            escaped.push(c);
        }
    }
    escaped.into()
}

/// Escapes a JSON document: the value stays the same. Such a character occurs only inside of strings.
pub fn escape_json(document: String) -> String {
    if !document.contains(is_misleading) {
        return document;
    }
    let mut escaped = String::with_capacity(document.len() + 8);
    for c in document.chars() {
        if is_misleading(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(escaped, "\\u{unit:04x}").expect("writing to a string cannot fail");
            }
        } else {
            escaped.push(c);
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An escape sequence, its C1 form, a bell, a backspace, DEL, a direction override, a separator and a tag.
    const HOSTILE: &str = "a\u{1b}[31mb\u{9b}1mc\u{7}d\u{8}e\u{7f}f\u{202e}g\u{2028}h\u{e0041}i\r";

    #[test]
    fn nothing_that_controls_a_terminal_is_left() {
        for text in [escape_lines(HOSTILE), escape_line(HOSTILE)] {
            assert!(!text.contains(is_misleading), "{text:?}");
            assert_eq!(text, "a\\u{1b}[31mb\\u{9b}1mc\\u{7}d\\u{8}e\\u{7f}f\\u{202e}g\\u{2028}h\\u{e0041}i\\r");
        }
    }

    #[test]
    fn readable_text_is_unchanged() {
        for text in ["", "müller", "日本語 ✔\u{fe0f}", "C:\\temp", "\u{fffd}"] {
            assert!(matches!(escape_line(text), Cow::Borrowed(same) if same == text));
        }
        assert_eq!(escape_lines("a\tb\nc"), "a\tb\nc");
        assert_eq!(escape_line("a\tb\nc"), "a\\tb\\nc");
    }

    #[test]
    fn json_keeps_its_value() {
        let value = serde_json::json!({ "name": HOSTILE, "plain": "müller \"x\" \\" });
        let document = escape_json(value.to_string());
        assert!(!document.contains(is_misleading), "{document:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&document).expect("it is JSON"), value);
    }
}
