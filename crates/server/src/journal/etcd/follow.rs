//! A server that may lead: it follows the log, so that it is warm, and waits until nobody leads or until it is given the key.

use std::sync::Arc;
use std::time::Duration;

use super::entering::{Entered, corrupt};
use super::hold::{Generation, Hold, address};
use super::local::Witness;
use super::pb::{Event, KeyValue, WatchCreateRequest, WatchRequest, WatchResponse, event::EventType, watch_request};
use super::stored::{self, Stored};
use super::trouble::Trouble;
use super::{Etcd, EtcdJournal, Refused};
use crate::journal::{OpenError, Opened, Replay};

/// How often it is looked whether the own place is still there.
const LOOK: Duration = Duration::from_secs(1);
/// How long nothing is done after etcd did not answer.
const PAUSE: Duration = Duration::from_millis(300);

/// A server that stands by.
pub struct Standby {
    place: Etcd,
    entered: Entered,
    hold: Hold,
    /// The last sequence that was told.
    told: u64,
    journal: Option<String>,
    /// etcd was set back, that was accepted, and nobody has appended since.
    restored: bool,
}

/// A server that leads: what it can do with the leader key.
pub struct Leading {
    hold: Arc<Hold>,
    mine: Generation,
}

/// Who is told about others.
pub trait Listen: Send {
    /// This server leads now, at this address; none if nobody does.
    fn leader(&mut self, address: Option<&str>);

    /// Everything up to this sequence was told.
    fn reached(&mut self, sequence: u64);
}

/// What ends a round of watching.
enum Next {
    /// This server leads.
    Lead(Generation),
    /// Look again at everything.
    Again,
}

impl Etcd {
    /// Looks at etcd, and stands by.
    pub async fn stand_by(&self) -> Result<Standby, OpenError> {
        let entered = Entered::into(self).await?;
        let hold = entered.begin(self).await?;
        Ok(Standby { place: self.clone(), entered, hold, told: 0, journal: None, restored: false })
    }
}

impl Standby {
    /// Tells what the leader appends, until this server leads. What etcd does not answer is asked again.
    pub async fn follow(
        &mut self,
        replay: &mut (dyn Replay + Send),
        listen: &mut dyn Listen,
    ) -> Result<Generation, OpenError> {
        loop {
            match self.round(replay, listen).await {
                Ok(Next::Lead(mine)) => return Ok(mine),
                Ok(Next::Again) => {}
                // It may have room again, or have been given rights; nobody else would lead meanwhile either.
                Err(OpenError::Etcd(why @ (Refused::Unreachable { .. } | Refused::Taken | Refused::Full { .. }))) => {
                    tracing::warn!("standing by: {why}");
                    listen.leader(None);
                    tokio::time::sleep(PAUSE).await;
                }
                Err(why) => return Err(why),
            }
        }
    }

    async fn round(&mut self, replay: &mut (dyn Replay + Send), listen: &mut dyn Listen) -> Result<Next, OpenError> {
        if self.hold.is_over() {
            self.hold = self.entered.begin(&self.place).await?;
        }
        let reached = self.catch_up(replay, listen).await?;
        let leader = self.hold.leader().await.map_err(|trouble| self.entered.refused(trouble))?;
        let Some(leader) = leader else { return self.claim().await };
        if let Some(mine) = self.hold.given(&leader) {
            return Ok(Next::Lead(mine));
        }
        listen.leader(Some(&address(&leader.value)));
        self.watch(leader, reached, replay, listen).await
    }

    async fn claim(&mut self) -> Result<Next, OpenError> {
        match self.hold.claim().await {
            Ok(Some(mine)) => Ok(Next::Lead(mine)),
            Ok(None) => Ok(Next::Again),
            Err(Trouble::LeaseGone) => {
                self.hold = self.entered.begin(&self.place).await?;
                Ok(Next::Again)
            }
            Err(trouble) => Err(self.entered.refused(trouble)),
        }
    }

    /// Tells what is durable by now. Returns the revision of which that is true.
    async fn catch_up(&mut self, replay: &mut (dyn Replay + Send), listen: &mut dyn Listen) -> Result<i64, OpenError> {
        let (meta, at) = self.entered.reading(0).meta().await.map_err(|why| self.entered.not_read(why))?;
        let newest = meta.as_ref().and_then(|meta| meta.snapshot);
        let reading = self.entered.reading(at);
        let (next, revision) = self.entered.tell(&reading, newest, self.told, replay).await?;
        // Before the witness is written anew: it is all that a server knows that was started again.
        if let Some(meta) = meta.as_ref().filter(|_| self.told == 0) {
            self.restored |= self.entered.heed(meta, at, Some(next - 1))?;
        }
        self.journal = meta.map(|meta| meta.id);
        self.reached(next - 1, listen);
        Ok(revision)
    }

