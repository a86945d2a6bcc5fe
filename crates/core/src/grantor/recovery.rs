//! Recovery and start of a grantor: fold the journal into a state, open a tenure, and serve once the opening is durable.

use std::collections::VecDeque;
use std::fmt;

use sha2::{Digest, Sha256};

use super::deadlock::DeadlockDetector;
use super::table::GrantorTable;
use super::{AuditChange, Grantor, Output};
use crate::access::{Attribution, IdentityUsage, RequestOrigin, Via};
use crate::codec::{DecodeError, Reader};
use crate::lease::Validity;
use crate::limits;
use crate::mutants::{self, Mutant};
use crate::record::{BatchHeader, Record};
use crate::time::{DurationText, GrantorTime, Instant, Now, WallClock};
use crate::token::{Cluster, Incarnation, Number, next_number};

/// A grantor recovered from records that does not serve yet. A standby keeps one and applies the leader's batches.
pub struct RecoveredGrantor {
    /// It serves only after a tenure is opened.
    state: Grantor,
}

/// Options of a new tenure.
#[derive(Clone, Copy, Debug)]
pub struct TenureOptions {
    /// The cluster of the journal; a new journal is assigned to it.
    pub cluster: Cluster,
    /// The incarnation of a new cluster; an existing one keeps its own.
    pub incarnation: Incarnation,
    /// The journal generation of this writer.
    pub generation: u64,
    /// What the validity of leases rests on with this journal.
    pub validity: Validity,
    /// The longest ttl of a new cluster; an existing one keeps its own. A quarantine lasts at least this long, because a state that
    /// was restored or rolled back may not know that it was raised; 0 states nothing about an existing cluster.
    pub max_ttl: u64,
    /// Set if the state comes from a backup: starts a new incarnation.
    pub restore: Option<RestoreSpec>,
}

/// Receives the audit changes of each record of a batch.
pub type ChangeSink<'a> = &'a mut dyn FnMut(&BatchHeader, &AuditChange<'_>);

/// A restore from a backup (T5).
#[derive(Clone, Copy, Debug)]
pub struct RestoreSpec {
    /// The new incarnation, drawn at random by the caller.
    pub incarnation: Incarnation,
    /// Every number issued from now on is above this: set by an operator, or found in the marks of the targets.
    pub floor: Option<Number>,
    /// The user id of the process that restores; none if the server itself takes over a journal that another process restored.
    pub uid: Option<u32>,
}

/// Identity and position of a recovered state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalInfo {
    /// The cluster.
    pub cluster: Cluster,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// The generation of the last tenure.
    pub generation: u64,
    /// The highest number issued.
    pub counter: u64,
    /// Grantor time of the last batch.
    pub time: GrantorTime,
    /// The wall clock of the last batch.
    pub wall: WallClock,
}

/// A batch or snapshot that is corrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CorruptionError {
    /// Byte offset in the batch or snapshot.
    pub at: usize,
    /// What is wrong.
    pub problem: &'static str,
}

impl fmt::Display for CorruptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}; restore from a backup, or inspect the journal", self.problem, self.at)
    }
}

impl std::error::Error for CorruptionError {}

impl From<DecodeError> for CorruptionError {
    fn from(wrong: DecodeError) -> Self {
        Self { at: wrong.at, problem: wrong.problem }
    }
}

/// Why a tenure was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenTenureError {
    /// The journal belongs to another cluster.
    WrongCluster {
        /// The cluster of the journal.
        found: Cluster,
    },
    /// The longest ttl is outside its limits.
    MaxTtl {
        /// The requested value.
        requested: u64,
    },
    /// The backup contains no cluster.
    NothingToRestore,
    /// The clock is behind the backup and no floor is given, so numbers could be issued twice.
    ClockBehind {
        /// The wall clock of the backup's last batch.
        backup: WallClock,
    },
    /// The floor is not above the numbers that the backup has issued.
    FloorTooLow {
        /// The highest known number.
        known: u64,
    },
    /// No number is left.
    TokensExhausted,
}

impl fmt::Display for OpenTenureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WrongCluster { found } => {
                write!(f, "the journal belongs to cluster {found}; use that cluster id, or another journal")
            }
            Self::MaxTtl { requested } => {
                write!(f, "max_ttl: {} is not allowed; from 100ms to 7d", DurationText(*requested))
            }
            Self::NothingToRestore => f.write_str("the backup contains no cluster; start a new cluster instead"),
            Self::ClockBehind { backup } => {
                write!(
                    f,
                    "the clock is behind the backup ({} ms since 1970); set the clock, or pass --token-floor",
                    backup.0
                )
            }
            Self::FloorTooLow { known } => write!(f, "the token floor must be above {known}"),
            Self::TokensExhausted => f.write_str("no token number is left; start a new cluster"),
        }
    }
}

