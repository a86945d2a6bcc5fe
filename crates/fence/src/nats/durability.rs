//! Whether the server syncs records before it acknowledges them. Only the system account can query this setting.

use async_nats::Client;

use crate::Error;

/// Whether an acknowledged record survives a power failure. It always survives a crash of the server process.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// The record is on disk before the reply: `sync_interval: always`.
    Durable,
    /// The record may be lost: the server syncs later, after `sync_interval`.
    MayBeLost {
        /// As the server reports it. Servers before 2.10 report nothing, and sync every two minutes.
        sync_interval: String,
    },
}

impl Durability {
    /// Returns [`Error::NotDurable`] unless records are durable.
    pub fn require_durable(self) -> Result<(), Error> {
        match self {
            Self::Durable => Ok(()),
            Self::MayBeLost { sync_interval } => {
                Err(Error::NotDurable { setting: "jetstream.sync_interval", actual: sync_interval, required: "always" })
            }
        }
    }
}

impl std::fmt::Display for Durability {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Durable => f.write_str("mark: durable"),
            Self::MayBeLost { sync_interval } => {
                write!(f, "mark: may be lost (sync_interval is {sync_interval}, not always)")
            }
        }
    }
}

/// Queries the connected server. The connection must use the system account.
pub async fn durability(system: &Client) -> Result<Durability, Error> {
    let server = system.server_info().server_id;
    let reply =
        system.request(format!("$SYS.REQ.SERVER.{server}.VARZ"), "".into()).await.map_err(super::storage_error)?;
    let varz: serde_json::Value = serde_json::from_slice(&reply.payload).map_err(super::storage_error)?;
    let config = &varz["data"]["jetstream"]["config"];
    if config["sync_always"].as_bool() == Some(true) {
        return Ok(Durability::Durable);
    }
    let sync_interval = match config["sync_interval"].as_u64() {
        Some(nanos) => format!("{:?}", std::time::Duration::from_nanos(nanos)),
        None => "not reported".to_owned(),
    };
    Ok(Durability::MayBeLost { sync_interval })
}
