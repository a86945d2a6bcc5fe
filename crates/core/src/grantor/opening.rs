//! How a grantor comes to serve: recover the state from what is on record, open a tenure, and serve when that is durable.

use std::collections::VecDeque;
use std::fmt;

use sha2::{Digest, Sha256};

use super::cycles::Cycles;
use super::table::Table;
use super::{Change, Grantor, Output};
use crate::codec::{Malformed, Reader};
use crate::lease::Rung;
use crate::limits;
use crate::mutants::{self, Mutant};
use crate::record::{Header, Record};
use crate::time::{Instant, Millis, Now, Wall};
use crate::token::{Cluster, Incarnation, Number, lift};

/// A state folded from records, not serving. A standby keeps one and applies what the leader writes.
pub struct Recovered {
    /// It serves only once a tenure is opened.
    state: Grantor,
}

/// What a new tenure is opened with.
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    /// Which cluster this journal must belong to; a new journal becomes its.
    pub cluster: Cluster,
    /// The incarnation of a new cluster; an existing one keeps its own.
    pub incarnation: Incarnation,
    /// The journal's generation of this writer.
    pub generation: u64,
    /// What leases stand on with this journal.
    pub rung: Rung,
    /// The longest ttl of a new cluster; an existing one keeps its own.
    pub max_ttl: u64,
    /// The state comes from a backup: begin a new incarnation.
    pub restore: Option<Restoring>,
}

/// Who is told what the records of a batch change.
pub type Accountant<'a> = &'a mut dyn FnMut(&Header, &Change<'_>);

/// A restore from a backup (T5).
#[derive(Clone, Copy, Debug)]
pub struct Restoring {
    /// The new incarnation, drawn at random by the caller.
    pub incarnation: Incarnation,
    /// Every number given out from now on is above this: an operator's word, or what a survey of the targets found.
    pub floor: Option<Number>,
}

/// What a state says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct About {
    /// The cluster.
    pub cluster: Cluster,
    /// Its life.
    pub incarnation: Incarnation,
    /// The generation of the last tenure.
    pub generation: u64,
    /// The highest number given out.
    pub counter: u64,
    /// Grantor time of the last batch.
    pub time: Millis,
    /// The wall clock of the last batch.
    pub wall: Wall,
}

/// Records or a snapshot that cannot be what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt {
    /// Where in the batch or snapshot.
    pub at: usize,
    /// What is wrong.
    pub why: &'static str,
}

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}; restore from a backup, or look at the journal", self.why, self.at)
    }
}

impl std::error::Error for Corrupt {}

impl From<Malformed> for Corrupt {
    fn from(wrong: Malformed) -> Self {
        Self { at: wrong.at, why: wrong.why }
    }
}

/// Why a tenure was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotOpened {
    /// The journal belongs to another cluster.
    WrongCluster {
        /// The one it belongs to.
        found: Cluster,
    },
    /// The longest ttl lies outside of what is possible.
    MaxTtl {
        /// What was asked for.
        asked: u64,
    },
    /// There is nothing to restore.
    NothingToRestore,
    /// The clock is behind the backup's and no floor is given: numbers could come again.
    ClockBehind {
        /// The wall clock of the backup's last batch.
        backup: Wall,
    },
    /// The floor does not lie above what the backup itself has given out.
    FloorTooLow {
        /// The highest known number.
        known: u64,
    },
    /// No number is left.
    TokensExhausted,
}

impl fmt::Display for NotOpened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WrongCluster { found } => write!(f, "the journal belongs to cluster {found}; point to your own"),
            Self::MaxTtl { asked } => write!(f, "max_ttl: from 100 ms to 7 days, got {asked} ms"),
            Self::NothingToRestore => f.write_str("the backup holds no cluster; start a new one instead"),
            Self::ClockBehind { backup } => {
                write!(
                    f,
                    "the clock is behind the backup's ({} ms since 1970); set it, or give --token-floor",
                    backup.0
                )
            }
            Self::FloorTooLow { known } => write!(f, "the token floor must be above {known}"),
            Self::TokensExhausted => f.write_str("no token number is left; start a new cluster"),
        }
    }
}

