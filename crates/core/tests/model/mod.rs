//! Small worlds around the real grantor, searched to the end: every order of events within the bounds that each file states.
//!
//! A grantor is not copied from state to state but made again: from what was on record when it opened, and the turns it
//! took since; every second tenure is recovered from a snapshot, the others from all batches. Two states are one if what is on record, what is only in memory and what the world remembers are the same.

#![allow(dead_code, reason = "each test binary uses its part")]

pub mod overlap;
pub mod renewal;
pub mod target;
pub mod tokens;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use leasehold_core::command::{Answer, Command, Input, Reply, Request, Which as Lease};
use leasehold_core::grantor::{Grantor, Opening, Output, Recovered, Restoring, recover};
use leasehold_core::ids::{LeaseId, SessionId};
use leasehold_core::lease::Rung;
use leasehold_core::time::{Instant, Now, Wall};
use leasehold_core::token::{Cluster, Incarnation};
use sha2::{Digest, Sha256};
use stateright::{Checker, Expectation, HasDiscoveries, Model};

/// The models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// One lease over tenures, zombies, crashes and stalls.
    Renewal,
    /// The numbers over crashes, rollbacks and restores.
    Tokens,
    /// A fenced target and holders that never police themselves.
    Target,
    /// A handoff, with gap and with overlap.
    Overlap,
}

/// How far a model is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bounds {
    /// A few seconds for all models together; enough to find every fault.
    Quick,
    /// About a minute for all.
    Full,
    /// As long as it takes.
    Deep,
}

/// What a search went through, and found nothing wrong with.
#[derive(Debug, Default)]
pub struct Summary {
    /// The worlds by name, with their states.
    pub worlds: Vec<(String, usize)>,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, states) in &self.worlds {
            writeln!(f, "{states:>9} states  {name}")?;
        }
        let states: usize = self.worlds.iter().map(|(_, states)| states).sum();
        write!(f, "{states:>9} states in all")
    }
}

/// Searches all worlds of a model. The error names the broken promise and the events that lead there.
pub fn check(which: Which, bounds: Bounds) -> Result<Summary, String> {
    match which {
        Which::Renewal => renewal::check(bounds),
        Which::Tokens => tokens::check(bounds),
        Which::Target => target::check(bounds),
        Which::Overlap => overlap::check(bounds),
    }
}

impl Summary {
    /// Searches one more world.
    fn search<M>(&mut self, name: &str, world: M) -> Result<(), String>
    where
        M: Model + Send + Sync + 'static,
        M::State: Hash + fmt::Debug + Send + Sync + Clone + PartialEq + 'static,
        M::Action: fmt::Debug + Send + Sync + Clone + PartialEq + 'static,
    {
        KNOWN.with_borrow_mut(BTreeMap::clear);
        let checker = world.checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
        let mut found = checker.discoveries();
        for property in checker.model().properties() {
            match (&property.expectation, found.remove(property.name)) {
                (Expectation::Always, Some(path)) => {
                    let events = path.into_actions();
                    return Err(format!("{name}: broken: {}: {events:?}", property.name));
                }
                (Expectation::Sometimes, None) => {
                    let states = checker.unique_state_count();
                    return Err(format!("{name}: never seen in {states} states: {}", property.name));
                }
                _ => {}
            }
        }
        self.worlds.push((name.to_owned(), checker.unique_state_count()));
        Ok(())
    }
}

const SEED: u64 = 7;
/// The cluster of all models.
pub const CLUSTER: Cluster = Cluster(*b"modelled");
/// The longest ttl of all models, and so the length of a quarantine.
pub const MAX_TTL: u64 = 300;

/// A moment: the driver's clock, and the wall's milliseconds since the era of token numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Moment {
    /// The driver's clock.
    pub at: u32,
    /// The wall.
    pub wall: u32,
}

impl Moment {
    /// A moment at which both clocks agree.
    pub const fn new(at: u32) -> Self {
        Self { at, wall: at + 1_000 }
    }

