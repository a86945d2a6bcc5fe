//! Targets by their address: what an operator reads and does at the fence of each, one file for each scheme.

mod etcd;
mod file;
mod http;
mod nats;
mod place;
mod postgres;
mod redis;
mod sqlite;

use std::path::PathBuf;

use leasehold::{Code, Error};
use leasehold_core::token::{Incarnation, Number};
use leasehold_fence::{Kept, Lost, Refusal};

use crate::told::{Failure, coded};
pub use place::{Place, name_of};

/// The schemes that this binary knows, as help tells them.
pub const SCHEMES: &str = "postgres://USER@HOST/DATABASE, redis://HOST[:PORT][/DB], \
                           etcd://HOST:PORT[,HOST:PORT][/PREFIX], \
                           nats://HOST[:PORT]/STREAM[/SUBJECT], sqlite:PATH, file:PATH, and to be probed \
                           http://HOST[:PORT]";

/// Where a fence keeps its marks.
#[derive(Clone, Debug)]
pub enum Target {
    Etcd(String),
    File(PathBuf),
    /// Can only be probed.
    Http(String),
    Nats(String),
    Postgres(String),
    Redis(String),
    Sqlite(PathBuf),
}

/// What came of showing a stale token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probed {
    /// It was refused, as it must be.
    Refused { presented: Number, mark: Number },
    /// The mark is lost: everything is refused until somebody re-arms the fence.
    Lost,
    /// It was admitted: a zombie would get through.
    Admitted,
    /// There is no fence, or none for this resource.
    Missing,
    /// No token was ever shown there, so there is no lower one to show.
    Fresh,
}

impl Target {
    /// Reads an address.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let wrong = |why: String| Err(Error::new(Code::InvalidArgument, why).then("Use one of the schemes it names."));
        let Some((scheme, rest)) = text.split_once(':') else {
            return wrong(format!("not the address of a target; known are {SCHEMES}"));
        };
        match scheme {
            "postgres" | "postgresql" => Ok(Self::Postgres(text.to_owned())),
            "redis" => Ok(Self::Redis(text.to_owned())),
            "etcd" => Ok(Self::Etcd(text.to_owned())),
            "nats" => Ok(Self::Nats(text.to_owned())),
            "http" => Ok(Self::Http(text.to_owned())),
            "s3" | "dynamodb" => Err(Error::new(Code::InvalidArgument, far(scheme)).then(FAR)),
            "sqlite" | "file" if rest.trim_start_matches('/').is_empty() => wrong(format!("{scheme}: names no file")),
            "sqlite" => Ok(Self::Sqlite(rest.strip_prefix("//").unwrap_or(rest).into())),
            "file" => Ok(Self::File(rest.strip_prefix("//").unwrap_or(rest).into())),
            other => {
                let shown: String = other.chars().filter(|c| c.is_ascii_alphanumeric()).take(16).collect();
                wrong(format!("{shown}: is not built into this binary; known are {SCHEMES}"))
            }
        }
    }

    /// The address as it may be shown: without a password.
    pub fn shown(&self) -> String {
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

    /// Every mark that it keeps.
    pub async fn marks(&self) -> Result<Vec<Kept>, Failure> {
        match self {
            Self::Postgres(url) => postgres::marks(url).await,
            Self::Redis(url) => redis::marks(url).await,
            Self::Etcd(url) => etcd::marks(url).await,
            Self::Nats(url) => nats::marks(url).await,
            Self::Http(_) => Err(http::kept_in_a_file()),
            Self::Sqlite(path) => sqlite::marks(path),
            Self::File(path) => file::marks(path),
        }
    }

    /// Installs the fence if it is not there, and arms it for a place where nothing was written yet.
    pub async fn arm(&self, place: &Place) -> Result<(), Failure> {
        match self {
            Self::Postgres(url) => postgres::arm(url, place).await,
            Self::Redis(url) => redis::arm(url, place).await,
            Self::Etcd(url) => etcd::arm(url, place).await,
            Self::Nats(url) => nats::arm(url, place).await,
            Self::Http(_) => Err(http::kept_in_a_file()),
            Self::Sqlite(path) => sqlite::arm(path, place),
            Self::File(path) => file::arm(path, place),
        }
    }

    /// Sets a mark to a floor.
    pub async fn rearm(&self, place: &Place, floor: Number) -> Result<(), Failure> {
        match self {
            Self::Postgres(url) => postgres::rearm(url, place, floor).await,
            Self::Redis(url) => redis::rearm(url, place, floor).await,
            Self::Etcd(url) => etcd::rearm(url, place, floor).await,
            Self::Nats(url) => nats::rearm(url, place, floor).await,
            Self::Http(_) => Err(http::kept_in_a_file()),
            Self::Sqlite(path) => sqlite::rearm(path, place, floor),
            Self::File(path) => file::rearm(path, place, floor),
        }
    }

    /// Says that a mark is lost.
    pub async fn declare_lost(&self, place: &Place) -> Result<(), Failure> {
        match self {
            Self::Postgres(url) => postgres::declare_lost(url, place).await,
            Self::Redis(url) => redis::declare_lost(url, place).await,
            Self::Etcd(url) => etcd::declare_lost(url, place).await,
            Self::Nats(url) => nats::declare_lost(url, place).await,
            Self::Http(_) => Err(http::kept_in_a_file()),
            Self::Sqlite(path) => sqlite::declare_lost(path, place),
            Self::File(path) => file::declare_lost(path, place),
        }
    }

    /// Follows an incarnation from now on.
    pub async fn adopt(&self, place: &Place, incarnation: Incarnation) -> Result<(), Failure> {
        match self {
            Self::Postgres(url) => postgres::adopt(url, place, incarnation).await,
            Self::Redis(url) => redis::adopt(url, place, incarnation).await,
            Self::Etcd(url) => etcd::adopt(url, place, incarnation).await,
            Self::Nats(url) => nats::adopt(url, place, incarnation).await,
            Self::Http(_) => Err(http::kept_in_a_file()),
            Self::Sqlite(path) => sqlite::adopt(path, place, incarnation),
            Self::File(path) => file::adopt(path, place, incarnation),
        }
    }

    /// Shows a token below the mark to the rules that stand in the target, in a transaction that is given up: nothing
    /// changes, whatever comes of it.
    pub async fn probe(&self, place: &Place) -> Result<Probed, Failure> {
        if let Self::Http(url) = self {
            return http::probe(url, place).await;
        }
        let marks = match self.marks().await {
            Err(failure) if is_missing(&failure) => return Ok(Probed::Missing),
            marks => marks?,
        };
        let stale = match marks.iter().find(|kept| place.is_at(kept)).map(|kept| (kept.mark, kept.incarnation)) {
            None => return Ok(Probed::Missing),
            Some((leasehold_fence::Mark::Lost, _)) => return Ok(Probed::Lost),
            Some((leasehold_fence::Mark::Fresh, _)) => return Ok(Probed::Fresh),
            Some((leasehold_fence::Mark::Armed(mark), incarnation)) => {
                let Some(below) = Number::new(mark.get() - 1) else { return Ok(Probed::Fresh) };
                place.token(below, incarnation.unwrap_or(Incarnation(0)))
            }
        };
        match self {
            Self::Postgres(url) => postgres::probe(url, place, &stale).await,
            Self::Redis(url) => redis::probe(url, place, &stale).await,
            Self::Etcd(url) => etcd::probe(url, place, &stale).await,
            Self::Nats(url) => nats::probe(url, place, &stale).await,
            Self::Http(url) => http::probe(url, place).await,
            Self::Sqlite(path) => sqlite::probe(path, place, &stale),
            Self::File(path) => file::probe(path, place, &stale),
        }
    }
}