impl std::error::Error for NotOpened {}

/// Folds a snapshot and the batches after it into a state. `hash_seed` guards the tables against chosen names.
pub fn recover<'a>(
    hash_seed: u64,
    snapshot: Option<&[u8]>,
    batches: impl IntoIterator<Item = &'a [u8]>,
) -> Result<Recovered, Corrupt> {
    let mut recovered = match snapshot {
        Some(bytes) => Recovered::from_snapshot(bytes, hash_seed)?,
        None => Recovered::empty(hash_seed),
    };
    for batch in batches {
        recovered.apply(batch)?;
    }
    Ok(recovered)
}

impl Recovered {
    /// Nothing is on record.
    pub fn empty(hash_seed: u64) -> Self {
        Self { state: Grantor::over(Table::new(hash_seed)) }
    }

    /// The state of a snapshot.
    pub fn from_snapshot(bytes: &[u8], hash_seed: u64) -> Result<Self, Corrupt> {
        Ok(Self { state: Grantor::over(Table::decode(bytes, hash_seed)?) })
    }

    /// Applies the next batch, which must follow the one before it in the audit chain (A1).
    pub fn apply(&mut self, batch: &[u8]) -> Result<(), Corrupt> {
        self.apply_and_tell(batch, None)
    }

    /// The same, and tells what each of its records changes, in order. If the batch is refused, what was told is not so.
    pub fn apply_and_tell(&mut self, batch: &[u8], mut each: Option<Accountant<'_>>) -> Result<(), Corrupt> {
        let mut from = Reader::new(batch);
        let header = Header::decode(&mut from)?;
        if header.chain != self.state.table.chain && !mutants::on(Mutant::ChainNotChecked) {
            return Err(Corrupt { at: 0, why: "the hash chain is broken: not the batch that follows" });
        }
        if header.time < self.state.table.time {
            return Err(Corrupt { at: 0, why: "grantor time runs backwards" });
        }
        self.state.table.time = header.time;
        self.state.table.wall = header.wall;
        if from.is_empty() {
            return Err(Corrupt { at: from.position(), why: "a batch without records" });
        }
        while !from.is_empty() {
            let at = from.position();
            let record = Record::decode(&mut from)?;
            if let Some(each) = &mut each {
                self.state.table.account(&record, &mut |change| each(&header, change));
            }
            self.state.table.apply(&record).map_err(|why| Corrupt { at, why })?;
        }
        self.state.table.chain = Sha256::digest(batch).into();
        self.state.table.recorded = (header.time, header.wall);
        self.state.table.forget_offers();
        Ok(())
    }

    /// Which cluster this is, if any batch was applied.
    pub fn cluster(&self) -> Option<Cluster> {
        self.state.table.identity.map(|identity| identity.cluster)
    }

    /// What the state says about itself, if any batch was applied.
    pub fn about(&self) -> Option<About> {
        let (time, wall) = self.state.table.recorded;
        self.state.table.identity.map(|identity| About {
            cluster: identity.cluster,
            incarnation: identity.incarnation,
            generation: self.state.table.generation,
            counter: self.state.table.counter,
            time,
            wall,
        })
    }

    /// The state as a standby shows it, with what leases stand on; none if nothing was applied. It decides nothing: only
    /// looks are possible, and renewals that left no record are not in it.
    pub fn seen(&self) -> Option<&Grantor> {
        self.state.table.identity.map(|_| &self.state)
    }

    /// The same state over a journal of this rung.
    #[must_use]
    pub fn over(mut self, rung: Rung) -> Self {
        self.state.rung = rung;
        self
    }

    /// The digest of the last batch: the head of the audit chain.
    pub fn chain(&self) -> [u8; 32] {
        self.state.table.chain
    }

    /// The highest number given out.
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