    /// As a driver reads it.
    pub const fn now(self) -> Now {
        Now { instant: Instant::from_millis(self.at as u64), wall: Wall::after_era(self.wall as u64) }
    }
}

/// What is asked in a turn.
pub type Asked = (Request, Command<'static>);

/// A batch on its way to the journal.
#[derive(Clone, Debug)]
pub struct Batch {
    bytes: Arc<[u8]>,
    after: u64,
}

impl Hash for Batch {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.after.hash(state);
    }
}

impl PartialEq for Batch {
    fn eq(&self, other: &Self) -> bool {
        self.after == other.after
    }
}

/// What is on record: the batches, and the snapshot that they fold to.
#[derive(Clone, Debug)]
pub struct Journal {
    batches: Vec<Arc<[u8]>>,
    snapshot: Arc<[u8]>,
    digest: u64,
    /// The way that led here.
    way: u64,
}

impl Hash for Journal {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.digest.hash(state);
    }
}

impl PartialEq for Journal {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Journal {
    /// Nothing is on record.
    pub fn empty() -> Self {
        Self { batches: Vec::new(), snapshot: Recovered::empty(SEED).snapshot().into(), digest: 0, way: 0 }
    }

    /// The highest number on record.
    pub fn counter(&self) -> u64 {
        self.recover(true).expect("it was folded before").counter()
    }

    /// The batch is durable. What it folds to must be what its grantor saw (V1).
    pub fn land(&self, batch: &Batch) -> Result<Self, String> {
        let way = hashed(&(self.way, &batch.bytes));
        let folded = known(way, || {
            let mut folded = self.recover(true)?;
            folded.apply(&batch.bytes).map_err(|wrong| wrong.to_string())?;
            let snapshot = folded.snapshot();
            let digest = digest(&snapshot, &folded.chain());
            if digest != batch.after {
                return Err("V1: a replayed batch leads to another state".to_owned());
            }
            let batches = self.batches.iter().chain([&batch.bytes]).cloned().collect();
            Ok(Known::Landed(Self { batches, snapshot: snapshot.into(), digest, way }))
        });
        match &*folded? {
            Known::Landed(journal) => Ok(journal.clone()),
            Known::Turned(_) => unreachable!("a way leads to one thing"),
        }
    }

    /// The state on record, from the snapshot or from all batches: one must be as good as the other.
    fn recover(&self, from_snapshot: bool) -> Result<Recovered, String> {
        let recovered = if from_snapshot {
            Recovered::from_snapshot(&self.snapshot, SEED)
        } else {
            recover(SEED, None, self.batches.iter().map(|batch| &batch[..]))
        };
        recovered.map_err(|wrong| wrong.to_string())
    }
}

/// A grantor in memory.
#[derive(Clone, Debug)]
pub struct Live {
    base: Journal,
    opening: Opening,
    opened: Moment,
    served: Option<Moment>,
    turns: Vec<Arc<(Moment, Vec<Asked>)>>,
    chain: [u8; 32],
    /// When leases and sessions were last renewed in memory.
    heard: Vec<(Renewed, u32)>,
    last_batch: u32,
    seen: Seen,
    digest: u64,
    /// The way that led here.
    way: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Renewed {
    Lease(LeaseId),
    Session(SessionId),
}

impl Hash for Live {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.digest.hash(state);
        self.seen.time.hash(state);
        self.served.is_some().hash(state);
        self.heard.hash(state);
        self.last_batch.hash(state);
        self.last_turn().hash(state);
        self.turns.is_empty().hash(state);
        let waits = |asked: &&Asked| matches!(&asked.1, Command::Acquire(acquire) if acquire.terms.wait_ms > 0);
        for (request, _) in self.turns.iter().flat_map(|turn| turn.1.iter()).filter(waits) {
            request.tag.hash(state);
        }
    }
}

impl PartialEq for Live {
    fn eq(&self, other: &Self) -> bool {
        hashed(self) == hashed(other)
    }
}

/// What a turn led to.
#[derive(Clone, Debug)]
pub struct Turned {
    /// The grantor after it.
    pub live: Live,
    /// What it wants on record, if anything.
    pub batch: Option<Batch>,
    /// What it may tell then.
    pub replies: Vec<Reply>,
}

impl Turned {
    /// The answer to a request.
    pub fn answer(&self, tag: u64) -> Option<&Answer> {
        self.replies.iter().rev().find(|reply| reply.to == tag).map(|reply| &reply.answer)
    }
}

/// A grantor as its views show it.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Grantor time.
    pub time: u64,
    /// The highest number given out.
    pub counter: u64,
    /// Which life of the cluster.
    pub incarnation: u32,
    /// Every lease, with how long it lives.
    pub leases: Vec<(LeaseId, u32)>,
}

