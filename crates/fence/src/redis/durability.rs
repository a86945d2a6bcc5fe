//! Whether this server keeps what it acknowledged: read from its settings, told, and refused where a fence asks for it.

use std::collections::HashMap;

use redis::aio::ConnectionLike;

use crate::Error;

/// What becomes of a mark that the server acknowledged, over a crash of the server or of its machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Durability {
    /// It is on the server's disk before the answer.
    Durable,
    /// It may be lost, because of this setting.
    MayBeLost {
        /// The setting.
        setting: &'static str,
        /// What it says.
        have: String,
        /// What it must say.
        want: &'static str,
    },
}

impl Durability {
    /// Nothing less than durable will do.
    pub(super) fn required(self) -> Result<(), Error> {
        match self {
            Self::Durable => Ok(()),
            Self::MayBeLost { setting, have, want } => Err(Error::NotDurable { setting, have, want }),
        }
    }
}

impl std::fmt::Display for Durability {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Durable => f.write_str("mark: durable"),
            Self::MayBeLost { setting, have, want } => write!(f, "mark: may be lost ({setting} is {have}, not {want})"),
        }
    }
}

/// Reads it from the server's settings as they stand now. A server that does not tell them is not called durable.
pub async fn durability(db: &mut impl ConnectionLike) -> Result<Durability, Error> {
    let wanted: [(&'static str, &'static str); 2] = [("appendonly", "yes"), ("appendfsync", "always")];
    for (setting, want) in wanted {
        if let Some(have) = told(db, setting).await?.filter(|have| have != want) {
            return Ok(Durability::MayBeLost { setting, have, want });
        }
    }
    // A server that is full may throw keys away, and the mark is a key.
    let full = told(db, "maxmemory").await?.is_some_and(|bytes| bytes != "0");
    let policy = told(db, "maxmemory-policy").await?.filter(|policy| full && policy.starts_with("allkeys-"));
    Ok(match policy {
        Some(have) => Durability::MayBeLost { setting: "maxmemory-policy", have, want: "noeviction or volatile-*" },
        None => Durability::Durable,
    })
}

/// A setting; `unknown` where the server forbids to ask, and none where it has no such setting.
async fn told(db: &mut impl ConnectionLike, setting: &str) -> Result<Option<String>, Error> {
    let asked = redis::cmd("CONFIG").arg("GET").arg(setting).query_async::<HashMap<String, String>>(db).await;
    match asked {
        Ok(mut told) => Ok(Some(told.remove(setting).unwrap_or_else(|| "unknown".to_owned()))),
        Err(error) if error.code().is_some() => Ok(Some("unknown".to_owned())),
        Err(error) => Err(error.into()),
    }
}
