//! A standby: it follows the log and waits until there is no leader or until the leader key is transferred to it.

use std::sync::Arc;
use std::time::Duration;

use super::batch_value::{self, BatchValue};
use super::error::EtcdError;
use super::leadership::{EtcdLeadership, Generation, address};
use super::local::HighWater;
use super::open::CheckedEtcd;
use super::pb::{Event, KeyValue, WatchCreateRequest, WatchRequest, WatchResponse, event::EventType, watch_request};
use super::{EtcdJournal, EtcdLocation, EtcdOpenError, KeyDigestRecord};
use crate::journal::{OpenError, OpenedJournal, Replay, ReplayedHead};

/// Interval at which the standby checks its own lease.
const LEASE_CHECK: Duration = Duration::from_secs(1);
/// Pause after a failed call.
const RETRY_PAUSE: Duration = Duration::from_millis(300);

/// A server that stands by.
pub struct Standby {
    location: EtcdLocation,
    etcd: CheckedEtcd,
    leadership: EtcdLeadership,
    /// The last batch that was replayed.
    position: u64,
    journal: Option<String>,
    /// etcd was restored, this was accepted, and no batch was appended since.
    restored: bool,
    /// Revision at which a restore was last accepted, as of the last batch that was replayed.
    accepted: i64,
}

/// The leader's access to the leader key.
pub struct LeaderHandle {
    leadership: Arc<EtcdLeadership>,
    generation: Generation,
    key_digests: Option<Arc<dyn KeyDigestRecord>>,
}

/// Receives the progress of a standby.
pub trait StandbyObserver: Send {
    /// The address of the leader; `None` if there is no leader.
    fn leader(&mut self, address: Option<&str>);

    /// All batches up to this sequence were replayed.
    fn reached(&mut self, sequence: u64);
}

/// The end of a round of watching.
enum RoundEnd {
    /// This server leads.
    Elected(Generation),
    /// Read the state of etcd again.
    Restart,
}

impl EtcdLocation {
    /// Checks etcd and stands by.
    pub async fn stand_by(&self) -> Result<Standby, OpenError> {
        let etcd = CheckedEtcd::check(self).await?;
        etcd.check_keys(self.key_digests.as_deref()).await?;
        let leadership = etcd.register(self).await?;
        let location = self.clone();
        Ok(Standby { location, etcd, leadership, position: 0, journal: None, restored: false, accepted: 0 })
    }
}

