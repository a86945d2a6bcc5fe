//! Conversion of server errors into fence errors: the SQLSTATE selects the error, the detail holds its values.

use std::fmt;
use std::time::Duration;

use leasehold_core::token::{Token, TokenError};
use tokio_postgres::error::DbError;

use super::VERSION;
use super::stamp::without_stamp;
use crate::admission::Admission;
use crate::refusal_text::{ErrorDetail, mark_loss, seal_refusal, token_error};
use crate::{Error, FenceRefusal, MarkLoss};

/// Admission of a token that the server has admitted.
pub(super) fn admission(token: &str, previous_incarnation: Option<&str>) -> Result<Admission, Error> {
    let number = Token::parse(without_stamp(token)).map_err(FenceRefusal::Token)?.number;
    Ok(Admission { number, previous_incarnation: previous_incarnation.and_then(|text| text.parse().ok()) })
}

/// Converts an error of the server. `waited` is reported if the operation was blocked.
pub(super) fn decode(error: tokio_postgres::Error, waited: Duration) -> Error {
    match error.as_db_error().and_then(|error| decode_db_error(error, waited)) {
        Some(decoded) => decoded,
        None => Error::Storage(Box::new(PostgresError(error))),
    }
}

/// An error of the server or its connection, whose text contains the server's message. That of the driver does not.
#[derive(Debug)]
struct PostgresError(tokio_postgres::Error);

impl fmt::Display for PostgresError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_db_error() {
            Some(error) => write!(f, "{} (SQLSTATE {})", error.message(), error.code().code()),
            None => self.0.fmt(f),
        }
    }
}

impl std::error::Error for PostgresError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

/// An error with the server's own message and a next step.
fn rejected(code: &'static str, error: &DbError, next_step: &str) -> Error {
    let message = error.message();
    // Messages of the fence start with the code.
    let message = message.strip_prefix(code).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(message);
    Error::Rejected { code, message: format!("{message}; {next_step}") }
}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Self {
        decode(error, Duration::ZERO)
    }
}

fn decode_db_error(error: &DbError, waited: Duration) -> Option<Error> {
    let detail = ErrorDetail(error.detail().unwrap_or_default());
    let text = |key: &str| detail.text(key);
    let number = |key: &str| detail.number(key);
    Some(match error.code().code() {
        "LH001" => FenceRefusal::Stale { presented: number("presented")?, mark: number("mark")? }.into(),
        "LH002" if seal_refusal(text("reason")?, None).is_some() => seal_refusal(text("reason")?, None)?.into(),
        "LH002" => FenceRefusal::Token(token_error(text("reason")?)?).into(),
        "LH003" => FenceRefusal::Implausible { presented: number("presented")? }.into(),
        "LH004" if text("reason") == Some("foreign") => FenceRefusal::ForeignMark.into(),
        "LH004" => FenceRefusal::Token(TokenError::WrongCluster).into(),
        "LH005" => FenceRefusal::MarkLost(mark_loss(text("reason")?)).into(),
        "LH006" => {
            let by = text("blocking_pids").unwrap_or_default().split(',').filter_map(|pid| pid.parse().ok()).collect();
            Error::Blocked { waited, blockers: by }
        }
        "LH007" => {
            Error::NotDurable { setting: "fsync", actual: text("have").unwrap_or_default().to_owned(), required: "on" }
        }
        "LH008" if text("reason") == Some("version") => {
            FenceRefusal::Token(TokenError::Version { have: detail.version() }).into()
        }
        "LH008" => Error::Version { found: detail.version(), supported: VERSION },
        "LH009" if text("reason") == Some("owner") => Error::Conflict(
            "objects in schema leasehold belong to another role; install as their owner, or inspect and drop the schema",
        ),
        "LH009" => rejected("CONFLICT", error, error.hint().unwrap_or("see the server's log")),
        "LH010" => FenceRefusal::NotAdopted {
            presented: number("presented")?,
            incarnation: text("incarnation").and_then(|text| text.parse().ok())?,
        }
        .into(),
        // The snapshot is older than a claim, or the caller's own lock timeout expired. Nothing was changed.
        "40001" | "40P01" | "55P03" => Error::Blocked { waited, blockers: Vec::new() },
        "2D000" => {
            Error::InvalidArgument("a transaction is open on this connection; call this outside of a transaction")
        }
        // The schema or its functions do not exist.
        "3F000" | "42883" | "42P01"
            if ["\"leasehold\"", "leasehold."].iter().any(|at| error.message().contains(at)) =>
        {
            FenceRefusal::MarkLost(MarkLoss::Missing).into()
        }
        "3F000" | "42P01" => rejected("NOT_FOUND", error, "check the name of the table and its schema"),
        "42602" | "42601" => rejected("INVALID_ARGUMENT", error, "correct the name or the statement"),
        "42501" => rejected(
            "PERMISSION_DENIED",
            error,
            "connect as a role that has this right; for operator calls, as the owner of schema leasehold",
        ),
        _ => return None,
    })
}
