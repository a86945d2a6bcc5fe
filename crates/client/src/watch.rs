//! Watches: a stream of events under a prefix that reconnects by itself.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::Stream;
use leasehold_core::command::SessionEvent;
use leasehold_core::name::Prefix;
use leasehold_wire::json::EventBody;
use leasehold_wire::{decode_event, v1};
use tokio::time::Instant;
use tonic::Streaming;

use crate::failover::RetrySafety;
use crate::page_fetch::PageFetch;
use crate::server_pool::GrpcClient;
use crate::{Client, Error};

/// First and longest pause before a broken watch reconnects.
const WATCH_RECONNECT_PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// An event of a watch.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LeaseEvent {
    /// What happened.
    pub event: SessionEvent,
    message: v1::Event,
}

impl LeaseEvent {
    /// The journal position that the event depends on.
    pub const fn position(&self) -> u64 {
        self.message.position
    }

    /// The resource; empty if the event has none.
    pub fn resource(&self) -> &str {
        &self.message.resource
    }

    /// The holder; empty if the event has none.
    pub fn holder(&self) -> &str {
        &self.message.holder
    }

    /// The event as JSON, with the field names of the HTTP API.
    pub fn body(&self) -> EventBody {
        self.message.clone().into()
    }
}

/// An item of a watch.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum WatchItem {
    /// Something happened.
    Event(Box<LeaseEvent>),
    /// The watch broke and reconnected; events in between are missing. Read the current state.
    Reconnected,
}

/// A stream of events. It reconnects by itself and reports that as [`WatchItem::Reconnected`].
///
/// It never ends. An error means that no server was reachable within the rejoin timeout; polling again tries again.
#[derive(Debug)]
#[must_use = "streams do nothing unless polled"]
pub struct Watch {
    client: Client,
    prefix: String,
    events: Option<Streaming<v1::Event>>,
    reconnect: PageFetch<Streaming<v1::Event>>,
}

impl Stream for Watch {
    type Item = Result<WatchItem, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            let Some(events) = &mut this.events else {
                let (client, prefix) = (&this.client, &this.prefix);
                let reconnected = this.reconnect.poll(context, || reconnect(client.clone(), prefix.clone()));
                return Poll::Ready(Some(ready!(reconnected).map(|events| {
                    this.events = Some(events);
                    WatchItem::Reconnected
                })));
            };
            match ready!(Pin::new(events).poll_next(context)) {
                Some(Ok(message)) => match decode_event(&message) {
                    Ok(event) => {
                        return Poll::Ready(Some(Ok(WatchItem::Event(Box::new(LeaseEvent { event, message })))));
                    }
                    // Events of a later version are skipped.
                    Err(_) => continue,
                },
                None | Some(Err(_)) => this.events = None,
            }
        }
    }
}

async fn reconnect(client: Client, prefix: String) -> Result<Streaming<v1::Event>, Error> {
    let give_up = Instant::now() + client.rejoin_timeout();
    let mut pause = WATCH_RECONNECT_PAUSE.0;
    loop {
        tokio::time::sleep(pause).await;
        match client.events(&prefix).await {
            Ok(events) => return Ok(events),
            Err(error) if Instant::now() >= give_up || !error.is_retryable() => return Err(error),
            Err(_) => pause = (pause * 2).min(WATCH_RECONNECT_PAUSE.1),
        }
    }
}

impl Client {
    /// Watches everything under a prefix of whole segments from now on; the empty prefix covers everything.
    pub async fn watch(&self, prefix: &str) -> Result<Watch, Error> {
        Prefix::parse(prefix)?;
        let events = Some(self.events(prefix).await?);
        Ok(Watch { client: self.clone(), prefix: prefix.into(), events, reconnect: PageFetch::new() })
    }

    async fn events(&self, prefix: &str) -> Result<Streaming<v1::Event>, Error> {
        let request = v1::WatchRequest { prefix: prefix.into() };
        let send = |mut client: GrpcClient, request| async move { client.watch(request).await };
        self.servers.call(RetrySafety::ReadOnly, Duration::ZERO, request, send).await
    }
}
