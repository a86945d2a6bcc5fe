//! Values that steps save and later steps use: `$name` in any text, and sums such as `["$ttl","-",200]`.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::failure::{ScenarioFailure, broken};

/// Variables of one scenario run.
#[derive(Clone, Debug, Default)]
pub struct Variables(BTreeMap<String, Value>);

impl Variables {
    /// Sets a variable.
    pub fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.0.insert(name.to_owned(), value.into());
    }

    /// A variable that is set.
    pub fn get(&self, name: &str) -> Result<&Value, ScenarioFailure> {
        match self.0.get(name) {
            Some(value) => Ok(value),
            None => broken(format!("no variable ${name}")),
        }
    }

    /// Replaces variables in all texts of a value. A text that is only `$name` becomes the value of the variable.
    pub fn expand(&self, value: &Value) -> Result<Value, ScenarioFailure> {
        Ok(match value {
            Value::String(text) => self.expand_text(text)?,
            Value::Array(list) => Value::Array(list.iter().map(|entry| self.expand(entry)).collect::<Result<_, _>>()?),
            Value::Object(fields) => Value::Object(self.expand_fields(fields)?),
            other => other.clone(),
        })
    }

    /// Replaces variables in all fields.
    pub fn expand_fields(&self, fields: &Map<String, Value>) -> Result<Map<String, Value>, ScenarioFailure> {
        fields.iter().map(|(name, value)| Ok((name.clone(), self.expand(value)?))).collect()
    }

    fn expand_text(&self, text: &str) -> Result<Value, ScenarioFailure> {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if let Some(name) = text.strip_prefix('$').filter(|name| !name.is_empty() && name.chars().all(is_name)) {
            return self.get(name).cloned();
        }
        let mut parts = text.split('$');
        let mut expanded = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let end = part.find(|c| !is_name(c)).unwrap_or(part.len());
            match self.get(&part[..end])? {
                Value::String(value) => expanded.push_str(value),
                other => expanded.push_str(&other.to_string()),
            }
            expanded.push_str(&part[end..]);
        }
        Ok(Value::String(expanded))
    }
}

/// The number that a value stands for: a number, a decimal text, or a sum of them.
pub fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.parse().ok(),
        Value::Array(terms) => {
            let mut sum = number(terms.first()?)?;
            for pair in terms[1..].chunks(2) {
                let [Value::String(sign), term] = pair else { return None };
                match sign.as_str() {
                    "+" => sum += number(term)?,
                    "-" => sum -= number(term)?,
                    "*" => sum *= number(term)?,
                    _ => return None,
                }
            }
            Some(sum)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_are_expanded_whole_and_in_parts() {
        let mut variables = Variables::default();
        variables.set("ns", "t1");
        variables.set("ttl", 2_000);
        assert_eq!(variables.expand(&json!(["$ns/x", "$ttl", 3])).expect("set"), json!(["t1/x", 2_000, 3]));
        assert!(variables.expand(&json!("$other")).is_err());
    }

    #[test]
    fn numbers_are_read_from_numbers_texts_and_sums() {
        assert_eq!(number(&json!("17")), Some(17.0));
        assert_eq!(number(&json!([2_000, "-", 500, "+", "1"])), Some(1_501.0));
        assert_eq!(number(&json!("x")), None);
    }
}
