//! Observing the leader: every reported leader was current during the call that reported it, and no report goes back in time.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::Stream;
use futures::stream::{BoxStream, StreamExt, TryStreamExt};
use leasehold_core::name::Name;
use leasehold_wire::json::LeaseBody;

use super::Election;
use crate::{Client, Code, Error, Watch};

/// The current leader.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// Holder name.
    pub holder: String,
    /// Token number: a later leader has a higher one.
    pub token_number: u64,
    /// Metadata of the candidate.
    pub metadata: String,
}

impl Election {
    /// The leader at a moment during this call; none if there is no leader.
    pub async fn leader(&self) -> Result<Option<Leader>, Error> {
        leader(&self.client, &self.resource).await
    }

    /// Observes the leader from now on.
    pub async fn observe(&self) -> Result<LeaderUpdates, Error> {
        Name::parse(&self.resource)?;
        let watch = self.client.watch(&self.resource).await?;
        let observer = LeaderObserver { election: self.clone(), watch, stale: true, reported: None, highest: 0 };
        let updates = futures::stream::unfold(observer, |mut observer| async move {
            let update = observer.next().await;
            Some((update, observer))
        });
        Ok(LeaderUpdates { resource: self.resource.clone(), updates: updates.boxed() })
    }
}

async fn leader(client: &Client, resource: &str) -> Result<Option<Leader>, Error> {
    let view = match client.show(resource).await {
        Ok(view) => view,
        Err(error) if error.code() == Some(Code::NotFound) => return Ok(None),
        Err(error) => return Err(error),
    };
    // The predecessor of an overlap only finishes; it does not lead any more.
    let leads = |lease: &&LeaseBody| !lease.predecessor && lease.access == "exclusive";
    let Some(lease) = view.leases.iter().find(leads) else {
        return Ok(None);
    };
    let token_number = lease.token_number.parse().map_err(Error::invalid_reply)?;
    let (holder, metadata) = (lease.holder.clone(), lease.metadata.clone());
    Ok(Some(Leader { holder, token_number, metadata }))
}

/// A stream of leaders: the current one, then every change; none while there is no leader. It never ends; after an error, polling
/// again tries again.
///
/// Changes between two polls are reported by their outcome.
#[must_use = "streams do nothing unless polled"]
pub struct LeaderUpdates {
    resource: String,
    updates: BoxStream<'static, Result<Option<Leader>, Error>>,
}

impl Stream for LeaderUpdates {
    type Item = Result<Option<Leader>, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.updates.as_mut().poll_next(context)
    }
}

impl fmt::Debug for LeaderUpdates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaderUpdates").field("resource", &self.resource).finish_non_exhaustive()
    }
}

/// State of an observation. An event only triggers a query; the query decides.
struct LeaderObserver {
    election: Election,
    watch: Watch,
    /// Something happened since the last query.
    stale: bool,
    /// The last report.
    reported: Option<Option<Leader>>,
    /// Highest token number of a reported leader.
    highest: u64,
}

impl LeaderObserver {
    async fn next(&mut self) -> Result<Option<Leader>, Error> {
        loop {
            if !self.stale {
                // A reconnect counts, too: events may be missing.
                self.watch.try_next().await?;
                self.stale = true;
            }
            let leader = self.election.leader().await?;
            self.stale = false;
            let number = leader.as_ref().map_or(self.highest, |leader| leader.token_number);
            // A server that is behind is ignored.
            if number < self.highest || self.reported.as_ref() == Some(&leader) {
                continue;
            }
            self.highest = number;
            self.reported = Some(leader.clone());
            return Ok(leader);
        }
    }
}
