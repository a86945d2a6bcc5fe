//! Error responses of the fence: problem details in JSON (RFC 9457), or a gRPC status.

use std::fmt::Write;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use leasehold_core::token::Number;
use leasehold_seal::SealError;
use serde_json::{Map, Value, json};

use super::gate::GateRejection;
use super::in_flight_body::ResponseBody;
use crate::{Error, FenceRefusal};

/// One row of the table of error codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FenceCode {
    /// The stable code.
    pub code: &'static str,
    /// The HTTP status.
    pub http: u16,
    /// The gRPC status.
    pub grpc: u8,
    /// Meaning of the code.
    pub meaning: &'static str,
    /// What the caller should do.
    pub next_step: &'static str,
}

macro_rules! rows {
    ($($code:literal $http:literal $grpc:literal $meaning:literal $next:literal;)+) => {
        /// All codes that the fence returns.
        pub const CODES: &[FenceCode] =
            &[$(FenceCode { code: $code, http: $http, grpc: $grpc, meaning: $meaning, next_step: $next },)+];
    };
}

rows! {
    "INVALID_ARGUMENT" 400 3 "A field has an invalid value." "Change the field and retry.";
    "PERMISSION_DENIED" 403 7 "The caller lacks permission." "Request the permission, or use another identity.";
    "CONFLICT" 409 9 "The request contradicts the current state." "Read the current state before you retry.";
    "STALE_TOKEN" 412 9 "A newer token has been used."
        "Stop writing. The lease of this token has ended.";
    "TOKEN_INVALID" 400 3 "The token is malformed, or belongs to another resource or slot."
        "Pass the token text from the grant unchanged.";
    "TOKEN_IMPLAUSIBLE" 400 3 "The token number is further ahead than clock differences explain."
        "Compare the clocks, and find the origin of the token.";
    "WRONG_CLUSTER" 421 9 "The token belongs to another cluster."
        "Send the request to the cluster that issued the token.";
    "NOT_ADOPTED" 412 9 "A strict target follows another incarnation."
        "Adopt the incarnation at the target if the restore was intended.";
    "INDETERMINATE" 504 2 "The outcome of the request is unknown." "Retry the same request under the same request id.";
    "UNAVAILABLE" 503 14 "No server decided; the request had no effect." "Retry the same request later.";
    "UNSUPPORTED_VERSION" 400 12 "The version is not supported." "Update the older side.";
    "STORAGE_FAILED" 500 13 "The server cannot read or write its storage."
        "Check the server's log; retry after the repair.";
    "CORRUPT" 500 15 "Stored data is damaged." "Keep the files, and restore from a backup.";
    "CONFIG" 400 3 "The configuration is invalid." "Fix the key at that line.";
    "RESOURCE_EXHAUSTED" 429 8 "A limit is exceeded." "Request less, or release something.";
}

/// An error response.
#[derive(Clone, Debug)]
pub struct FenceProblem {
    code: &'static str,
    detail: String,
    fields: Map<String, Value>,
}

impl FenceProblem {
    /// Creates a problem. `detail` ends with the next step.
    pub fn new(code: &'static str, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), fields: Map::new() }
    }

    /// Adds the field that caused the problem, and a stable reason.
    pub fn with_field(self, field: &str, reason: &str) -> Self {
        self.with("field", field).with("reason", reason)
    }

    /// Adds the time after which to retry.
    pub fn with_retry_after(self, after: std::time::Duration) -> Self {
        let after = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
        self.with("retry_after_ms", after)
    }