impl std::error::Error for OpenTenureError {}

/// Recovers a state from a snapshot and the batches after it. `hash_seed` protects the tables against chosen names.
pub fn recover<'a>(
    hash_seed: u64,
    snapshot: Option<&[u8]>,
    batches: impl IntoIterator<Item = &'a [u8]>,
) -> Result<RecoveredGrantor, CorruptionError> {
    let mut recovered = match snapshot {
        Some(bytes) => RecoveredGrantor::from_snapshot(bytes, hash_seed)?,
        None => RecoveredGrantor::empty(hash_seed),
    };
    for batch in batches {
        recovered.apply(batch)?;
    }
    Ok(recovered)
}

impl RecoveredGrantor {
    /// An empty state: no records.
    pub fn empty(hash_seed: u64) -> Self {
        Self { state: Grantor::not_serving(GrantorTable::new(hash_seed)) }
    }

    /// The state of a snapshot.
    pub fn from_snapshot(bytes: &[u8], hash_seed: u64) -> Result<Self, CorruptionError> {
        Ok(Self { state: Grantor::not_serving(GrantorTable::decode(bytes, hash_seed)?) })
    }

    /// Every identity that was ever given anything, with what it has.
    pub fn identity_usages(&self) -> impl Iterator<Item = (&str, IdentityUsage)> {
        self.state.identity_usages()
    }

    /// Applies the next batch, which must follow the one before it in the audit chain (A1).
    pub fn apply(&mut self, batch: &[u8]) -> Result<(), CorruptionError> {
        self.apply_with_changes(batch, None)
    }

    /// Like [`apply`](Self::apply), and passes the audit changes of each record to `each`, in order. After an error, the
    /// passed changes are invalid.
    pub fn apply_with_changes(
        &mut self,
        batch: &[u8],
        mut each: Option<ChangeSink<'_>>,
    ) -> Result<(), CorruptionError> {
        let mut from = Reader::new(batch);
        let header = BatchHeader::decode(&mut from)?;
        if header.chain != self.state.table.chain && !mutants::on(Mutant::ChainNotChecked) {
            return Err(CorruptionError { at: 0, problem: "the hash chain is broken: not the next batch" });
        }
        if header.time < self.state.table.time {
            return Err(CorruptionError { at: 0, problem: "grantor time runs backwards" });
        }
        self.state.table.time = header.time;
        self.state.table.wall = header.wall;
        if from.is_empty() {
            return Err(CorruptionError { at: from.position(), problem: "a batch without records" });
        }
        let mut attribution = None;
        while !from.is_empty() {
            let at = from.position();
            let record = Record::decode(&mut from)?;
            match &record {
                Record::AttributedTo(to) => attribution = Some(*to),
                Record::AttributionEnded => attribution = None,
                _ => {}
            }
            if let Some(each) = &mut each {
                self.state.table.audit_changes(&record, attribution.as_ref(), &mut |change| each(&header, change));
            }
            self.state.table.apply(&record).map_err(|problem| CorruptionError { at, problem })?;
        }
        self.state.table.chain = Sha256::digest(batch).into();
        self.state.table.recorded = (header.time, header.wall);
        self.state.table.forget_offers();
        Ok(())
    }

    /// The cluster, if any batch was applied.
    pub fn cluster(&self) -> Option<Cluster> {
        self.state.table.identity.map(|identity| identity.cluster)
    }

    /// Identity and position of the state, if any batch was applied.
    pub fn info(&self) -> Option<JournalInfo> {
        let (time, wall) = self.state.table.recorded;
        self.state.table.identity.map(|identity| JournalInfo {
            cluster: identity.cluster,
            incarnation: identity.incarnation,
            generation: self.state.table.generation,
            counter: self.state.table.counter,
            time,
            wall,
        })
    }

    /// The state for queries on a standby, if any batch was applied. It is read-only, and renewals that are not recorded are
    /// not in it.
    pub fn view(&self) -> Option<&Grantor> {
        self.state.table.identity.map(|_| &self.state)
    }

    /// The same state, with this validity.
    #[must_use]
    pub fn with_validity(mut self, validity: Validity) -> Self {
        self.state.validity = validity;
        self
    }

    /// The digest of the last batch: the head of the audit chain.
    pub fn chain(&self) -> [u8; 32] {
        self.state.table.chain
    }

    /// The highest number issued.
    pub fn counter(&self) -> u64 {
        self.state.table.counter
    }

    /// The whole state as bytes.
    pub fn snapshot(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.state.table.encode(&mut out);
        out
    }

    /// The digest of the whole state (V1).
    pub fn state_hash(&self) -> [u8; 32] {
        Sha256::digest(self.snapshot()).into()
    }

