//! Error of an op: that of the client with its fields, or that of the driver itself.

use leasehold::{Error, Loss};
use serde_json::{Map, Value, json};

/// The error of one request.
#[derive(Debug)]
pub struct OpError(Map<String, Value>);

impl OpError {
    fn new(code: &str, message: &str, next_step: &str) -> Self {
        let fields = json!({ "code": code, "message": message, "next_step": next_step, "retryable": false });
        Self(fields.as_object().cloned().unwrap_or_default())
    }

    /// A malformed request or an unknown handle.
    pub fn driver(message: impl AsRef<str>) -> Self {
        Self::new("DRIVER", message.as_ref(), "Correct the scenario or the driver.")
    }

    /// An op that this driver does not have.
    pub fn unsupported(op: &str) -> Self {
        Self::new("UNSUPPORTED_OP", &format!("no op {op}"), "Add the op to the driver.")
    }

    /// A request that was canceled: its future was dropped.
    pub fn canceled() -> Self {
        Self::new("CANCELLED", "the request was canceled", "Acquire again if you still need the lease.")
    }

    /// A wait that reached its timeout.
    pub fn timeout(waited_for: &str) -> Self {
        Self::new("TIMEOUT", &format!("not in time: {waited_for}"), "Wait longer.")
    }

    /// The fields of the reply.
    pub fn into_json(self) -> Value {
        Value::Object(self.0)
    }
}

/// All fields that the client exposes.
impl From<Error> for OpError {
    fn from(error: Error) -> Self {
        let mut op_error = Self::new(error.code_name(), error.message(), error.next_step());
        for (name, value) in error.fields() {
            op_error.0.insert(name.to_owned(), json!(value));
        }
        op_error.0.insert("retryable".to_owned(), json!(error.is_retryable()));
        op_error
    }
}

impl From<Loss> for OpError {
    fn from(loss: Loss) -> Self {
        Error::from(loss).into()
    }
}
