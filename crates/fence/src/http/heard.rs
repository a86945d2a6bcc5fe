//! What a holder hears from a fence over HTTP, as the same error that a fence in its own process would give.

use std::time::Duration;

use leasehold_core::token::{Incarnation, Number, TokenError};
use serde_json::Value;

use crate::{Error, Lost, Refusal};

/// Reads the fence's no out of a problem's body. `None` if it is not one of a fence: then the service said it.
pub fn heard(body: &[u8]) -> Option<Error> {
    let problem: Value = serde_json::from_slice(body).ok()?;
    let text = |key: &str| problem.get(key).and_then(Value::as_str);
    let number = |key: &str| text(key)?.parse().ok().and_then(Number::new);
    if !text("type")?.starts_with("urn:leasehold:error:") {
        return None;
    }
    let refusal = match text("code")? {
        "STALE_TOKEN" => Refusal::Stale { presented: number("presented")?, mark: number("mark")? },
        "TOKEN_IMPLAUSIBLE" => Refusal::Implausible { presented: number("presented")? },
        "TOKEN_INVALID" => Refusal::Token(match text("reason")? {
            "absent" => TokenError::Absent,
            "checksum" => TokenError::Checksum,
            "zero" => TokenError::Zero,
            "too_large" => TokenError::TooLarge,
            "resource" => TokenError::Resource,
            "shared" => TokenError::Shared,
            "slot" => TokenError::Slot,
            _ => TokenError::Shape,
        }),
        "UNSUPPORTED_VERSION" => Refusal::Token(TokenError::Version { have: 0 }),
        "WRONG_CLUSTER" => Refusal::Token(TokenError::WrongCluster),
        "NOT_ADOPTED" => Refusal::NotAdopted {
            presented: number("presented")?,
            incarnation: text("incarnation").and_then(|text| text.parse().ok()).unwrap_or(Incarnation(0)),
        },
        "STORAGE_FAILED" => Refusal::Lost(match text("reason") {
            Some("missing") => Lost::Missing,
            Some("moved") => Lost::Moved,
            Some("lost") => Lost::Declared,
            _ => Lost::Unreadable,
        }),
        "UNAVAILABLE" => {
            let waited = problem.get("retry_after_ms").and_then(Value::as_u64).unwrap_or(0);
            return Some(Error::Blocked { waited: Duration::from_millis(waited), by: Vec::new() });
        }
        _ => return Some(Error::Storage(text("detail").unwrap_or("the fence failed").into())),
    };
    Some(refusal.into())
}