    /// Opens a tenure. The first output is its opening; call [`Grantor::serve`] after that is durable, not before.
    pub fn open(self, now: Now, options: &TenureOptions) -> Result<Grantor, OpenTenureError> {
        self.check_options(now, options)?;
        let mut grantor = self.state;
        let is_new = grantor.table.identity.is_none();
        grantor.table.due.listening = true;
        grantor.table.wall = now.wall;
        grantor.validity = options.validity;
        grantor.stated_max_ttl = options.max_ttl;
        grantor.last_turn = now.instant;
        if is_new {
            let TenureOptions { cluster, incarnation, max_ttl, .. } = *options;
            grantor.record(&Record::Created { cluster, incarnation, max_ttl });
        }
        if let Some(restore) = &options.restore {
            grantor.restore(restore);
        }
        let counter = if mutants::on(Mutant::CounterResets) && !is_new { 0 } else { grantor.counter_at_opening() };
        grantor.record(&Record::Opened { generation: options.generation, counter });
        grantor.table.due.ended.clear();
        grantor.suspect_all_actors();
        Ok(grantor)
    }

    fn check_options(&self, now: Now, options: &TenureOptions) -> Result<(), OpenTenureError> {
        match self.state.table.identity {
            Some(identity) if identity.cluster != options.cluster => {
                return Err(OpenTenureError::WrongCluster { found: identity.cluster });
            }
            None if !(limits::TTL_MIN..=limits::TTL_MAX_EVER).contains(&options.max_ttl) => {
                return Err(OpenTenureError::MaxTtl { requested: options.max_ttl });
            }
            None if options.restore.is_some() => return Err(OpenTenureError::NothingToRestore),
            _ => {}
        }
        if let Some(restore) = &options.restore {
            let known = self.state.table.counter;
            match restore.floor {
                Some(floor) if floor.get() <= known => return Err(OpenTenureError::FloorTooLow { known }),
                None if now.wall < self.state.table.recorded.1 => {
                    return Err(OpenTenureError::ClockBehind { backup: self.state.table.recorded.1 });
                }
                _ => {}
            }
        }
        if self.state.table.counter >= Number::MAX.get() { Err(OpenTenureError::TokensExhausted) } else { Ok(()) }
    }
}

impl Grantor {
    /// A grantor that is not in service yet.
    fn not_serving(table: GrantorTable) -> Self {
        Self {
            table,
            validity: Validity::Session,
            stated_max_ttl: 0,
            serving: None,
            turn: None,
            last_turn: Instant::default(),
            out: Output::default(),
            deadlock_detector: DeadlockDetector::default(),
            priority_drops: VecDeque::new(),
            priority_raises: VecDeque::new(),
            only_endings: false,
            watched: true,
            quarantine_seen: false,
            rollback_evidence: super::RollbackEvidence::default(),
            quarantine_reporters: std::collections::BTreeSet::new(),
            check_counts: Default::default(),
            total_checks: 0,
            idle: Default::default(),
            scratch: Default::default(),
            due: Vec::new(),
            expiring: Default::default(),
            attribution: Default::default(),
        }
    }

    /// Starts service after the opening is durable; grantor time runs from here (L2).
    pub fn serve(&mut self, now: Now) {
        assert!(self.serving.is_none(), "a tenure starts service once");
        assert!(self.out.batch.is_empty(), "the opening must be durable first");
        self.serving = Some((now.instant, self.table.time));
        self.last_turn = now.instant;
        self.settle_priorities(limits::EDGES_PER_STEP);
        self.offer_all();
    }

    fn restore(&mut self, restore: &RestoreSpec) {
        let floor = restore.floor.map_or(0, Number::get).max(self.table.counter);
        let counter = if mutants::on(Mutant::RestoreKeepsCounter) {
            self.table.counter
        } else {
            next_number(floor, self.table.wall).map_or(floor, |next| next.get() - 1)
        };
        let quarantine = self.table.time.plus(self.quarantine_ms());
        let start = self.begin_attribution();
        self.record(&Record::Restored { incarnation: restore.incarnation, counter, quarantine });
        let Some(uid) = restore.uid else { return };
        let origin = RequestOrigin { via: Via::Uid, ..RequestOrigin::LOCAL };
        self.end_attribution(start, Some(&Attribution { principal: &format!("uid:{uid}"), origin }));
    }

    /// The counter of an opening, raised to the wall clock.
    fn counter_at_opening(&self) -> u64 {
        let counter = self.table.counter;
        if mutants::on(Mutant::NumberNotLifted) {
            return counter;
        }
        next_number(counter, self.table.wall).map_or(counter, |next| next.get() - 1).max(counter)
    }

    /// Grantor time of the last turn.
    pub fn time(&self) -> GrantorTime {
        self.table.time
    }

    /// The driver's clock at the last turn.
    pub fn last_turn(&self) -> Instant {
        self.last_turn
    }
}
