//! From an address to a journal that is open: what etcd must be, whose the prefix is, and the log as of the claim.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};

use super::gauge::Gauge;
use super::hold::{Generation, Hold};
use super::keys::Keys;
use super::local::{Local, Witness};
use super::meta::{FORMAT, Meta, NotOurs, Snapshot};
use super::pb::{AlarmType, Compare, RangeRequest, RequestOp};
use super::reach::Reach;
use super::reading::{NotRead, Reading};
use super::refused::Refused;
use super::trouble::Trouble;
use super::version::Version;
use super::writer::Writer;
use super::{Etcd, EtcdJournal};
use crate::journal::{FIRST, OpenError, Opened, Replay};
use crate::secret;

/// An etcd that was looked at and can be written.
#[derive(Clone)]
pub struct Entered {
    pub reach: Arc<Reach>,
    pub keys: Keys,
    pub local: Arc<Local>,
    gauge: Arc<Gauge>,
    quota: u64,
    accept_restored: bool,
    reads_are_fresh: bool,
}

impl Entered {
    /// Looks before anything is changed.
    pub async fn into(place: &Etcd) -> Result<Self, OpenError> {
        let unreachable = |why| OpenError::Etcd(Refused::Unreachable { why });
        let reach = Arc::new(Reach::new(&place.entry).map_err(unreachable)?);
        let (local, gauge) = (place.local.clone(), Arc::default());
        let (keys, quota) = (Keys::under(&place.prefix), place.quota);
        let accept_restored = place.accept_restored;
        let mut entered = Self { reach, keys, local, gauge, quota, accept_restored, reads_are_fresh: true };
        entered.look_at_members().await.map_err(OpenError::Etcd)?;
        entered.look_at_alarms().await?;
        entered.look_at_prefix().await?;
        Ok(entered)
    }

    async fn look_at_members(&mut self) -> Result<(), Refused> {
        let told = self.reach.each_status().await;
        let mut silent = Vec::new();
        for (endpoint, told) in &told {
            match told {
                Ok(status) => {
                    let version = Version::parse(&status.version).filter(|version| version.is_supported());
                    let Some(version) = version else {
                        let (endpoint, have) = ((*endpoint).to_owned(), status.version.clone());
                        return Err(Refused::Version { endpoint, have });
                    };
                    self.reads_are_fresh &= version.reads_are_fresh();
                }
                Err(Trouble::Login(why)) => return Err(Refused::Login { why: why.clone() }),
                Err(trouble) => {
                    // Whoever comes back may be of any version.
                    self.reads_are_fresh = false;
                    silent.push(trouble.to_string());
                }
            }
        }
        if silent.len() == told.len() {
            return Err(Refused::Unreachable { why: silent.join(", ") });
        }
        self.gauge.look(told.iter().filter_map(|(_, told)| told.as_ref().ok()), self.quota);
        Ok(())
    }

    async fn look_at_alarms(&self) -> Result<(), OpenError> {
        let mut tries = self.reach.tries();
        let told = loop {
            tries -= 1;
            match self.reach.alarms().await {
                Err(Trouble::Unknown(_)) if tries > 0 => {}
                told => break told.map_err(|trouble| self.refused(trouble))?,
            }
        };
        for alarm in told.alarms {
            match alarm.alarm() {
                AlarmType::Nospace => return Err(OpenError::Etcd(Refused::Full { what: "alarm NOSPACE".to_owned() })),
                AlarmType::Corrupt => {
                    let endpoint = format!("member {:x}", alarm.member_id);
                    return Err(OpenError::Etcd(Refused::Damaged { endpoint }));
                }
                AlarmType::None => {}
            }
        }
        Ok(())
    }

    /// The prefix is empty, or holds a journal of ours.
    async fn look_at_prefix(&self) -> Result<(), OpenError> {
        match self.reading(0).meta().await {
            Ok((Some(meta), revision)) => self.heed(&meta, revision, None).map(drop),
            Ok((None, revision)) => {
                if let Some(Witness { journal, .. }) = self.local.witness() {
                    let (prefix, found) = (self.keys.prefix().to_owned(), "none".to_owned());
                    return Err(OpenError::Etcd(Refused::OtherJournal { prefix, seen: journal, found }));
                }
                let (key, range_end) = self.keys.all();
                // As it was then: a server that starts beside this one may have begun a journal since.
                let range = RangeRequest { key, range_end, revision, keys_only: true, ..Default::default() };
                let told = self.reach.range_tried(range).await.map_err(|trouble| self.refused(trouble))?;
                let (members, end) = self.keys.members();
                let ours = |key: &[u8]| key == self.keys.leader() || (key >= &members[..] && key < &end[..]);
                match told.kvs.iter().find(|there| !ours(&there.key)) {
                    None => Ok(()),
                    Some(there) => Err(OpenError::Etcd(Refused::Foreign {
                        prefix: self.keys.prefix().to_owned(),
                        key: String::from_utf8_lossy(&there.key).into_owned(),
                    })),
                }
            }
            Err(why) => Err(self.not_read(why)),
        }
    }

