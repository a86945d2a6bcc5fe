//! What the server answered, in the words of all fences: the first word of its error is the code, the others carry numbers.

use leasehold_core::token::{Incarnation, Number, TokenError};
use redis::{RedisError, Value};

use super::VERSION;
use crate::{Error, Lost, Refusal};

impl From<RedisError> for Error {
    fn from(error: RedisError) -> Self {
        answer(&error).unwrap_or_else(|| Self::Storage(Box::new(error)))
    }
}

/// Whether this says that the library was never installed, or that the server knows no functions.
pub(super) fn no_library(error: &RedisError) -> bool {
    let text = error.detail().unwrap_or_default();
    text.contains("Function not found") || (text.contains("unknown command") && text.contains("FCALL"))
}

/// The last sequence, if the answer to a numbered write says that it was applied before.
pub(super) fn duplicate(answer: &Value) -> Option<u64> {
    let (code, last): (String, String) = redis::from_redis_value_ref(answer).ok()?;
    last.parse().ok().filter(|_| code == "ALREADY_APPLIED")
}

/// The incarnation that a claim left.
pub(super) fn left(told: &str) -> Option<Incarnation> {
    word(told, "left")?.parse().ok()
}

fn answer(error: &RedisError) -> Option<Error> {
    let words = error.detail().unwrap_or_default();
    let number = |name: &str| word(words, name).and_then(|value| value.parse().ok()).and_then(Number::new);
    let why = word(words, "why").unwrap_or_default();
    Some(match error.code()? {
        "STALE_TOKEN" => Refusal::Stale { presented: number("presented")?, mark: number("mark")? }.into(),
        "TOKEN_INVALID" => Refusal::Token(invalid(why)?).into(),
        "TOKEN_IMPLAUSIBLE" => Refusal::Implausible { presented: number("presented")? }.into(),
        // The token was checked against the fence before it was sent: it is the mark that is another cluster's.
        "WRONG_CLUSTER" => Refusal::ForeignMark.into(),
        "STORAGE_FAILED" => Refusal::Lost(lost(why)).into(),
        "NOT_ADOPTED" => {
            let incarnation = word(words, "incarnation")?.parse().ok()?;
            Refusal::NotAdopted { presented: number("presented")?, incarnation }.into()
        }
        "CONFLICT" => Error::Conflict("the floor is below a number that was seen here; take a higher one"),
        "INVALID_ARGUMENT" => Error::Misplaced("the command names the mark itself, which only the fence writes"),
        "UNSUPPORTED_VERSION" => {
            Error::Version { have: word(words, "have").and_then(|have| have.parse().ok()).unwrap_or(0), want: VERSION }
        }
        _ if no_library(error) => Refusal::Lost(Lost::Missing).into(),
        _ => return None,
    })
}

fn word<'a>(words: &'a str, name: &str) -> Option<&'a str> {
    words.split_whitespace().filter_map(|word| word.split_once('=')).find(|(n, _)| *n == name).map(|(_, value)| value)
}

fn invalid(why: &str) -> Option<TokenError> {
    Some(match why {
        "absent" => TokenError::Absent,
        "shape" => TokenError::Shape,
        "checksum" => TokenError::Checksum,
        "zero" => TokenError::Zero,
        "too_large" => TokenError::TooLarge,
        "resource" => TokenError::Resource,
        "shared" => TokenError::Shared,
        "slot" => TokenError::Slot,
        _ => return None,
    })
}

fn lost(why: &str) -> Lost {
    match why {
        "missing" => Lost::Missing,
        "moved" => Lost::Moved,
        "lost" => Lost::Declared,
        _ => Lost::Unreadable,
    }
}