impl Seen {
    fn of(grantor: &Grantor) -> Self {
        let status = grantor.status();
        let (resources, _) = grantor.list("", 0, usize::MAX, u32::MAX);
        let leases = resources.iter().flat_map(|resource| &resource.leases);
        Self {
            time: grantor.time().0,
            counter: status.counter,
            incarnation: status.incarnation.0,
            leases: leases.map(|lease| (lease.lease, lease.remaining_ms as u32)).collect(),
        }
    }

    /// How long a lease lives, if it is not over.
    pub fn remaining(&self, lease: LeaseId) -> Option<u32> {
        self.leases.iter().find(|(id, _)| *id == lease).map(|(_, remaining)| *remaining)
    }
}

impl Live {
    /// Opens a tenure on what is on record; its opening is to be made durable.
    pub fn open(base: &Journal, opened: Moment, generation: u64, restore: Option<Restoring>) -> Result<Turned, String> {
        let opening = Opening {
            cluster: CLUSTER,
            incarnation: Incarnation(1),
            generation,
            rung: Rung::Session,
            max_ttl: MAX_TTL,
            restore,
        };
        let way = hashed(&(base.way, opened, format!("{opening:?}")));
        let live = Self {
            base: base.clone(),
            opening,
            opened,
            served: None,
            turns: Vec::new(),
            chain: [0; 32],
            heard: Vec::new(),
            last_batch: opened.at,
            seen: Seen::default(),
            digest: 0,
            way,
        };
        turned(way, || {
            let (grantor, out) = live.again()?;
            Ok(live.clone().after(&grantor, out, opened))
        })
    }

    /// The opening is durable.
    pub fn serve(&self, at: Moment) -> Self {
        Self { served: Some(at), way: hashed(&(self.way, at)), ..self.clone() }
    }

    /// What can be seen of it.
    pub fn seen(&self) -> &Seen {
        &self.seen
    }

    /// The driver's clock at the last turn.
    pub fn last_turn(&self) -> u32 {
        let turn = self.turns.last().map(|turn| turn.0);
        turn.or(self.served).unwrap_or(self.opened).at
    }

    /// One turn.
    pub fn turn(&self, at: Moment, asked: Vec<Asked>) -> Result<Turned, String> {
        let way = hashed(&(self.way, at, format!("{asked:?}")));
        turned(way, || {
            let (mut grantor, mut out) = self.again()?;
            let mut live = Self { way, ..self.clone() };
            let turn = (at, asked);
            taken(&mut grantor, &turn, &mut out);
            live.remember(&grantor, &turn, &out);
            live.turns.push(Arc::new(turn));
            Ok(live.after(&grantor, out, at))
        })
    }

    /// Makes the grantor again.
    fn again(&self) -> Result<(Grantor, Output), String> {
        let recovered = self.base.recover(self.opening.generation % 2 == 1)?;
        let mut grantor = recovered.open(self.opened.now(), &self.opening).map_err(|wrong| wrong.to_string())?;
        let mut out = Output::default();
        grantor.take_output(&mut out);
        if let Some(at) = self.served {
            grantor.serve(at.now());
        }
        for turn in &self.turns {
            taken(&mut grantor, turn, &mut out);
        }
        Ok((grantor, out))
    }