    pub(super) fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.fields.insert(key.to_owned(), value.into());
        self
    }

    /// The stable code.
    pub const fn code(&self) -> &'static str {
        self.code
    }

    fn row(&self) -> FenceCode {
        let row = CODES.iter().find(|row| row.code == self.code).copied();
        row.unwrap_or(FenceCode {
            code: self.code,
            http: 500,
            grpc: 13,
            meaning: "An error.",
            next_step: "Read the log.",
        })
    }

    /// The response, as a gRPC status or in JSON.
    pub fn into_response<B>(self, grpc: bool) -> Response<ResponseBody<B>> {
        if grpc { self.status() } else { self.json() }
    }

    fn json<B>(self) -> Response<ResponseBody<B>> {
        let row = self.row();
        let mut body = json!({
            "type": format!("urn:leasehold:error:{}", self.code),
            "title": row.meaning,
            "status": row.http,
            "detail": self.detail,
            "code": self.code,
            "next_step": row.next_step,
        });
        let retry = self.fields.get("retry_after_ms").and_then(Value::as_u64).map(|ms| ms.div_ceil(1_000));
        if let Value::Object(body) = &mut body {
            body.extend(self.fields);
        }
        let status = StatusCode::from_u16(row.http).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = json_response(status, &body);
        if let Some(seconds) = retry {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        let kind = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        response
    }

    fn status<B>(self) -> Response<ResponseBody<B>> {
        let grpc = self.row().grpc;
        let mut response = Response::new(ResponseBody::from_fence(None, None));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert("grpc-status", HeaderValue::from(u16::from(grpc)));
        insert_text(headers, "grpc-message", &percent_encode(&self.detail));
        insert_text(headers, "leasehold-code", self.code);
        for (key, value) in &self.fields {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            insert_text(headers, &format!("leasehold-{}", key.replace('_', "-")), &value);
        }
        response
    }
}

impl From<GateRejection> for FenceProblem {
    fn from(rejection: GateRejection) -> Self {
        match rejection {
            GateRejection::Fence(error) => Self::from(&error),
            GateRejection::Blocked { in_flight, retry_after } => {
                let cause = if in_flight > 0 {
                    format!("{in_flight} requests with a lower token are in flight")
                } else {
                    "the outcome of a request with a lower token is unknown".to_owned()
                };
                Self::new("UNAVAILABLE", format!("{cause}; nothing changed, retry later"))
                    .with_field("lease-token", "gate closed")
                    .with_retry_after(retry_after)
            }
            GateRejection::Unknown => {
                let detail = "a request with this sequence was forwarded earlier, and its outcome is unknown; read at the \
                              target whether it was applied, then continue with a higher sequence";
                Self::new("INDETERMINATE", detail).with_field("lease-sequence", "outcome unknown")
            }
            // Not a problem: the caller handles a duplicate before.
            GateRejection::AlreadyApplied { .. } => Self::new("CONFLICT", "the request was applied earlier; continue"),
        }
    }
}

impl From<&Error> for FenceProblem {
    fn from(error: &Error) -> Self {
        let base = Self::new(error.code(), error.to_string());
        let Some(refusal) = error.refusal() else { return base };
        let base = base.with_field("lease-token", refusal.reason());
        let number = |base: Self, key, number: Option<Number>| match number {
            Some(number) => base.with(key, number.to_string()),
            None => base,
        };
        let base = number(base, "presented", refusal.presented());
        let base = match refusal {
            FenceRefusal::NotAdopted { incarnation, .. } => base.with("incarnation", incarnation.to_string()),
            FenceRefusal::Seal(
                SealError::UnknownKey { kid } | SealError::EndedKey { kid, .. } | SealError::Signature { kid },
            ) => base.with("kid", kid.to_string()),
            _ => base,
        };
        number(base, "mark", if let FenceRefusal::Stale { mark, .. } = refusal { Some(*mark) } else { None })
    }
}

/// A response in JSON.
pub(super) fn json_response<B>(status: StatusCode, body: &Value) -> Response<ResponseBody<B>> {
    let mut response = Response::new(ResponseBody::from_fence(Some(Bytes::from(body.to_string())), None));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A successful gRPC response with an empty message.
pub(super) fn empty_grpc_response<B>() -> Response<ResponseBody<B>> {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    let mut response = Response::new(ResponseBody::from_fence(Some(Bytes::from_static(&[0; 5])), Some(trailers)));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

/// Whether these headers are of a gRPC message.
pub(super) fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}

fn insert_text(headers: &mut HeaderMap, name: &str, value: &str) {
    if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::from_str(value)) {
        headers.insert(name, value);
    }
}

/// Percent-encodes a `grpc-message`.
fn percent_encode(text: &str) -> String {
    text.bytes().fold(String::with_capacity(text.len()), |mut encoded, byte| {
        if (b' '..=b'~').contains(&byte) && byte != b'%' {
            encoded.push(char::from(byte));
        } else {
            write!(encoded, "%{byte:02X}").expect("writing to a string does not fail");
        }
        encoded
    })
}