/// What to do about a target that only a program with its own client reaches.
const FAR: &str = "Read its marks with that function, then restore with --token-floor NUMBER.";

fn far(scheme: &str) -> String {
    let module = if scheme == "s3" { "objects" } else { "dynamodb" };
    format!(
        "{scheme}: this binary has no client for it; call leasehold_fence::{module}::survey in a program that has one; known \
         are {SCHEMES}"
    )
}

/// What a fence answered to a stale token.
fn probed(answer: Result<Number, leasehold_fence::Error>) -> Result<Probed, Failure> {
    match answer {
        Ok(_) => Ok(Probed::Admitted),
        Err(leasehold_fence::Error::Refused(Refusal::Stale { presented, mark })) => {
            Ok(Probed::Refused { presented, mark })
        }
        Err(leasehold_fence::Error::Refused(Refusal::Lost(Lost::Missing))) => Ok(Probed::Missing),
        Err(leasehold_fence::Error::Refused(Refusal::Lost(_))) => Ok(Probed::Lost),
        Err(error) => Err(refused(&error)),
    }
}

/// A fence's error with its code.
fn refused(error: &leasehold_fence::Error) -> Failure {
    if let leasehold_fence::Error::Refused(Refusal::Lost(Lost::Missing)) = error {
        return Failure::Coded(Error::new(Code::NotFound, error.to_string()));
    }
    coded(error.code(), error)
}

fn is_missing(failure: &Failure) -> bool {
    matches!(failure, Failure::Coded(error) if error.code() == Some(Code::NotFound))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        let table = [
            ("postgres://app:hunter2@db:5432/ledger?password=x", "postgres://app@db:5432/ledger"),
            ("postgres://db/ledger", "postgres://db/ledger"),
            ("redis://:hunter2@cache:6379/3", "redis://@cache:6379/3"),
            ("redis://cache", "redis://cache"),
            ("etcd://a:2379,b:2379/app/", "etcd://a:2379,b:2379/app/"),
            ("sqlite:/var/ledger.db", "sqlite:/var/ledger.db"),
            ("sqlite:///var/ledger.db", "sqlite:/var/ledger.db"),
        ];
        for (text, shown) in table {
            assert_eq!(Target::parse(text).unwrap().shown(), shown);
        }
    }

    #[test]
    fn an_address_that_nobody_knows_names_those_that_are_known() {
        for text in ["", "ledger.db", "mysql://db/x", "sqlite:", "sqlite://"] {
            let error = Target::parse(text).unwrap_err();
            assert_eq!(error.code(), Some(Code::InvalidArgument), "{text}");
        }
        let told = Target::parse("mysql://db/x").unwrap_err().to_string();
        for known in ["postgres://", "redis://", "etcd://", "nats://", "sqlite:", "file:"] {
            assert!(told.contains(known), "{told}");
        }
    }

    #[test]
    fn a_target_that_this_binary_cannot_reach_names_the_function_that_can() {
        for (text, function) in [("s3://bucket/x", "objects::survey"), ("dynamodb://table", "dynamodb::survey")] {
            let error = Target::parse(text).unwrap_err();
            assert_eq!(error.code(), Some(Code::InvalidArgument), "{text}");
            assert!(error.to_string().contains(function), "{error}");
        }
    }
}