    fn after(mut self, grantor: &Grantor, out: Output, at: Moment) -> Turned {
        if !out.batch.is_empty() {
            self.chain = Sha256::digest(&out.batch).into();
            self.last_batch = at.at;
        }
        self.seen = Seen::of(grantor);
        self.digest = digest(&grantor.snapshot(), &self.chain);
        let batch = (!out.batch.is_empty()).then(|| Batch { bytes: out.batch.into(), after: self.digest });
        Turned { live: self, batch, replies: out.replies }
    }

    fn remember(&mut self, grantor: &Grantor, (at, asked): &(Moment, Vec<Asked>), out: &Output) {
        for (request, command) in asked {
            let answer = out.replies.iter().find(|reply| reply.to == request.tag).map(|reply| &reply.answer);
            let renewed = match (command, answer) {
                (Command::Renew(renew), Some(Answer::Current(_))) => match renew.held.lease {
                    Lease::Id(id) => Renewed::Lease(id),
                    Lease::Resource(_) => panic!("models renew by id"),
                },
                (Command::RenewSession { session, .. }, Some(Answer::Session(_))) => Renewed::Session(*session),
                _ => continue,
            };
            self.heard.retain(|(what, _)| *what != renewed);
            self.heard.push((renewed, at.at));
        }
        self.heard.retain(|(what, _)| match what {
            Renewed::Lease(id) => grantor.lease(*id).is_some(),
            Renewed::Session(id) => grantor.session(*id).is_some(),
        });
        self.heard.sort_unstable();
    }
}

fn taken(grantor: &mut Grantor, (at, asked): &(Moment, Vec<Asked>), out: &mut Output) {
    let now = at.now();
    for (request, command) in asked {
        grantor.step(now, &Input::Asked(*request, command.clone()));
    }
    grantor.step(now, &Input::Tick);
    grantor.take_output(out);
}

/// The digest of a state, whatever way led to it: the audit chain tells the way, and is left out.
fn digest(snapshot: &[u8], chain: &[u8; 32]) -> u64 {
    let at = snapshot.windows(32).position(|bytes| bytes == chain).expect("a snapshot tells the head of the chain");
    hashed(&(&snapshot[..at], &snapshot[at + 32..]))
}

fn hashed(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// What was worked out before, by the way that led there: much happens in a world that its grantor does not notice.
#[allow(clippy::large_enum_variant, reason = "a cache of many turns and few landings; a box would cost each of them")]
enum Known {
    Turned(Turned),
    Landed(Journal),
}

const KNOWN_MOST: usize = 50_000;

thread_local! {
    static KNOWN: RefCell<BTreeMap<u64, Arc<Known>>> = const { RefCell::new(BTreeMap::new()) };
}

fn turned(way: u64, work: impl FnOnce() -> Result<Turned, String>) -> Result<Turned, String> {
    match &*known(way, || work().map(Known::Turned))? {
        Known::Turned(turned) => Ok(turned.clone()),
        Known::Landed(_) => unreachable!("a way leads to one thing"),
    }
}

/// A grantor that panics has broken a promise of its own, and a search goes on to tell which way led there.
fn known(way: u64, work: impl FnOnce() -> Result<Known, String>) -> Result<Arc<Known>, String> {
    if let Some(known) = KNOWN.with_borrow(|known| known.get(&way).cloned()) {
        return Ok(known);
    }
    let fresh = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        Err(text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("the core panicked").to_owned())
    })?;
    let fresh = Arc::new(fresh);
    KNOWN.with_borrow_mut(|known| {
        if known.len() >= KNOWN_MOST {
            known.clear();
        }
        known.insert(way, fresh.clone());
    });
    Ok(fresh)
}
