//! Conversion of server errors into fence errors: the first word is the code, `key=value` pairs hold the values.

use leasehold_core::token::Incarnation;
use redis::{RedisError, Value};

use super::VERSION;
use crate::refusal_text::{ErrorDetail, mark_loss, token_error};
use crate::{Error, FenceRefusal, MarkLoss};

impl From<RedisError> for Error {
    fn from(error: RedisError) -> Self {
        decode(&error).unwrap_or_else(|| Self::Storage(Box::new(error)))
    }
}

/// Whether the library is not installed or the server does not support functions.
pub(super) fn is_library_missing(error: &RedisError) -> bool {
    let text = error.detail().unwrap_or_default();
    text.contains("Function not found") || (text.contains("unknown command") && text.contains("FCALL"))
}

/// Last applied sequence, if the reply reports a late duplicate.
pub(super) fn last_applied(reply: &Value) -> Option<u64> {
    let (code, last): (String, String) = redis::from_redis_value_ref(reply).ok()?;
    last.parse().ok().filter(|_| code == "ALREADY_APPLIED")
}

/// Previous incarnation, if the claim changed it.
pub(super) fn previous_incarnation(reply: &str) -> Option<Incarnation> {
    ErrorDetail(reply).text("previous_incarnation")?.parse().ok()
}

fn decode(error: &RedisError) -> Option<Error> {
    let detail = ErrorDetail(error.detail().unwrap_or_default());
    let number = |key: &str| detail.number(key);
    let reason = detail.text("reason").unwrap_or_default();
    Some(match error.code()? {
        "STALE_TOKEN" => FenceRefusal::Stale { presented: number("presented")?, mark: number("mark")? }.into(),
        "TOKEN_INVALID" => FenceRefusal::Token(token_error(reason)?).into(),
        "TOKEN_IMPLAUSIBLE" => FenceRefusal::Implausible { presented: number("presented")? }.into(),
        // The token's cluster was checked before sending, so the mark is the one of another cluster.
        "WRONG_CLUSTER" => FenceRefusal::ForeignMark.into(),
        "STORAGE_FAILED" => FenceRefusal::MarkLost(mark_loss(reason)).into(),
        "NOT_ADOPTED" => {
            let incarnation = detail.text("incarnation")?.parse().ok()?;
            FenceRefusal::NotAdopted { presented: number("presented")?, incarnation }.into()
        }
        "CONFLICT" if reason == "replica" => Error::Conflict("this server is a replica; call its primary"),
        "CONFLICT" => Error::Conflict("the floor is below the mark; use a higher one"),
        // Other arguments are checked by their types before they are sent.
        "INVALID_ARGUMENT" => Error::InvalidArgument(
            "the command is missing, has more than 7900 words or names the key of the mark, which only the fence may write; change it",
        ),
        "UNSUPPORTED_VERSION" => Error::Version { found: detail.version(), supported: VERSION },
        _ if is_library_missing(error) => FenceRefusal::MarkLost(MarkLoss::Missing).into(),
        _ => return None,
    })
}
