//! What counts as a change of a result: everything but the passage of time.

use serde_json::Value;

/// Fields that change while nothing happens. A renewal changes them too, and is no change for a reader.
const PASSING: [&str; 9] = [
    "age_ms",
    "drain_ms",
    "idle_ms",
    "overlaps_ms",
    "position",
    "quarantine_ms",
    "remaining_ms",
    "silent_ms",
    "time_ms",
];

/// The document without fields that only show how time passes. Whether such a field is present still counts.
pub fn significant(document: &Value) -> Value {
    match document {
        Value::Object(fields) => Value::Object(
            fields
                .iter()
                .map(|(key, value)| {
                    let value = match PASSING.contains(&key.as_str()) {
                        true => Value::Bool(!value.is_null()),
                        false => significant(value),
                    };
                    (key.clone(), value)
                })
                .collect(),
        ),
        Value::Array(items) => Value::Array(items.iter().map(significant).collect()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_passage_of_time_is_no_change() {
        let lease = |holder: &str, remaining: u64, draining: Option<u64>| {
            significant(
                &json!({ "leases": [{ "holder": holder, "remaining_ms": remaining, "drain_ms": draining }], "position": remaining }),
            )
        };
        assert_eq!(lease("w1", 1, None), lease("w1", 2, None));
        assert_ne!(lease("w1", 1, None), lease("w2", 1, None));
        assert_ne!(lease("w1", 1, None), lease("w1", 1, Some(3)), "a drain begins");
        assert_eq!(lease("w1", 1, Some(2)), lease("w1", 1, Some(3)));
    }

    #[test]
    fn fields_that_are_no_clocks_stay() {
        assert!(PASSING.is_sorted());
        let status = json!({ "held": 1, "max_ttl_ms": 600_000, "checked_ms": 5, "stalled_ms": 0 });
        assert_eq!(significant(&status), status);
    }
}
