//! What happens, as it happens: a feed that is made again when it breaks, and says so.

use std::time::Duration;

use leasehold_core::command::Event;
use leasehold_core::name::Prefix;
use leasehold_wire::json::EventBody;
use leasehold_wire::{read_event, v1};
use tokio::time::Instant;
use tonic::Streaming;

use crate::lease::To;
use crate::look::checked;
use crate::route::Nature;
use crate::{Client, Error};

/// The pause before a broken feed is asked for again, doubled up to the longest.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MOST: Duration = Duration::from_secs(2);

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub struct Happened {
    /// What, in the core's words.
    pub event: Event,
    told: v1::Event,
}

impl Happened {
    /// The journal position that it depends on.
    pub const fn position(&self) -> u64 {
        self.told.position
    }

    /// The resource; empty where there is none.
    pub fn resource(&self) -> &str {
        &self.told.resource
    }

    /// The holder; empty where there is none.
    pub fn holder(&self) -> &str {
        &self.told.holder
    }

    /// The event as the HTTP interface tells it.
    pub fn body(&self) -> EventBody {
        self.told.clone().into()
    }
}

/// What a feed brings.
#[derive(Clone, Debug, PartialEq)]
pub enum Watched {
    /// Something happened.
    Event(Box<Happened>),
    /// The feed broke and was made again: what happened in between is not told. Look at what is there.
    Again,
}

/// A feed of events.
#[derive(Debug)]
pub struct Watch {
    client: Client,
    prefix: String,
    feed: Streaming<v1::Event>,
}

impl Watch {
    /// The next event. An error is final: no server could be asked for as long as the client is patient.
    pub async fn next(&mut self) -> Result<Watched, Error> {
        loop {
            match self.feed.message().await {
                Ok(Some(told)) => match read_event(&told) {
                    Ok(event) => return Ok(Watched::Event(Box::new(Happened { event, told }))),
                    // An event of a later version says nothing to this one.
                    Err(_) => continue,
                },
                Ok(None) | Err(_) => {
                    self.rejoin().await?;
                    return Ok(Watched::Again);
                }
            }
        }
    }

    async fn rejoin(&mut self) -> Result<(), Error> {
        let over = Instant::now() + self.client.shared.options.rejoin;
        let mut pause = PAUSE;
        loop {
            tokio::time::sleep(pause).await;
            match self.client.feed(&self.prefix).await {
                Ok(feed) => {
                    self.feed = feed;
                    return Ok(());
                }
                Err(error) if Instant::now() >= over || !error.is_unavailable() => return Err(error),
                Err(_) => pause = (pause * 2).min(PAUSE_MOST),
            }
        }
    }
}

impl Client {
    /// Watches everything under a prefix of whole segments, from now on; the empty prefix covers all.
    pub async fn watch(&self, prefix: &str) -> Result<Watch, Error> {
        checked(Prefix::parse(prefix))?;
        let feed = self.feed(prefix).await?;
        Ok(Watch { client: self.clone(), prefix: prefix.into(), feed })
    }

    async fn feed(&self, prefix: &str) -> Result<Streaming<v1::Event>, Error> {
        let ask = v1::WatchRequest { prefix: prefix.into() };
        let send = |mut to: To, ask| async move { to.watch(ask).await };
        self.call(Nature::Look, Duration::ZERO, ask, send).await
    }
}