    fn reached(&mut self, sequence: u64, listen: &mut dyn Listen) {
        // Whoever appends has begun the new life already.
        self.restored &= self.told == 0 || sequence == self.told;
        self.told = sequence;
        // First: whoever is told to have seen it can bear witness of it.
        self.note();
        listen.reached(sequence);
    }

    /// What is seen here is a witness too: a live server knows an etcd that was set back.
    fn note(&self) {
        if let Some(journal) = self.journal.clone() {
            let witness = Witness { journal, revision: self.entered.reach.revision(), sequence: self.told };
            self.entered.local.note(&witness);
        }
    }

    /// Follows what happens after a revision, until something has to be looked at anew.
    async fn watch(
        &mut self,
        leader: KeyValue,
        reached: i64,
        replay: &mut (dyn Replay + Send),
        listen: &mut dyn Listen,
    ) -> Result<Next, OpenError> {
        let reach = self.entered.reach.clone();
        let refused = |trouble| self.entered.refused(trouble);
        let keys = &self.entered.keys;
        let leaders = watching(keys.leader(), Vec::new(), leader.mod_revision + 1);
        let batches = watching(keys.log(self.told + 1), keys.log_end(), reached + 1);
        let mut leaders = reach.watch(leaders).await.map_err(refused)?;
        let mut batches = reach.watch(batches).await.map_err(refused)?;
        let mut look = tokio::time::interval(LOOK);
        loop {
            tokio::select! {
                told = leaders.message() => match heard(told) {
                    None => return Ok(Next::Again),
                    Some(events) => {
                        for event in events {
                            let Some(leader) = event.kv.as_ref().filter(|_| event.r#type() == EventType::Put) else {
                                listen.leader(None);
                                return Ok(Next::Again);
                            };
                            if let Some(mine) = self.hold.given(leader) {
                                return Ok(Next::Lead(mine));
                            }
                            listen.leader(Some(&address(&leader.value)));
                        }
                    }
                },
                told = batches.message() => match heard(told) {
                    None => return Ok(Next::Again),
                    Some(events) => {
                        if !self.hear(events, replay, listen)? {
                            return Ok(Next::Again);
                        }
                    }
                },
                _ = look.tick() => {
                    if self.hold.is_over() {
                        return Ok(Next::Again);
                    }
                }
            }
        }
    }

    /// Tells the batches that came. False if one of them has to be read.
    fn hear(
        &mut self,
        events: Vec<Event>,
        replay: &mut (dyn Replay + Send),
        listen: &mut dyn Listen,
    ) -> Result<bool, OpenError> {
        // It was begun after this server looked. Which one it is must be known to bear witness of it.
        if self.journal.is_none() && !events.is_empty() {
            return Ok(false);
        }
        for event in events {
            let Some(batch) = event.kv.as_ref().filter(|_| event.r#type() == EventType::Put) else { continue };
            self.entered.reach.saw(batch.mod_revision);
            match (self.entered.keys.sequence(&batch.key), stored::decode(&batch.value)) {
                (Some(sequence), _) if sequence <= self.told => {}
                (Some(sequence), Ok(Stored::Whole(bytes))) if sequence == self.told + 1 => {
                    replay.batch(sequence, bytes).map_err(|wrong| corrupt(&batch.key, wrong))?;
                    self.reached(sequence, listen);
                }
                _ => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Opens the journal that this server leads now; only what was not told yet is told.
    pub async fn take(
        self,
        mine: Generation,
        replay: &mut (dyn Replay + Send),
    ) -> Result<(Opened<EtcdJournal>, Leading), OpenError> {
        let hold = Arc::new(self.hold);
        let leading = Leading { hold: hold.clone(), mine: mine.clone() };
        let mut opened = self.entered.take(hold, mine, self.told, replay).await?;
        opened.journal.restored |= self.restored;
        Ok((opened, leading))
    }

    /// Stands by no more.
    pub async fn end(self) {
        self.hold.end().await;
    }
}

impl Leading {
    /// Gives the leader key to another server, or back. Returns the address of the one that leads now.
    pub async fn hand_over(self) -> Option<String> {
        let to = self.hold.hand_over(&self.mine).await;
        self.hold.end().await;
        to
    }
}

fn watching(key: Vec<u8>, range_end: Vec<u8>, start_revision: i64) -> WatchRequest {
    let create = WatchCreateRequest { key, range_end, start_revision, progress_notify: false };
    WatchRequest { request_union: Some(watch_request::RequestUnion::CreateRequest(create)) }
}

/// What happened, unless the watch is over.
fn heard(told: Result<Option<WatchResponse>, tonic::Status>) -> Option<Vec<Event>> {
    match told {
        Ok(Some(told)) if !told.canceled => Some(told.events),
        _ => None,
    }
}
