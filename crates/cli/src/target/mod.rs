//! Targets by their address, and the operator's actions on their fences. Each scheme has its own file.

mod etcd;
mod fence_id;
mod file;
mod http;
mod nats;
mod postgres;
mod redis;
mod sqlite;

use std::path::PathBuf;

use leasehold::{Code, Error};
use leasehold_core::token::{Incarnation, Number};
use leasehold_fence::{FenceId, FenceRefusal, MarkInfo, MarkLoss};

use crate::output::{CommandError, error_with_code};
use fence_id::token;
pub use fence_id::{display_name, fence_id, is_mark_of};

/// The supported schemes, for error messages.
pub const SCHEMES: &str = "postgres://USER@HOST/DATABASE, redis://HOST[:PORT][/DB], \
                           etcd://HOST:PORT[,HOST:PORT][/PREFIX], \
                           nats://HOST[:PORT]/STREAM[/SUBJECT], sqlite:PATH, file:PATH, and for probes \
                           http://HOST[:PORT]";

/// A target that stores the marks of its fences.
#[derive(Clone, Debug)]
pub enum TargetAddress {
    Etcd(String),
    File(PathBuf),
    /// Can only be probed.
    Http(String),
    Nats(String),
    Postgres(String),
    Redis(String),
    Sqlite(PathBuf),
}

/// Result of presenting a stale token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeResult {
    /// The fence rejected it, as expected.
    Refused { presented: Number, mark: Number },
    /// The mark is lost: the fence rejects everything until it is re-armed.
    Lost,
    /// The fence admitted it: a zombie could write.
    Admitted,
    /// The target has no fence for this resource.
    Missing,
    /// The fence has not seen any token, so that no lower one exists.
    Fresh,
}

