//! YAML from a JSON document: the same value, in block style.
//!
//! A text is plain only if no parser of YAML 1.1 or 1.2 could read anything else in it. All others are in double quotes, with
//! every character escaped that could control a terminal.

use std::fmt::Write;

use leasehold_core::unicode::{is_invisible, is_misleading};
use serde_json::{Number, Value};

/// One document, without its last line break.
pub fn to_string(value: &Value) -> String {
    let mut text = String::new();
    match value {
        Value::Object(fields) if !fields.is_empty() => write_value(&mut text, value, 0),
        Value::Array(items) if !items.is_empty() => write_value(&mut text, value, 0),
        scalar => text = inline(scalar),
    }
    text.truncate(text.trim_end_matches('\n').len());
    text
}

/// Writes a value that fits on no line: an object or an array with members.
fn write_value(text: &mut String, value: &Value, depth: usize) {
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                write!(text, "{indent}{}:", scalar(key)).expect("writing to a string cannot fail");
                write_member(text, value, depth);
            }
        }
        Value::Array(items) => {
            for item in items {
                text.push_str(&indent);
                text.push('-');
                match item {
                    // The first field is on the line of its dash.
                    Value::Object(fields) if !fields.is_empty() => {
                        let start = text.len();
                        write_value(text, item, depth + 1);
                        text.replace_range(start..start + indent.len() + 2, " ");
                    }
                    _ => write_member(text, item, depth),
                }
            }
        }
        scalar => writeln!(text, "{indent}{}", inline(scalar)).expect("writing to a string cannot fail"),
    }
}

/// Writes what follows a colon or a dash.
fn write_member(text: &mut String, value: &Value, depth: usize) {
    let is_block = match value {
        Value::Object(fields) => !fields.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => false,
    };
    if is_block {
        text.push('\n');
        write_value(text, value, depth + 1);
    } else {
        writeln!(text, " {}", inline(value)).expect("writing to a string cannot fail");
    }
}

/// A value on one line.
fn inline(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => number_text(number),
        Value::String(text) => scalar(text),
        Value::Array(_) => "[]".to_owned(),
        Value::Object(_) => "{}".to_owned(),
    }
}

/// A number as every version reads it: YAML 1.1 requires a point and a sign in an exponent.
fn number_text(number: &Number) -> String {
    let text = number.to_string();
    let Some((mantissa, exponent)) = text.split_once('e') else { return text };
    let point = if mantissa.contains('.') { "" } else { ".0" };
    let sign = if exponent.starts_with(['-', '+']) { "" } else { "+" };
    format!("{mantissa}{point}e{sign}{exponent}")
}

/// Words that some version reads as a value that is no text.
const RESERVED: [&str; 12] = ["null", "true", "false", "yes", "no", "on", "off", "y", "n", "nan", "inf", "infinity"];

/// A text, plain or quoted.
fn scalar(text: &str) -> String {
    let is_plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "_./@+- ".contains(c))
        && !text.ends_with(' ')
        && !RESERVED.contains(&text.to_ascii_lowercase().as_str());
    if is_plain { text.to_owned() } else { quoted(text) }
}

fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            c if is_misleading(c) || is_invisible(c) => {
                let code = u32::from(c);
                let written = match code {
                    ..=0xff => write!(quoted, "\\x{code:02x}"),
                    0x100..=0xffff => write!(quoted, "\\u{code:04x}"),
                    _ => write!(quoted, "\\U{code:08x}"),
                };
                written.expect("writing to a string cannot fail");
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_and_arrays_are_blocks() {
        let value = json!({
            "resource": "jobs/settle",
            "held": true,
            "slot": null,
            "none": [],
            "empty": {},
            "leases": [{ "holder": "w1", "ttl_ms": 30_000, "tags": ["a", "b"] }, [1, [2]], {}],
        });
        let expected = "\
empty: {}
held: true
leases:
  - holder: w1
    tags:
      - a
      - b
    ttl_ms: 30000
  -
    - 1
    -
      - 2
  - {}
none: []
resource: jobs/settle
slot: null";
        assert_eq!(to_string(&value), expected);
        assert_eq!(
            (to_string(&json!([])), to_string(&json!({})), to_string(&json!("x"))),
            ("[]".into(), "{}".into(), "x".into())
        );
    }

    #[test]
    fn a_text_that_could_be_another_value_is_quoted() {
        let ambiguous = [
            "",
            "1",
            "0258755447193600007",
            "1.5",
            "-1",
            "+1",
            "1e3",
            "0x1f",
            "1_000",
            "12:30",
            "2026-01-01",
            "true",
            "No",
            "ON",
            "y",
            "null",
            "~",
            ".inf",
            "NaN",
            "- a",
            "a: b",
            "a #b",
            "#a",
            "*a",
            "&a",
            "!a",
            "%a",
            "@a",
            "`a",
            "{a",
            "[a",
            "a]",
            "|",
            ">",
            "?",
            " a",
            "a ",
            "'a'",
            "\"a\"",
            "a\nb",
            "a:",
            "=",
            "<<",
            "---",
            "...",
            "a,b",
        ];
        for text in ambiguous {
            let written = to_string(&json!(text));
            assert!(written.starts_with('"') && written.ends_with('"') && written.len() > 1, "{text:?}: {written}");
        }
        for text in ["a", "jobs/settle", "w-1", "name with spaces", "a.b@c", "_sys", "e5", "truely"] {
            assert_eq!(to_string(&json!(text)), text);
        }
    }

    #[test]
    fn nothing_that_controls_a_terminal_is_left() {
        let hostile = "a\u{1b}[31m\u{9b}\u{7}\u{202e}\u{e0041}\u{feff}\r\n\t\"\\ü日";
        let written = to_string(&json!({ hostile: hostile }));
        let text = "\"a\\x1b[31m\\x9b\\x07\\u202e\\U000e0041\\ufeff\\r\\n\\t\\\"\\\\ü日\"";
        assert_eq!(written, format!("{text}: {text}"));
    }

    #[test]
    fn numbers_stay_numbers() {
        assert_eq!(to_string(&json!(u64::MAX)), "18446744073709551615");
        assert_eq!((to_string(&json!(1e20)), to_string(&json!(1.5e-9))), ("1.0e+20".into(), "1.5e-9".into()));
    }
}