impl Standby {
    /// Replays what the leader appends until this server leads. Retries while etcd does not respond.
    pub async fn follow(
        &mut self,
        replay: &mut (dyn Replay + Send),
        observer: &mut dyn StandbyObserver,
    ) -> Result<Generation, OpenError> {
        loop {
            match self.round(replay, observer).await {
                Ok(RoundEnd::Elected(generation)) => return Ok(generation),
                Ok(RoundEnd::Restart) => {}
                // This may be temporary, and no other server could lead meanwhile either.
                Err(OpenError::Etcd(
                    error @ (EtcdOpenError::Unreachable { .. } | EtcdOpenError::Taken | EtcdOpenError::Full { .. }),
                )) => {
                    tracing::warn!(%error, "standby cannot use etcd");
                    observer.leader(None);
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn round(
        &mut self,
        replay: &mut (dyn Replay + Send),
        observer: &mut dyn StandbyObserver,
    ) -> Result<RoundEnd, OpenError> {
        if self.leadership.is_expired() {
            self.leadership = self.etcd.register(&self.location).await?;
        }
        self.restored |= self.etcd.check_marker().await?;
        let reached = self.catch_up(replay, observer).await?;
        let leader = self.leadership.leader().await.map_err(|error| self.etcd.open_error(error))?;
        let Some(leader) = leader else { return self.claim().await };
        if let Some(generation) = self.leadership.generation_of(&leader) {
            return Ok(RoundEnd::Elected(generation));
        }
        observer.leader(Some(&address(&leader.value)));
        self.watch(leader, reached, replay, observer).await
    }

    async fn claim(&mut self) -> Result<RoundEnd, OpenError> {
        match self.leadership.claim().await {
            Ok(Some(generation)) => Ok(RoundEnd::Elected(generation)),
            Ok(None) => Ok(RoundEnd::Restart),
            Err(EtcdError::LeaseGone) => {
                self.leadership = self.etcd.register(&self.location).await?;
                Ok(RoundEnd::Restart)
            }
            Err(error) => Err(self.etcd.open_error(error)),
        }
    }

    /// Replays what is durable now. Returns the revision it was read at.
    async fn catch_up(
        &mut self,
        replay: &mut (dyn Replay + Send),
        observer: &mut dyn StandbyObserver,
    ) -> Result<i64, OpenError> {
        let (meta, at) = self.etcd.reader(0).meta().await.map_err(|error| self.etcd.read_error(error))?;
        let newest = meta.as_ref().and_then(|meta| meta.snapshot);
        let reader = self.etcd.reader(at);
        if meta.is_none() {
            self.etcd.check_missing(at, self.position).await?;
        }
        let accepted = reader.accepted().await.map_err(|error| self.etcd.read_error(error))?;
        let replayed = self.etcd.replay(&reader, newest, self.position, replay).await;
        if let Err(OpenError::Etcd(EtcdOpenError::Restored { what })) = &replayed {
            // If a restore was accepted since, the others serve a new incarnation; a restart of this server compares with it.
            if accepted == 0 || accepted == self.accepted {
                self.etcd.leave_marker(what, accepted).await;
            }
        }
        let (next, revision) = replayed?;
        // Before the high-water mark is overwritten, which is all that a restarted server knows. A snapshot may have replaced what this
        // server has replayed.
        let is_replaced = self.position == 0 || newest.is_some_and(|newest| newest.sequence > self.position);
        if let Some(meta) = meta.as_ref().filter(|_| is_replaced) {
            self.restored |= self.etcd.check_restored(&reader, meta, at, next - 1, replay).await?;
        }
        self.accepted = accepted;
        self.journal = meta.map(|meta| meta.id);
        self.reached(next - 1, replay.head(), observer);
        Ok(revision)
    }

    fn reached(&mut self, sequence: u64, head: Option<ReplayedHead>, observer: &mut dyn StandbyObserver) {
        // The leader that appended has begun the new incarnation already.
        self.restored &= self.position == 0 || sequence == self.position;
        self.position = sequence;
        // Before the observer, so that a reported position is always covered by the high-water mark.
        self.save_high_water(head);
        observer.reached(sequence);
    }

    /// Records how far this standby has read, so that it detects an etcd that was restored.
    fn save_high_water(&self, head: Option<ReplayedHead>) {
        if let Some(journal) = self.journal.clone() {
            let high_water = HighWater {
                journal,
                revision: self.etcd.client.revision(),
                sequence: self.position,
                digest: head.map(|head| head.digest),
                opening: head.and_then(|head| head.opening),
                incarnation: head.and_then(|head| head.incarnation),
            };
            self.etcd.local.save_high_water(&high_water);
        }
    }

    /// Follows changes after a revision until the state of etcd must be read again.
    async fn watch(
        &mut self,
        leader: KeyValue,
        reached: i64,
        replay: &mut (dyn Replay + Send),
        observer: &mut dyn StandbyObserver,
    ) -> Result<RoundEnd, OpenError> {
        let client = self.etcd.client.clone();
        let open_error = |error| self.etcd.open_error(error);
        let keys = &self.etcd.keys;
        let leaders = watch_request(keys.leader(), Vec::new(), leader.mod_revision + 1);
        let batches = watch_request(keys.log(self.position + 1), keys.log_end(), reached + 1);
        let mut leaders = client.watch(leaders).await.map_err(open_error)?;
        let mut batches = client.watch(batches).await.map_err(open_error)?;
        let mut lease_check = tokio::time::interval(LEASE_CHECK);
        loop {
            tokio::select! {
                message = leaders.message() => match events_of(message) {
                    None => return Ok(RoundEnd::Restart),
                    Some(events) => {
                        for event in events {
                            let Some(leader) = event.kv.as_ref().filter(|_| event.r#type() == EventType::Put) else {
                                observer.leader(None);
                                return Ok(RoundEnd::Restart);
                            };
                            if let Some(generation) = self.leadership.generation_of(leader) {
                                return Ok(RoundEnd::Elected(generation));
                            }
                            observer.leader(Some(&address(&leader.value)));
                        }
                    }
                },
                message = batches.message() => match events_of(message) {
                    None => return Ok(RoundEnd::Restart),
                    Some(events) => {
                        if !self.replay_events(events, replay, observer)? {
                            return Ok(RoundEnd::Restart);
                        }
                    }
                },
                _ = lease_check.tick() => {
                    if self.leadership.is_expired() {
                        return Ok(RoundEnd::Restart);
                    }
                }
            }
        }
    }

    /// Replays the batches in watch events. False if one of them must be read from etcd.
    fn replay_events(
        &mut self,
        events: Vec<Event>,
        replay: &mut (dyn Replay + Send),
        observer: &mut dyn StandbyObserver,
    ) -> Result<bool, OpenError> {
        // The journal was created after this standby read etcd; its id must be known for the high-water mark.
        if self.journal.is_none() && !events.is_empty() {
            return Ok(false);
        }
        for event in events {
            let Some(batch) = event.kv.as_ref().filter(|_| event.r#type() == EventType::Put) else { continue };
            self.etcd.client.observe_revision(batch.mod_revision);
            match (self.etcd.keys.sequence(&batch.key), batch_value::decode(&batch.value)) {
                (Some(sequence), _) if sequence <= self.position => {}
                (Some(sequence), Ok(BatchValue::Whole(bytes))) if sequence == self.position + 1 => {
                    // Read again, a batch of a restored etcd is distinguished from a damaged one.
                    if replay.batch(sequence, bytes).is_err() {
                        return Ok(false);
                    }
                    self.reached(sequence, replay.head(), observer);
                }
                _ => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Opens the journal that this server leads now and replays the rest of it.
    pub async fn open(
        self,
        generation: Generation,
        replay: &mut (dyn Replay + Send),
    ) -> Result<(OpenedJournal<EtcdJournal>, LeaderHandle), OpenError> {
        let leadership = Arc::new(self.leadership);
        if let Err(error) = self.etcd.check_leading_keys(self.location.key_digests.as_deref()).await {
            leadership.end().await;
            return Err(error);
        }
        let key_digests = self.location.key_digests.clone();
        let leader = LeaderHandle { leadership: leadership.clone(), generation: generation.clone(), key_digests };
        let opened = self.etcd.open(leadership, generation, self.position, self.restored, replay).await?;
        Ok((opened, leader))
    }

    /// Stops standing by.
    pub async fn end(self) {
        self.leadership.end().await;
    }
}

impl LeaderHandle {
    /// Records the keys that the servers share, for as long as this server leads. Never ends.
    pub async fn record_keys(&self) {
        match &self.key_digests {
            Some(keys) => self.leadership.record_keys(&self.generation, &**keys).await,
            None => std::future::pending().await,
        }
    }

    /// Deletes the leader key without a successor.
    pub async fn abandon(self) {
        self.leadership.end().await;
    }

    /// Transfers the leader key to another server, or deletes it. Returns the address of the new leader.
    pub async fn resign(self) -> Option<String> {
        let successor = self.leadership.transfer(&self.generation).await;
        self.leadership.end().await;
        successor
    }
}

fn watch_request(key: Vec<u8>, range_end: Vec<u8>, start_revision: i64) -> WatchRequest {
    let create = WatchCreateRequest { key, range_end, start_revision, progress_notify: false };
    WatchRequest { request_union: Some(watch_request::RequestUnion::CreateRequest(create)) }
}

/// The events of a response; `None` if the watch has ended.
fn events_of(message: Result<Option<WatchResponse>, tonic::Status>) -> Option<Vec<Event>> {
    match message {
        Ok(Some(response)) if !response.canceled => Some(response.events),
        _ => None,
    }
}
