//! One request of the runner, with typed access to its fields.

use std::time::Duration;

use serde_json::{Map, Value};

use crate::op_error::OpError;

/// A request: its id, its op and its fields. An absent field and `null` are the same.
#[derive(Debug)]
pub struct OpRequest {
    /// Id that the reply carries.
    pub id: u64,
    /// Name of the operation.
    pub op: String,
    fields: Map<String, Value>,
}

impl OpRequest {
    /// Parses a line. An error comes with the id, 0 if it is unknown.
    pub fn parse(line: &str) -> Result<Self, (u64, OpError)> {
        let fields: Map<String, Value> =
            serde_json::from_str(line).map_err(|error| (0, OpError::driver(format!("not a JSON object: {error}"))))?;
        let id = fields.get("id").and_then(Value::as_u64).ok_or_else(|| (0, OpError::driver("no id")))?;
        let op = fields.get("op").and_then(Value::as_str).ok_or_else(|| (id, OpError::driver("no op")))?.to_owned();
        Ok(Self { id, op, fields })
    }

    /// A field, if it is present.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.fields.get(name).filter(|value| !value.is_null())
    }

    /// A text, if it is present.
    pub fn text_opt(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(Value::as_str)
    }

    /// A text that must be present.
    pub fn text(&self, name: &str) -> Result<&str, OpError> {
        self.text_opt(name).ok_or_else(|| OpError::driver(format!("{}: no text `{name}`", self.op)))
    }

    /// A number, or a decimal string, if it is present.
    pub fn u64_opt(&self, name: &str) -> Option<u64> {
        let value = self.get(name)?;
        value.as_u64().or_else(|| value.as_str()?.parse().ok())
    }

    /// A number that must be present.
    pub fn u64(&self, name: &str) -> Result<u64, OpError> {
        self.u64_opt(name).ok_or_else(|| OpError::driver(format!("{}: no number `{name}`", self.op)))
    }

    /// A number that must fit into 32 bits, if it is present.
    pub fn u32_opt(&self, name: &str) -> Result<Option<u32>, OpError> {
        let narrow = |value| u32::try_from(value).map_err(|_| OpError::driver(format!("`{name}` is too large")));
        self.u64_opt(name).map(narrow).transpose()
    }

    /// Milliseconds, if they are present.
    pub fn millis_opt(&self, name: &str) -> Option<Duration> {
        self.u64_opt(name).map(Duration::from_millis)
    }

    /// Milliseconds that must be present.
    pub fn millis(&self, name: &str) -> Result<Duration, OpError> {
        self.u64(name).map(Duration::from_millis)
    }

    /// Whether a flag is set.
    pub fn is_set(&self, name: &str) -> bool {
        self.get(name).and_then(Value::as_bool).unwrap_or(false)
    }
}
