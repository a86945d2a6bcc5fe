//! Compares a reply with a pattern. A pattern lists what must be equal; fields that it does not name are ignored.
//!
//! | pattern | matches |
//! |---|---|
//! | a value | the same value |
//! | an object | an object whose named fields match |
//! | an array | an array of the same length whose entries match |
//! | `{"<=":n}`, also `<`, `>`, `>=`, `!=` | a number or decimal text in that relation; several at once must all hold |
//! | `{"any":[p, …]}` | what one of the patterns matches |
//! | `{"length":n}` | an array or text of that length |
//! | `{"present":true}` | anything but null and an absent field; an empty text is absent |

use std::cmp::Ordering;

use serde_json::{Map, Value};

use crate::variables::number;

/// Says why a value does not match a pattern; `None` if it does.
pub fn mismatch(pattern: &Value, value: &Value) -> Option<String> {
    match pattern {
        Value::Object(fields) if is_operator(fields) => {
            fields.iter().find_map(|(operator, operand)| operator_mismatch(operator, operand, value))
        }
        Value::Object(fields) => match value {
            Value::Object(found) => fields.iter().find_map(|(name, pattern)| {
                let missing = Value::Null;
                mismatch(pattern, found.get(name).unwrap_or(&missing)).map(|reason| format!(".{name}{reason}"))
            }),
            _ => Some(format!(": expected an object, not {value}")),
        },
        Value::Array(patterns) => match value {
            Value::Array(entries) if entries.len() == patterns.len() => {
                let pairs = patterns.iter().zip(entries).enumerate();
                pairs
                    .into_iter()
                    .find_map(|(at, (pattern, entry))| mismatch(pattern, entry).map(|reason| format!("[{at}]{reason}")))
            }
            _ => Some(format!(": expected {pattern}, not {value}")),
        },
        _ if pattern == value => None,
        _ => Some(format!(": expected {pattern}, not {value}")),
    }
}

fn is_operator(fields: &Map<String, Value>) -> bool {
    const OPERATORS: [&str; 8] = ["<", "<=", ">", ">=", "!=", "any", "length", "present"];
    !fields.is_empty() && fields.keys().all(|name| OPERATORS.contains(&name.as_str()))
}

fn operator_mismatch(operator: &str, operand: &Value, value: &Value) -> Option<String> {
    let holds = match operator {
        "any" => operand.as_array().is_some_and(|all| all.iter().any(|pattern| mismatch(pattern, value).is_none())),
        "length" => {
            let length = value.as_array().map(Vec::len).or_else(|| value.as_str().map(str::len));
            length.is_some_and(|length| operand.as_u64() == Some(length as u64))
        }
        "present" => value.as_str().map_or(!value.is_null(), |text| !text.is_empty()) == (operand == true),
        "!=" => operand != value,
        _ => {
            let ordering = compare(value, operand);
            matches!(
                (operator, ordering),
                ("<", Some(Ordering::Less))
                    | ("<=", Some(Ordering::Less | Ordering::Equal))
                    | (">", Some(Ordering::Greater))
                    | (">=", Some(Ordering::Greater | Ordering::Equal))
            )
        }
    };
    (!holds).then(|| format!(": expected {operator} {operand}, not {value}"))
}

/// Compares numbers and decimal texts. Token numbers exceed what a float distinguishes, so texts are compared as integers.
fn compare(left: &Value, right: &Value) -> Option<Ordering> {
    let whole = |value: &Value| match value {
        Value::String(text) => text.parse::<u128>().ok(),
        Value::Number(number) => number.as_u64().map(u128::from),
        _ => None,
    };
    match (whole(left), whole(right)) {
        (Some(left), Some(right)) => Some(left.cmp(&right)),
        _ => number(left)?.partial_cmp(&number(right)?),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pattern_names_what_must_match() {
        let reply = json!({"ok": {"state": "lost", "reason": "ttl", "slots": [0, 1], "n": "248846480192831489"}});
        for pattern in [
            json!({"ok": {"state": "lost"}}),
            json!({"ok": {"reason": {"any": ["ttl", "session"]}, "slots": {"length": 2}}}),
            json!({"ok": {"n": {">": "248846480192831488", "<": "248846480192831490"}, "absent": null}}),
            json!({"ok": {"state": {"present": true}, "other": {"present": false}, "slots": [0, {">=": 1}]}}),
        ] {
            assert_eq!(mismatch(&pattern, &reply), None, "{pattern}");
        }
    }

    #[test]
    fn a_mismatch_names_the_field_and_both_values() {
        let reply = json!({"ok": {"state": "lost", "slots": [0, 1], "next_step": ""}});
        for (pattern, reason) in [
            (json!({"ok": {"state": "held"}}), r#".ok.state: expected "held", not "lost""#),
            (json!({"error": {"code": "BUSY"}}), ".error: expected an object, not null"),
            (json!({"ok": {"slots": [0]}}), ".ok.slots: expected [0], not [0,1]"),
            (json!({"ok": {"slots": [{">": 0}, 1]}}), ".ok.slots[0]: expected > 0, not 0"),
            (json!({"ok": {"next_step": {"present": true}}}), r#".ok.next_step: expected present true, not """#),
        ] {
            assert_eq!(mismatch(&pattern, &reply).as_deref(), Some(reason));
        }
    }
}
