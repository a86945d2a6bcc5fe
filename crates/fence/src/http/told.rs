//! What the fence answers itself: a problem with its stable code in JSON, or the same as a gRPC status.

use std::fmt::Write;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use leasehold_core::token::Number;
use serde_json::{Map, Value, json};

use super::body::Answered;
use super::gate::Denied;
use crate::{Error, Refusal};

/// A row of the one table of codes, as far as the fence answers with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The stable code.
    pub code: &'static str,
    /// The HTTP status.
    pub http: u16,
    /// The gRPC status.
    pub grpc: u8,
    /// What the code means.
    pub means: &'static str,
    /// What to do about it.
    pub next_step: &'static str,
}

macro_rules! rows {
    ($($code:literal $http:literal $grpc:literal $means:literal $next:literal;)+) => {
        /// Every code that the fence answers with.
        pub const CODES: &[Row] = &[$(Row { code: $code, http: $http, grpc: $grpc, means: $means, next_step: $next },)+];
    };
}

rows! {
    "INVALID_ARGUMENT" 400 3 "A field holds what it may not." "Change the field and ask again.";
    "CONFLICT" 409 9 "It contradicts what is there." "Read what is there before you retry.";
    "STALE_TOKEN" 412 9 "A newer token was here." "Stop. This authority is over.";
    "TOKEN_INVALID" 400 3 "Not a token, or not for this." "Pass the text of the grant on, unchanged and whole.";
    "TOKEN_IMPLAUSIBLE" 400 3 "A token's number lies further ahead than clocks explain."
        "Compare the clocks, and find where the token comes from.";
    "WRONG_CLUSTER" 421 9 "The token is another cluster's." "Ask the cluster that issued it.";
    "NOT_ADOPTED" 412 9 "A strict target follows another incarnation."
        "Adopt the incarnation at the target, if the restore was meant.";
    "INDETERMINATE" 504 2 "Nobody knows whether it happened." "Send the same request again under the same request id.";
    "UNAVAILABLE" 503 14 "Nobody decided; nothing happened." "Retry the same request later.";
    "UNSUPPORTED_VERSION" 400 12 "A version that is not read here." "Update the older side.";
    "STORAGE_FAILED" 500 13 "Something cannot be read or written." "Look at the server's log; retry when it is repaired.";
    "CORRUPT" 500 15 "Stored bytes are damaged." "Keep the files, and restore from a backup.";
    "CONFIG" 400 3 "The configuration says what it may not." "Change the key at that line.";
    "RESOURCE_EXHAUSTED" 429 8 "A bound is reached." "Ask for less, or release some.";
}

/// A no, or a request that came to nothing, as it is told.
#[derive(Clone, Debug)]
pub struct Problem {
    code: &'static str,
    detail: String,
    more: Map<String, Value>,
}

impl Problem {
    /// A problem with its code and words that end with the next step.
    pub fn new(code: &'static str, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), more: Map::new() }
    }

    /// The same about a field, and why.
    pub fn about(self, field: &str, reason: &str) -> Self {
        self.with("field", field).with("reason", reason)
    }

    /// The same, worth another try after this long.
    pub fn retry_after(self, after: std::time::Duration) -> Self {
        let after = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
        self.with("retry_after_ms", after)
    }

    fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.more.insert(key.to_owned(), value.into());
        self
    }

    /// The stable code.
    pub const fn code(&self) -> &'static str {
        self.code
    }

    fn row(&self) -> Row {
        let row = CODES.iter().find(|row| row.code == self.code).copied();
        row.unwrap_or(Row { code: self.code, http: 500, grpc: 13, means: "An error.", next_step: "Look at the log." })
    }

    /// The answer, in the words of whoever asked.
    pub fn answer<B>(self, grpc: bool) -> Response<Answered<B>> {
        if grpc { self.status() } else { self.json() }
    }

    fn json<B>(self) -> Response<Answered<B>> {
        let row = self.row();
        let mut body = json!({
            "type": format!("urn:leasehold:error:{}", self.code),
            "title": row.means,
            "status": row.http,
            "detail": self.detail,
            "code": self.code,
            "next_step": row.next_step,
        });
        let retry = self.more.get("retry_after_ms").and_then(Value::as_u64).map(|ms| ms.div_ceil(1_000));
        if let Value::Object(body) = &mut body {
            body.extend(self.more);
        }
        let status = StatusCode::from_u16(row.http).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = in_json(status, &body);
        if let Some(seconds) = retry {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        let kind = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        response
    }

    fn status<B>(self) -> Response<Answered<B>> {
        let grpc = self.row().grpc;
        let mut response = Response::new(Answered::told(None, None));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert("grpc-status", HeaderValue::from(u16::from(grpc)));
        text(headers, "grpc-message", &percent(&self.detail));
        text(headers, "leasehold-code", self.code);
        for (key, value) in &self.more {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            text(headers, &format!("leasehold-{}", key.replace('_', "-")), &value);
        }
        response
    }
}

impl From<Denied> for Problem {
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::Fence(error) => Self::from(&error),
            Denied::Blocked { inside, retry_after } => {
                let why = if inside > 0 {
                    format!("{inside} requests of a lower token have no outcome yet")
                } else {
                    "the outcome of a request of a lower token is unknown".to_owned()
                };
                Self::new("UNAVAILABLE", format!("{why}; nothing happened, retry later"))
                    .about("lease-token", "gate shut")
                    .retry_after(retry_after)
            }
            Denied::Unknown => {
                let told = "a request with this sequence was passed on before, and nobody knows what became of it; read \
                            at the target whether it was applied, then go on with a higher sequence";
                Self::new("INDETERMINATE", told).about("lease-sequence", "outcome unknown")
            }
            // It is an answer, not a problem; whoever tells it does so before.
            Denied::AlreadyApplied { .. } => Self::new("CONFLICT", "it was applied before; go on"),
        }
    }
}

impl From<&Error> for Problem {
    fn from(error: &Error) -> Self {
        let base = Self::new(error.code(), error.to_string());
        let Some(refusal) = error.refusal() else { return base };
        let base = base.about("lease-token", refusal.why());
        let number = |base: Self, key, number: Option<Number>| match number {
            Some(number) => base.with(key, number.to_string()),
            None => base,
        };
        let base = number(base, "presented", refusal.presented());
        let base = match refusal {
            Refusal::NotAdopted { incarnation, .. } => base.with("incarnation", incarnation.to_string()),
            _ => base,
        };
        number(base, "mark", if let Refusal::Stale { mark, .. } = refusal { Some(*mark) } else { None })
    }
}

/// An answer in JSON.
pub(super) fn in_json<B>(status: StatusCode, body: &Value) -> Response<Answered<B>> {
    let mut response = Response::new(Answered::told(Some(Bytes::from(body.to_string())), None));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// An empty message, in gRPC: it is done.
pub(super) fn in_grpc<B>() -> Response<Answered<B>> {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    let mut response = Response::new(Answered::told(Some(Bytes::from_static(&[0; 5])), Some(trailers)));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

/// Whether a request says that it is gRPC.
pub(super) fn speaks_grpc(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}

fn text(headers: &mut HeaderMap, name: &str, value: &str) {
    if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::from_str(value)) {
        headers.insert(name, value);
    }
}

/// What stands in `grpc-message`: plain ASCII, the rest by its bytes.
fn percent(words: &str) -> String {
    words.bytes().fold(String::with_capacity(words.len()), |mut told, byte| {
        if (b' '..=b'~').contains(&byte) && byte != b'%' {
            told.push(char::from(byte));
        } else {
            write!(told, "%{byte:02X}").expect("a string takes all");
        }
        told
    })
}
