//! What the server answered, in the words of all fences: its own SQLSTATE says which no, the detail carries the numbers.

use std::time::Duration;

use leasehold_core::token::{Number, Token, TokenError};
use tokio_postgres::error::DbError;

use super::VERSION;
use crate::place::Passed;
use crate::{Error, Lost, Refusal};

/// What is told of a token that the server has just let in.
pub(super) fn passed(token: &str, left: Option<&str>) -> Result<Passed, Error> {
    let number = Token::parse(token).map_err(Refusal::Token)?.number;
    Ok(Passed { number, left: left.and_then(|of| of.parse().ok()) })
}

/// An error of the server's, where it is an answer.
pub(super) fn error(error: tokio_postgres::Error, waited: Duration) -> Error {
    match error.as_db_error().and_then(|told| answer(told, waited)) {
        Some(answer) => answer,
        None => Error::Storage(Box::new(error)),
    }
}

impl From<tokio_postgres::Error> for Error {
    fn from(told: tokio_postgres::Error) -> Self {
        error(told, Duration::ZERO)
    }
}

fn answer(told: &DbError, waited: Duration) -> Option<Error> {
    let words = told.detail().unwrap_or_default();
    let word = |name: &str| words.split_whitespace().filter_map(|word| word.split_once('=')).find(|(n, _)| *n == name);
    let text = |name: &str| word(name).map(|(_, value)| value);
    let number = |name: &str| text(name).and_then(|value| value.parse().ok()).and_then(Number::new);
    let version = || text("have").and_then(|have| have.parse().ok()).unwrap_or(0);
    Some(match told.code().code() {
        "LH001" => Refusal::Stale { presented: number("presented")?, mark: number("mark")? }.into(),
        "LH002" => Refusal::Token(invalid(text("why")?)?).into(),
        "LH003" => Refusal::Implausible { presented: number("presented")? }.into(),
        "LH004" if text("why") == Some("foreign") => Refusal::ForeignMark.into(),
        "LH004" => Refusal::Token(TokenError::WrongCluster).into(),
        "LH005" => Refusal::Lost(lost(text("why")?)).into(),
        "LH006" => {
            let by = text("by").unwrap_or_default().split(',').filter_map(|pid| pid.parse().ok()).collect();
            Error::Blocked { waited, by }
        }
        "LH007" => {
            Error::NotDurable { setting: "fsync", have: text("have").unwrap_or_default().to_owned(), want: "on" }
        }
        "LH008" if text("why") == Some("version") => Refusal::Token(TokenError::Version { have: version() }).into(),
        "LH008" => Error::Version { have: version(), want: VERSION },
        "LH009" => {
            Error::Conflict("it would lower, move or delete a mark, or take a guard away; the server's log says which")
        }
        "LH010" => Refusal::NotAdopted {
            presented: number("presented")?,
            incarnation: text("incarnation").and_then(|of| of.parse().ok())?,
        }
        .into(),
        // A snapshot of before a claim, a lock that was not had in the caller's own time: nothing happened.
        "40001" | "40P01" | "55P03" => Error::Blocked { waited, by: Vec::new() },
        "2D000" => Error::Misplaced("a transaction is open on this connection; a claim needs one of its own"),
        // The schema or its functions are not there.
        "3F000" | "42883" | "42P01" if told.message().contains("leasehold") => Refusal::Lost(Lost::Missing).into(),
        _ => return None,
    })
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