    /// Opens a tenure. The first output is its opening; serve with [`Grantor::serve`] when that is durable, not before.
    pub fn open(self, now: Now, opening: &Opening) -> Result<Grantor, NotOpened> {
        self.may_open(now, opening)?;
        let mut grantor = self.state;
        let is_new = grantor.table.identity.is_none();
        grantor.table.due.listening = true;
        grantor.table.wall = now.wall;
        grantor.rung = opening.rung;
        grantor.last_turn = now.instant;
        if is_new {
            let Opening { cluster, incarnation, max_ttl, .. } = *opening;
            grantor.record(&Record::Created { cluster, incarnation, max_ttl });
        }
        if let Some(restore) = &opening.restore {
            grantor.restore(restore);
        }
        let counter = if mutants::on(Mutant::CounterResets) && !is_new { 0 } else { grantor.opening_counter() };
        grantor.record(&Record::Opened { generation: opening.generation, counter });
        grantor.table.due.ended.clear();
        grantor.suspect_everybody();
        Ok(grantor)
    }

    fn may_open(&self, now: Now, opening: &Opening) -> Result<(), NotOpened> {
        match self.state.table.identity {
            Some(identity) if identity.cluster != opening.cluster => {
                return Err(NotOpened::WrongCluster { found: identity.cluster });
            }
            None if !(limits::TTL_MIN..=limits::TTL_MAX_EVER).contains(&opening.max_ttl) => {
                return Err(NotOpened::MaxTtl { asked: opening.max_ttl });
            }
            None if opening.restore.is_some() => return Err(NotOpened::NothingToRestore),
            _ => {}
        }
        if let Some(restore) = &opening.restore {
            let known = self.state.table.counter;
            match restore.floor {
                Some(floor) if floor.get() <= known => return Err(NotOpened::FloorTooLow { known }),
                None if now.wall < self.state.table.recorded.1 => {
                    return Err(NotOpened::ClockBehind { backup: self.state.table.recorded.1 });
                }
                _ => {}
            }
        }
        if self.state.table.counter >= Number::MAX.get() { Err(NotOpened::TokensExhausted) } else { Ok(()) }
    }
}

impl Grantor {
    /// A grantor that serves nobody yet.
    fn over(table: Table) -> Self {
        Self {
            table,
            rung: Rung::Session,
            serving: None,
            turn: None,
            last_turn: Instant::default(),
            out: Output::default(),
            cycles: Cycles::default(),
            falls: VecDeque::new(),
            raises: VecDeque::new(),
            only_endings: false,
            watched: true,
            quarantine_seen: false,
            checked: Default::default(),
            idle: Default::default(),
            scratch: Default::default(),
            due: Vec::new(),
            expiring: Default::default(),
        }
    }

    /// The opening is durable: grantor time runs from here (L2).
    pub fn serve(&mut self, now: Now) {
        assert!(self.serving.is_none(), "a tenure begins to serve once");
        assert!(self.out.batch.is_empty(), "the opening is taken and made durable first");
        self.serving = Some((now.instant, self.table.time));
        self.last_turn = now.instant;
        self.settle_priorities(limits::EDGES_PER_STEP);
        self.offer_everything();
    }

    fn restore(&mut self, restore: &Restoring) {
        let floor = restore.floor.map_or(0, Number::get).max(self.table.counter);
        let counter = if mutants::on(Mutant::RestoreKeepsCounter) {
            self.table.counter
        } else {
            lift(floor, self.table.wall).map_or(floor, |next| next.get() - 1)
        };
        let quarantine = self.table.time.plus(self.table.max_ttl());
        self.record(&Record::Restored { incarnation: restore.incarnation, counter, quarantine });
    }

    /// The counter is lifted by the clock at every opening, on record.
    fn opening_counter(&self) -> u64 {
        let counter = self.table.counter;
        if mutants::on(Mutant::NumberNotLifted) {
            return counter;
        }
        lift(counter, self.table.wall).map_or(counter, |next| next.get() - 1).max(counter)
    }

    /// Grantor time now, as of the last turn.
    pub fn time(&self) -> Millis {
        self.table.time
    }

    /// The driver's clock at the last turn.
    pub fn last_turn(&self) -> Instant {
        self.last_turn
    }
}