    /// Whoever reads at a revision.
    pub fn reading(&self, revision: i64) -> Reading<'_> {
        Reading { reach: &self.reach, keys: &self.keys, revision }
    }

    /// A place in this etcd.
    pub async fn begin(&self, place: &Etcd) -> Result<Hold, OpenError> {
        let (reach, keys, ttl) = (self.reach.clone(), self.keys.clone(), i64::from(place.lease_seconds));
        let hold = Hold::begin(reach, keys, &place.address, ttl).await;
        hold.map_err(|trouble| self.refused(trouble))
    }

    /// Opens the journal that was claimed; `told` is the last sequence that the listener has heard already. If that fails,
    /// the claim is given back.
    pub async fn take(
        self,
        hold: Arc<Hold>,
        mine: Generation,
        told: u64,
        replay: &mut (dyn Replay + Send),
    ) -> Result<Opened<EtcdJournal>, OpenError> {
        match self.read(&mine, told, replay).await {
            Ok((meta, next, restored)) => Ok(self.opened(hold, mine, meta, next, restored)),
            Err(why) => {
                hold.end().await;
                Err(why)
            }
        }
    }

    /// Tells what is on record as of the claim. Returns which journal it is, the sequence that comes next, and whether etcd
    /// was set back.
    async fn read(
        &self,
        mine: &Generation,
        told: u64,
        replay: &mut (dyn Replay + Send),
    ) -> Result<(Meta, u64, bool), OpenError> {
        let at = self.reading(mine.revision);
        let (meta, current) = at.meta().await.map_err(|why| self.not_read(why))?;
        let meta = match meta {
            Some(meta) => meta,
            None => self.create(mine).await?,
        };
        let (next, _) = self.tell(&at, meta.snapshot, told, replay).await?;
        let restored = self.heed(&meta, current, Some(next - 1))?;
        Ok((meta, next, restored))
    }

    /// Tells what comes after a sequence, from the newest snapshot on if nothing was told yet or the log does not reach so
    /// far back. Returns the sequence that comes next, and the revision of which that is true.
    pub async fn tell(
        &self,
        at: &Reading<'_>,
        newest: Option<Snapshot>,
        told: u64,
        replay: &mut (dyn Replay + Send),
    ) -> Result<(u64, i64), OpenError> {
        if told > 0 {
            match self.tell_batches(at, told, told, replay).await {
                // The last batch is always there. If it is not, etcd has forgotten it.
                Ok((next, _)) if next == told => {
                    return Err(OpenError::Etcd(Refused::Restored { what: "batch", seen: told, found: 0 }));
                }
                Err(NotTold::Read(NotRead::Trimmed { .. })) => {}
                told => return told.map_err(|why| self.not_told(why)),
            }
        }
        let mut from = FIRST;
        if let Some(newest) = newest {
            let bytes = at.snapshot(newest).await.map_err(|why| self.not_read(why))?;
            let heard = replay.snapshot(newest.sequence, &bytes);
            heard.map_err(|wrong| corrupt(&self.keys.chunks(newest.sequence).0, wrong))?;
            from = newest.sequence + 1;
        }
        self.tell_batches(at, from, from - 1, replay).await.map_err(|why| self.not_told(why))
    }

    /// Reads from a sequence on, and tells what is above another.
    async fn tell_batches(
        &self,
        at: &Reading<'_>,
        from: u64,
        above: u64,
        replay: &mut (dyn Replay + Send),
    ) -> Result<(u64, i64), NotTold> {
        let mut wrong = None;
        let mut each = |sequence: u64, batch: &[u8]| {
            let heard = if sequence > above { replay.batch(sequence, batch) } else { Ok(()) };
            match heard {
                Ok(()) => ControlFlow::Continue(()),
                Err(why) => {
                    wrong = Some(corrupt(&self.keys.log(sequence), why));
                    ControlFlow::Break(())
                }
            }
        };
        let reached = at.batches(from, &mut each).await.map_err(NotTold::Read)?;
        wrong.map_or(Ok(reached), |wrong| Err(NotTold::Refused(wrong)))
    }

    fn not_told(&self, why: NotTold) -> OpenError {
        match why {
            NotTold::Read(why) => self.not_read(why),
            NotTold::Refused(why) => why,
        }
    }

    /// A new journal. Whoever is not the leader any more creates nothing.
    async fn create(&self, mine: &Generation) -> Result<Meta, OpenError> {
        let id = secret::draw::<16>().iter().map(|byte| format!("{byte:02x}")).collect();
        let meta = Meta { id, snapshot: None };
        let mut compare = mine.leads(&self.keys);
        compare.push(Compare::absent(&self.keys.meta()));
        let success = vec![RequestOp::put(&self.keys.meta(), meta.encode(), 0)];
        let failure = vec![RequestOp::get(&self.keys.meta())];
        let txn = super::pb::TxnRequest { compare, success, failure };
        let mut tries = self.reach.tries();
        loop {
            tries -= 1;
            match self.reach.txn(txn.clone()).await {
                Ok(told) if told.succeeded => return Ok(meta),
                // An earlier try came through without a word.
                Ok(told) if told.got(0).is_some_and(|there| there.value == meta.encode()) => return Ok(meta),
                Ok(_) => return Err(OpenError::Etcd(Refused::Taken)),
                Err(Trouble::Unknown(_) | Trouble::Behind) if tries > 0 => {}
                Err(trouble) => return Err(self.refused(trouble)),
            }
        }
    }

    /// What this server has seen must still be there. True if it is not, and that was accepted.
    pub fn heed(&self, meta: &Meta, revision: i64, sequence: Option<u64>) -> Result<bool, OpenError> {
        let Some(Witness { journal, revision: seen, sequence: last }) = self.local.witness() else { return Ok(false) };
        if journal != meta.id {
            let (prefix, found) = (self.keys.prefix().to_owned(), meta.id.clone());
            return Err(OpenError::Etcd(Refused::OtherJournal { prefix, seen: journal, found }));
        }
        let (what, seen, found) = match sequence {
            _ if revision < seen => ("revision", seen.unsigned_abs(), revision.unsigned_abs()),
            Some(found) if found < last => ("batch", last, found),
            _ => return Ok(false),
        };
        if self.accept_restored { Ok(true) } else { Err(OpenError::Etcd(Refused::Restored { what, seen, found })) }
    }

    fn opened(self, hold: Arc<Hold>, mine: Generation, meta: Meta, next: u64, restored: bool) -> Opened<EtcdJournal> {
        let warnings = self.local.warnings();
        let writer = Arc::new(Writer {
            reach: self.reach.clone(),
            keys: self.keys,
            local: self.local,
            gauge: self.gauge.clone(),
            mine,
            journal: meta.id,
            reads_are_fresh: self.reads_are_fresh,
            next: AtomicU64::new(next),
            fenced: AtomicBool::new(false),
            failed: OnceLock::new(),
        });
        writer.witness();
        let looking = self.gauge.watch(self.reach, self.quota);
        Opened { journal: EtcdJournal { writer, _hold: hold, looking, restored }, warnings }
    }

    /// What a trouble means to somebody who wants to open.
    pub fn refused(&self, trouble: Trouble) -> OpenError {
        OpenError::Etcd(match trouble {
            Trouble::Full => Refused::Full { what: "database space exceeded".to_owned() },
            Trouble::Denied(_) => Refused::ReadOnly { prefix: self.keys.prefix().to_owned() },
            Trouble::Login(why) => Refused::Login { why },
            Trouble::LeaseGone => Refused::Taken,
            other => Refused::Unreachable { why: other.to_string() },
        })
    }

    /// What it means that something was not read.
    pub fn not_read(&self, why: NotRead) -> OpenError {
        let prefix = || self.keys.prefix().to_owned();
        match why {
            NotRead::Trouble(trouble) => self.refused(trouble),
            NotRead::Trimmed { first } => OpenError::Etcd(Refused::Corrupt {
                key: String::from_utf8_lossy(&self.keys.log(first)).into_owned(),
                why: "the log begins here, and no snapshot covers what was before".to_owned(),
            }),
            NotRead::Corrupt { key, why } => OpenError::Etcd(Refused::Corrupt { key, why }),
            NotRead::Meta(NotOurs::Newer(have)) => {
                OpenError::Etcd(Refused::Newer { prefix: prefix(), have, want: FORMAT })
            }
            NotRead::Meta(NotOurs::Foreign) => {
                OpenError::Etcd(Refused::Foreign { prefix: prefix(), key: format!("{}meta", prefix()) })
            }
        }
    }
}

/// Why batches were not told.
enum NotTold {
    Read(NotRead),
    Refused(OpenError),
}

/// A batch or a snapshot that the state refuses.
pub fn corrupt(key: &[u8], wrong: leasehold_core::grantor::Corrupt) -> OpenError {
    OpenError::Corrupt {
        file: String::from_utf8_lossy(key).into_owned().into(),
        offset: wrong.at as u64,
        reason: wrong.why.to_owned(),
    }
}
