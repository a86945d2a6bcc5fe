//! Whether the server syncs what it acknowledged: read from the server itself, which tells it to its system account only.

use async_nats::Client;

use crate::Error;

/// What becomes of a record that the server acknowledged, over a power cut. A server that is merely killed keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Durability {
    /// It is on the server's disk before the answer: `sync_interval: always`.
    Durable,
    /// It may be lost: the server syncs later, after this time at most.
    MayBeLost {
        /// As the server tells it; servers before 2.10 tell nothing, and sync every two minutes.
        sync_interval: String,
    },
}

impl Durability {
    /// Nothing less than durable will do.
    pub fn required(self) -> Result<(), Error> {
        match self {
            Self::Durable => Ok(()),
            Self::MayBeLost { sync_interval } => {
                Err(Error::NotDurable { setting: "jetstream.sync_interval", have: sync_interval, want: "always" })
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

/// Asks the server that this connection reached. The connection is one of the system account.
pub async fn durability(system: &Client) -> Result<Durability, Error> {
    let server = system.server_info().server_id;
    let asked = system.request(format!("$SYS.REQ.SERVER.{server}.VARZ"), "".into()).await.map_err(super::failed)?;
    let told: serde_json::Value = serde_json::from_slice(&asked.payload).map_err(super::failed)?;
    let config = &told["data"]["jetstream"]["config"];
    if config["sync_always"].as_bool() == Some(true) {
        return Ok(Durability::Durable);
    }
    let sync_interval = match config["sync_interval"].as_u64() {
        Some(nanos) => format!("{:?}", std::time::Duration::from_nanos(nanos)),
        None => "not told".to_owned(),
    };
    Ok(Durability::MayBeLost { sync_interval })
}
