//! Messages of OTLP, generated from `proto/otlp/trace.proto`.

#![allow(missing_docs, clippy::all, reason = "generated code with the names of OpenTelemetry")]

tonic::include_proto!("leasehold.otlp");

impl KeyValue {
    /// A text.
    pub fn text(key: &str, text: impl Into<String>) -> Self {
        Self { key: key.to_owned(), value: Some(AnyValue { value: Some(any_value::Value::StringValue(text.into())) }) }
    }

    /// A whole number.
    pub fn number(key: &str, number: i64) -> Self {
        Self { key: key.to_owned(), value: Some(AnyValue { value: Some(any_value::Value::IntValue(number)) }) }
    }
}
