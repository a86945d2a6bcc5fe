//! Streams of a client that is about to lose its access, and those of another one that is not.

use std::time::Duration;

use futures::StreamExt;
use leasehold::{Client, ClientBuilder, Guard, GuardState, Watch};

/// Longer than a test takes.
pub const TTL: Duration = Duration::from_secs(300);

/// A session with a lease and a watch of one client, and a session with a lease of another.
pub struct OpenStreams {
    pub client: Client,
    pub guard: Guard,
    watch: Watch,
    observer: Client,
    other: Guard,
}

impl OpenStreams {
    /// Opens the streams: `builder` for the client that loses its access, twice, and `other` for the other one.
    pub async fn open(session: ClientBuilder, watcher: ClientBuilder, other: ClientBuilder) -> Self {
        let client = session.holder("w1").session_ttl(TTL).build();
        let guard = client.lock("jobs/a").ttl(TTL).acquire().await.expect("the resource is free");
        let watcher = watcher.rejoin_timeout(Duration::ZERO).build();
        let watch = watcher.watch("jobs").await.expect("the server is reached");
        let observer = other.holder("w2").session_ttl(TTL).build();
        let other = observer.lock("jobs/other").ttl(TTL).acquire().await.expect("the resource is free");
        Self { client, guard, watch, observer, other }
    }

    /// Waits for the end of the watch, and returns its reason.
    pub async fn watch_end(&mut self) -> String {
        loop {
            match self.watch.next().await {
                Some(Ok(_)) => {}
                Some(Err(error)) => return error.to_string(),
                None => return "the end of the stream".to_owned(),
            }
        }
    }

    /// The session of the client lives to its ttl, and the other client has lost nothing.
    pub async fn assert_nothing_else_ended(&self) {
        let shown = self.observer.show("jobs/a").await.expect("others are served");
        assert_eq!(shown.held, 1, "the session lives to its ttl");
        self.other.check().await.expect("others keep their leases");
        assert_eq!(self.other.state(), GuardState::Held);
    }
}
