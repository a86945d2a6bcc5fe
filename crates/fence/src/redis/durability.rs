//! Whether the server's settings make acknowledged marks durable (F2).

use std::collections::HashMap;

use redis::aio::ConnectionLike;

use crate::Error;

/// Durability of an acknowledged mark across a crash of the server or its machine.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RedisDurability {
    /// The mark is on the server's disk before the reply.
    Durable,
    /// The mark can be lost because of a setting.
    MayBeLost {
        /// Name of the setting.
        setting: &'static str,
        /// Current value.
        have: String,
        /// Required value.
        want: &'static str,
    },
}

impl RedisDurability {
    /// Fails if the mark can be lost.
    pub(super) fn require(self) -> Result<(), Error> {
        match self {
            Self::Durable => Ok(()),
            Self::MayBeLost { setting, have, want } => Err(Error::NotDurable { setting, actual: have, required: want }),
        }
    }
}

impl std::fmt::Display for RedisDurability {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Durable => f.write_str("mark: durable"),
            Self::MayBeLost { setting, have, want } => write!(f, "mark: may be lost ({setting} is {have}, not {want})"),
        }
    }
}

/// Reads the durability from the server's current settings. A server that does not reveal them is not considered durable.
pub async fn durability(db: &mut impl ConnectionLike) -> Result<RedisDurability, Error> {
    let required: [(&'static str, &'static str); 2] = [("appendonly", "yes"), ("appendfsync", "always")];
    for (setting, want) in required {
        let have = config_get(db, setting).await?;
        if have != want {
            return Ok(RedisDurability::MayBeLost { setting, have, want });
        }
    }
    // A server at its memory limit may evict keys, and the mark is a key.
    let has_limit = config_get(db, "maxmemory").await? != "0";
    let policy = config_get(db, "maxmemory-policy").await?;
    Ok(if has_limit && policy.starts_with("allkeys-") {
        RedisDurability::MayBeLost { setting: "maxmemory-policy", have: policy, want: "noeviction or volatile-*" }
    } else {
        RedisDurability::Durable
    })
}

/// Reads one setting; `unknown` if the server denies access or does not have it.
async fn config_get(db: &mut impl ConnectionLike, setting: &str) -> Result<String, Error> {
    let reply = redis::cmd("CONFIG").arg("GET").arg(setting).query_async::<HashMap<String, String>>(db).await;
    match reply {
        Ok(mut settings) => Ok(settings.remove(setting).unwrap_or_else(|| "unknown".to_owned())),
        Err(error) if error.code().is_some() => Ok("unknown".to_owned()),
        Err(error) => Err(error.into()),
    }
}