impl TargetAddress {
    /// Parses an address.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let invalid =
            |message: String| Err(Error::new(Code::InvalidArgument, message).with_next_step("Use a supported scheme."));
        let Some((scheme, rest)) = text.split_once(':') else {
            return invalid(format!("not the address of a target; supported are {SCHEMES}"));
        };
        match scheme {
            "postgres" | "postgresql" => Ok(Self::Postgres(text.to_owned())),
            "redis" => Ok(Self::Redis(text.to_owned())),
            "etcd" => Ok(Self::Etcd(text.to_owned())),
            "nats" => Ok(Self::Nats(text.to_owned())),
            "http" => Ok(Self::Http(text.to_owned())),
            "s3" | "dynamodb" => {
                Err(Error::new(Code::InvalidArgument, no_client(scheme)).with_next_step(NO_CLIENT_ADVICE))
            }
            "sqlite" | "file" if rest.trim_start_matches('/').is_empty() => invalid(format!("{scheme}: has no path")),
            "sqlite" => Ok(Self::Sqlite(rest.strip_prefix("//").unwrap_or(rest).into())),
            "file" => Ok(Self::File(rest.strip_prefix("//").unwrap_or(rest).into())),
            other => {
                let scheme: String = other.chars().filter(|c| c.is_ascii_alphanumeric()).take(16).collect();
                invalid(format!("{scheme}: is not supported; supported are {SCHEMES}"))
            }
        }
    }

    /// The address without its password.
    pub fn redacted(&self) -> String {
        match self {
            Self::File(path) => format!("file:{}", path.display()),
            Self::Sqlite(path) => format!("sqlite:{}", path.display()),
            Self::Etcd(url) | Self::Http(url) | Self::Nats(url) | Self::Postgres(url) | Self::Redis(url) => {
                let url = url.split(['?', '#']).next().unwrap_or_default();
                match (url.split_once("://"), url.rfind('@')) {
                    (Some((scheme, rest)), Some(at)) => {
                        let user = rest.split(['@', ':']).next().unwrap_or_default();
                        format!("{scheme}://{user}@{}", &url[at + 1..])
                    }
                    _ => url.to_owned(),
                }
            }
        }
    }

    /// Lists all marks.
    pub async fn marks(&self) -> Result<Vec<MarkInfo>, CommandError> {
        match self {
            Self::Postgres(url) => postgres::marks(url).await,
            Self::Redis(url) => redis::marks(url).await,
            Self::Etcd(url) => etcd::marks(url).await,
            Self::Nats(url) => nats::marks(url).await,
            Self::Http(_) => Err(http::marks_are_in_a_file()),
            Self::Sqlite(path) => sqlite::marks(path),
            Self::File(path) => file::marks(path),
        }
    }

    /// Installs the fence if necessary, and arms it for a resource that was not written to under a lease before.
    pub async fn arm(&self, fence_id: &FenceId) -> Result<(), CommandError> {
        match self {
            Self::Postgres(url) => postgres::arm(url, fence_id).await,
            Self::Redis(url) => redis::arm(url, fence_id).await,
            Self::Etcd(url) => etcd::arm(url, fence_id).await,
            Self::Nats(url) => nats::arm(url, fence_id).await,
            Self::Http(_) => Err(http::marks_are_in_a_file()),
            Self::Sqlite(path) => sqlite::arm(path, fence_id),
            Self::File(path) => file::arm(path, fence_id),
        }
    }

    /// Sets the mark to `floor`.
    pub async fn rearm(&self, fence_id: &FenceId, floor: Number) -> Result<(), CommandError> {
        match self {
            Self::Postgres(url) => postgres::rearm(url, fence_id, floor).await,
            Self::Redis(url) => redis::rearm(url, fence_id, floor).await,
            Self::Etcd(url) => etcd::rearm(url, fence_id, floor).await,
            Self::Nats(url) => nats::rearm(url, fence_id, floor).await,
            Self::Http(_) => Err(http::marks_are_in_a_file()),
            Self::Sqlite(path) => sqlite::rearm(path, fence_id, floor),
            Self::File(path) => file::rearm(path, fence_id, floor),
        }
    }

    /// Declares the mark lost.
    pub async fn declare_lost(&self, fence_id: &FenceId) -> Result<(), CommandError> {
        match self {
            Self::Postgres(url) => postgres::declare_lost(url, fence_id).await,
            Self::Redis(url) => redis::declare_lost(url, fence_id).await,
            Self::Etcd(url) => etcd::declare_lost(url, fence_id).await,
            Self::Nats(url) => nats::declare_lost(url, fence_id).await,
            Self::Http(_) => Err(http::marks_are_in_a_file()),
            Self::Sqlite(path) => sqlite::declare_lost(path, fence_id),
            Self::File(path) => file::declare_lost(path, fence_id),
        }
    }

    /// Accepts tokens of this incarnation from now on.
    pub async fn adopt(&self, fence_id: &FenceId, incarnation: Incarnation) -> Result<(), CommandError> {
        match self {
            Self::Postgres(url) => postgres::adopt(url, fence_id, incarnation).await,
            Self::Redis(url) => redis::adopt(url, fence_id, incarnation).await,
            Self::Etcd(url) => etcd::adopt(url, fence_id, incarnation).await,
            Self::Nats(url) => nats::adopt(url, fence_id, incarnation).await,
            Self::Http(_) => Err(http::marks_are_in_a_file()),
            Self::Sqlite(path) => sqlite::adopt(path, fence_id, incarnation),
            Self::File(path) => file::adopt(path, fence_id, incarnation),
        }
    }

    /// Presents a token below the mark to the fence inside the target. Nothing changes, whether the fence admits it or not.
    pub async fn probe(&self, fence_id: &FenceId) -> Result<ProbeResult, CommandError> {
        if let Self::Http(url) = self {
            return http::probe(url, fence_id).await;
        }
        let marks = match self.marks().await {
            Err(error) if is_missing(&error) => return Ok(ProbeResult::Missing),
            marks => marks?,
        };
        let stale = match marks.iter().find(|info| is_mark_of(info, fence_id)).map(|info| (info.mark, info.incarnation))
        {
            None => return Ok(ProbeResult::Missing),
            Some((leasehold_fence::Mark::Lost, _)) => return Ok(ProbeResult::Lost),
            Some((leasehold_fence::Mark::Fresh, _)) => return Ok(ProbeResult::Fresh),
            Some((leasehold_fence::Mark::Armed(mark), incarnation)) => {
                let Some(below) = Number::new(mark.get() - 1) else { return Ok(ProbeResult::Fresh) };
                token(fence_id, below, incarnation.unwrap_or(Incarnation(0)))
            }
        };
        match self {
            Self::Postgres(url) => postgres::probe(url, fence_id, &stale).await,
            Self::Redis(url) => redis::probe(url, fence_id, &stale).await,
            Self::Etcd(url) => etcd::probe(url, fence_id, &stale).await,
            Self::Nats(url) => nats::probe(url, fence_id, &stale).await,
            Self::Http(url) => http::probe(url, fence_id).await,
            Self::Sqlite(path) => sqlite::probe(path, fence_id, &stale),
            Self::File(path) => file::probe(path, fence_id, &stale),
        }
    }
}

