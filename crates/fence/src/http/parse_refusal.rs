//! Client side of an HTTP fence: parses its error responses.

use std::time::Duration;

use leasehold_core::token::{Incarnation, Number, TokenError};
use serde_json::Value;

use crate::refusal_text::{mark_loss, seal_refusal, token_error};
use crate::{Error, FenceRefusal};

/// Parses the body of an error response into the error that a local fence would return. `None` if the response is not from
/// a fence, but from the service.
pub fn parse_refusal(body: &[u8]) -> Option<Error> {
    let problem: Value = serde_json::from_slice(body).ok()?;
    let text = |key: &str| problem.get(key).and_then(Value::as_str);
    let number = |key: &str| text(key)?.parse().ok().and_then(Number::new);
    if !text("type")?.starts_with("urn:leasehold:error:") {
        return None;
    }
    let seal = seal_refusal(text("reason").unwrap_or_default(), text("kid"));
    let refusal = match text("code")? {
        "STALE_TOKEN" => FenceRefusal::Stale { presented: number("presented")?, mark: number("mark")? },
        "TOKEN_IMPLAUSIBLE" => FenceRefusal::Implausible { presented: number("presented")? },
        "TOKEN_INVALID" | "CONFIG" if seal.is_some() => seal?,
        "TOKEN_INVALID" => FenceRefusal::Token(token_error(text("reason")?).unwrap_or(TokenError::Shape)),
        "UNSUPPORTED_VERSION" => FenceRefusal::Token(TokenError::Version { have: 0 }),
        "WRONG_CLUSTER" => FenceRefusal::Token(TokenError::WrongCluster),
        "NOT_ADOPTED" => FenceRefusal::NotAdopted {
            presented: number("presented")?,
            incarnation: text("incarnation").and_then(|text| text.parse().ok()).unwrap_or(Incarnation(0)),
        },
        "STORAGE_FAILED" => FenceRefusal::MarkLost(mark_loss(text("reason").unwrap_or_default())),
        "UNAVAILABLE" => {
            let waited = problem.get("retry_after_ms").and_then(Value::as_u64).unwrap_or(0);
            return Some(Error::Blocked { waited: Duration::from_millis(waited), blockers: Vec::new() });
        }
        _ => return Some(Error::Storage(text("detail").unwrap_or("the fence failed").into())),
    };
    Some(refusal.into())
}
