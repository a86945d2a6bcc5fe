//! Adds unknown fields, enum values and codes to a JSON body.

use bytes::Bytes;
use serde_json::{Value, json};

use super::{UNKNOWN_CODE, UNKNOWN_WORD};

/// Rewrites a body; one that is not JSON passes.
pub fn rewrite(body: &Bytes) -> Bytes {
    match serde_json::from_slice::<Value>(body) {
        Ok(mut value) => {
            rewrite_value(&mut value);
            Bytes::from(value.to_string())
        }
        Err(_) => body.clone(),
    }
}

fn rewrite_value(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(rewrite_value);
            match fields.get("code").and_then(Value::as_str) {
                Some("BUSY") => {
                    fields.insert("code".to_owned(), json!(UNKNOWN_CODE));
                    fields.insert("type".to_owned(), json!(format!("urn:leasehold:error:{UNKNOWN_CODE}")));
                }
                Some("LEASE_LOST") => {
                    fields.insert("reason".to_owned(), json!(UNKNOWN_WORD));
                }
                _ => {}
            }
            if fields.contains_key("validity") {
                fields.insert("validity".to_owned(), json!(UNKNOWN_WORD));
            }
            fields.insert(UNKNOWN_WORD.to_owned(), json!({ "orbit": [7, null, "east"] }));
        }
        Value::Array(entries) => entries.iter_mut().for_each(rewrite_value),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_object_gets_an_unknown_field_and_known_codes_become_unknown() {
        let body =
            Bytes::from(r#"{"results":[{"code":"LEASE_LOST","reason":"ttl"}],"code":"BUSY","validity":"session"}"#);
        let value: Value = serde_json::from_slice(&rewrite(&body)).expect("JSON");
        assert_eq!((&value["code"], &value["validity"]), (&json!(UNKNOWN_CODE), &json!(UNKNOWN_WORD)));
        assert_eq!(value["results"][0]["reason"], UNKNOWN_WORD);
        assert!(value["results"][0][UNKNOWN_WORD].is_object());
        assert_eq!(rewrite(&Bytes::from("text")), "text");
    }
}