/// Next step for a target that this binary has no client for.
const NO_CLIENT_ADVICE: &str = "Read its marks with that function, then restore with --token-floor NUMBER.";

fn no_client(scheme: &str) -> String {
    let module = if scheme == "s3" { "objects" } else { "dynamodb" };
    format!(
        "{scheme}: this binary has no client for it; call leasehold_fence::{module}::list_marks in your program; supported \
         are {SCHEMES}"
    )
}

/// Converts a fence's reply to a stale token.
fn probe_result(answer: Result<Number, leasehold_fence::Error>) -> Result<ProbeResult, CommandError> {
    match answer {
        Ok(_) => Ok(ProbeResult::Admitted),
        Err(leasehold_fence::Error::Refused(FenceRefusal::Stale { presented, mark })) => {
            Ok(ProbeResult::Refused { presented, mark })
        }
        Err(leasehold_fence::Error::Refused(FenceRefusal::MarkLost(MarkLoss::Missing))) => Ok(ProbeResult::Missing),
        Err(leasehold_fence::Error::Refused(FenceRefusal::MarkLost(_))) => Ok(ProbeResult::Lost),
        Err(error) => Err(fence_error(&error)),
    }
}

/// Converts a fence's error, with its code.
fn fence_error(error: &leasehold_fence::Error) -> CommandError {
    if let leasehold_fence::Error::Refused(FenceRefusal::MarkLost(MarkLoss::Missing)) = error {
        return CommandError::Coded(Error::new(Code::NotFound, error.to_string()));
    }
    error_with_code(error.code(), error)
}

fn is_missing(error: &CommandError) -> bool {
    matches!(error, CommandError::Coded(error) if error.code() == Some(Code::NotFound))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redacted_address_contains_no_password() {
        let table = [
            ("postgres://app:hunter2@db:5432/ledger?password=x", "postgres://app@db:5432/ledger"),
            ("postgres://db/ledger", "postgres://db/ledger"),
            ("redis://:hunter2@cache:6379/3", "redis://@cache:6379/3"),
            ("redis://cache", "redis://cache"),
            ("etcd://a:2379,b:2379/app/", "etcd://a:2379,b:2379/app/"),
            ("sqlite:/var/ledger.db", "sqlite:/var/ledger.db"),
            ("sqlite:///var/ledger.db", "sqlite:/var/ledger.db"),
        ];
        for (text, redacted) in table {
            assert_eq!(TargetAddress::parse(text).unwrap().redacted(), redacted);
        }
    }

    #[test]
    fn the_error_for_an_unsupported_address_lists_the_supported_schemes() {
        for text in ["", "ledger.db", "mysql://db/x", "sqlite:", "sqlite://"] {
            let error = TargetAddress::parse(text).unwrap_err();
            assert_eq!(error.code(), Some(Code::InvalidArgument), "{text}");
        }
        let error = TargetAddress::parse("mysql://db/x").unwrap_err().to_string();
        for scheme in ["postgres://", "redis://", "etcd://", "nats://", "sqlite:", "file:"] {
            assert!(error.contains(scheme), "{error}");
        }
    }

    #[test]
    fn the_error_for_a_target_without_a_client_names_the_library_function() {
        for (text, function) in [("s3://bucket/x", "objects::list_marks"), ("dynamodb://table", "dynamodb::list_marks")]
        {
            let error = TargetAddress::parse(text).unwrap_err();
            assert_eq!(error.code(), Some(Code::InvalidArgument), "{text}");
            assert!(error.to_string().contains(function), "{error}");
        }
    }
}
