//! Exhaustive model checking of the real grantor: every order of events, within the bounds that each file states.
//!
//! A grantor is not copied from state to state but rebuilt from the journal at its opening and its turns since then.
//! Every second tenure is recovered from a snapshot, the others from all batches. Two states are equal if the journal,
//! the memory of the grantor and the state of the model are equal.

#![allow(dead_code, reason = "each test binary uses its part")]

pub mod handoff;
pub mod renewal;
pub mod target;
pub mod tokens;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use leasehold_core::command::{Answer, Command, Input, LeaseSelector as Lease, Reply, Request};
use leasehold_core::grantor::{Grantor, Output, QueryBudget, RecoveredGrantor, RestoreSpec, TenureOptions, recover};
use leasehold_core::ids::{LeaseId, SessionId};
use leasehold_core::lease::Validity;
use leasehold_core::time::{Instant, Now, WallClock};
use leasehold_core::token::{Cluster, Incarnation};
use sha2::{Digest, Sha256};
use stateright::{Checker, Expectation, HasDiscoveries, Model};

/// The models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelKind {
    /// One lease over tenures, zombies, crashes and stalls.
    Renewal,
    /// Token numbers over crashes, rollbacks and restores.
    Tokens,
    /// A fenced target, with holders that never stop on their own.
    Target,
    /// A handoff, with gap and with overlap.
    Overlap,
}

/// How deep a model is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SearchDepth {
    /// A few seconds for all models together; enough to find every fault.
    Quick,
    /// About a minute for all.
    Full,
    /// As long as it takes.
    Deep,
}

/// The result of a search without violations.
#[derive(Debug, Default)]
pub struct Summary {
    /// Configurations by name, with their number of states.
    pub configurations: Vec<(String, usize)>,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, states) in &self.configurations {
            writeln!(f, "{states:>9} states  {name}")?;
        }
        let states: usize = self.configurations.iter().map(|(_, states)| states).sum();
        write!(f, "{states:>9} states in total")
    }
}

/// Searches all configurations of a model. The error names the broken promise and the events that lead to it.
pub fn check(which: ModelKind, bounds: SearchDepth) -> Result<Summary, String> {
    match which {
        ModelKind::Renewal => renewal::check(bounds),
        ModelKind::Tokens => tokens::check(bounds),
        ModelKind::Target => target::check(bounds),
        ModelKind::Overlap => handoff::check(bounds),
    }
}

impl Summary {
    /// Searches one more configuration.
    fn search<M>(&mut self, name: &str, model: M) -> Result<(), String>
    where
        M: Model + Send + Sync + 'static,
        M::State: Hash + fmt::Debug + Send + Sync + Clone + PartialEq + 'static,
        M::Action: fmt::Debug + Send + Sync + Clone + PartialEq + 'static,
    {
        CACHE.with_borrow_mut(BTreeMap::clear);
        let checker = model.checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
        let mut found = checker.discoveries();
        for property in checker.model().properties() {
            match (&property.expectation, found.remove(property.name)) {
                (Expectation::Always, Some(path)) => {
                    let events = path.into_actions();
                    return Err(format!("{name}: broken: {}: {events:?}", property.name));
                }
                (Expectation::Sometimes, None) => {
                    let states = checker.unique_state_count();
                    return Err(format!("{name}: not reached in {states} states: {}", property.name));
                }
                _ => {}
            }
        }
        self.configurations.push((name.to_owned(), checker.unique_state_count()));
        Ok(())
    }
}

const SEED: u64 = 7;
/// The cluster of all models.
pub const CLUSTER: Cluster = Cluster(*b"modelled");
/// Maximum ttl of all models, and so the length of a quarantine.
pub const MAX_TTL: u64 = 300;

/// A point in time on both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Moment {
    /// Driver clock, in milliseconds.
    pub at: u32,
    /// Wall clock, in milliseconds since the epoch of token numbers.
    pub wall: u32,
}

impl Moment {
    /// A moment at which both clocks agree.
    pub const fn new(at: u32) -> Self {
        Self { at, wall: at + 1_000 }
    }

    /// As a driver reads the clocks.
    pub const fn now(self) -> Now {
        Now { instant: Instant::from_millis(self.at as u64), wall: WallClock::after_era(self.wall as u64) }
    }
}

/// A request of a turn.
pub type TurnRequest = (Request<'static>, Command<'static>);

/// A batch that is not durable yet.
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

/// The journal: its batches, and the snapshot of the state after them.
#[derive(Clone, Debug)]
pub struct Journal {
    batches: Vec<Arc<[u8]>>,
    snapshot: Arc<[u8]>,
    digest: u64,
    /// Hash of everything that led to this state.
    history: u64,
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
    /// An empty journal.
    pub fn empty() -> Self {
        Self { batches: Vec::new(), snapshot: RecoveredGrantor::empty(SEED).snapshot().into(), digest: 0, history: 0 }
    }

    /// The highest recorded token number.
    pub fn counter(&self) -> u64 {
        self.recover(true).expect("it was recovered before").counter()
    }

    /// Makes a batch durable. Applying it must give the state that its grantor had (V1).
    pub fn append(&self, batch: &Batch) -> Result<Self, String> {
        let history = hash_of(&(self.history, &batch.bytes));
        let recovered = cached(history, || {
            let mut recovered = self.recover(true)?;
            recovered.apply(&batch.bytes).map_err(|wrong| wrong.to_string())?;
            let snapshot = recovered.snapshot();
            let digest = digest(&snapshot, &recovered.chain());
            if digest != batch.after {
                return Err("V1: a replayed batch leads to another state".to_owned());
            }
            let batches = self.batches.iter().chain([&batch.bytes]).cloned().collect();
            Ok(CachedWork::Appended(Self { batches, snapshot: snapshot.into(), digest, history }))
        });
        match &*recovered? {
            CachedWork::Appended(journal) => Ok(journal.clone()),
            CachedWork::TurnResult(_) => unreachable!("a history has one kind of result"),
        }
    }

    /// Recovers the state, from the snapshot or from all batches; both must agree.
    fn recover(&self, from_snapshot: bool) -> Result<RecoveredGrantor, String> {
        let recovered = if from_snapshot {
            RecoveredGrantor::from_snapshot(&self.snapshot, SEED)
        } else {
            recover(SEED, None, self.batches.iter().map(|batch| &batch[..]))
        };
        recovered.map_err(|wrong| wrong.to_string())
    }
}

/// A grantor in memory.
#[derive(Clone, Debug)]
pub struct LiveGrantor {
    base: Journal,
    opening: TenureOptions,
    opened: Moment,
    served: Option<Moment>,
    turns: Vec<Arc<(Moment, Vec<TurnRequest>)>>,
    chain: [u8; 32],
    /// Renewals that are only in memory.
    renewed: Vec<(RenewedItem, u32)>,
    last_batch: u32,
    view: GrantorView,
    digest: u64,
    /// Hash of everything that led to this state.
    history: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum RenewedItem {
    Lease(LeaseId),
    Session(SessionId),
}

impl Hash for LiveGrantor {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.digest.hash(state);
        self.view.time.hash(state);
        self.served.is_some().hash(state);
        self.renewed.hash(state);
        self.last_batch.hash(state);
        self.last_turn().hash(state);
        self.turns.is_empty().hash(state);
        let waits =
            |requests: &&TurnRequest| matches!(&requests.1, Command::Acquire(acquire) if acquire.options.wait_ms > 0);
        for (request, _) in self.turns.iter().flat_map(|turn| turn.1.iter()).filter(waits) {
            request.tag.hash(state);
        }
    }
}

impl PartialEq for LiveGrantor {
    fn eq(&self, other: &Self) -> bool {
        hash_of(self) == hash_of(other)
    }
}

/// The result of a turn.
#[derive(Clone, Debug)]
pub struct TurnResult {
    /// The grantor after the turn.
    pub live: LiveGrantor,
    /// The batch to append, if any.
    pub batch: Option<Batch>,
    /// The replies that depend on it.
    pub replies: Vec<Reply>,
}

impl TurnResult {
    /// The answer to the request with this tag.
    pub fn answer(&self, tag: u64) -> Option<&Answer> {
        self.replies.iter().rev().find(|reply| reply.tag == tag).map(|reply| &reply.answer)
    }
}

/// A view of a grantor.
#[derive(Clone, Debug, Default)]
pub struct GrantorView {
    /// Grantor time.
    pub time: u64,
    /// The highest issued token number.
    pub counter: u64,
    /// Incarnation of the cluster.
    pub incarnation: u32,
    /// Whether a quarantine after a rollback runs.
    pub rolled_back: bool,
    /// Every lease with its remaining lifetime.
    pub leases: Vec<(LeaseId, u32)>,
}

impl GrantorView {
    fn of(grantor: &Grantor) -> Self {
        let status = grantor.status();
        let (resources, _) = grantor.list("", 0, usize::MAX, usize::MAX, &mut QueryBudget::unlimited());
        let leases = resources.iter().flat_map(|resource| &resource.leases);
        Self {
            time: grantor.time().0,
            counter: status.counter,
            rolled_back: status.quarantine.is_some_and(|(_, rolled_back)| rolled_back),
            incarnation: status.incarnation.0,
            leases: leases.map(|lease| (lease.lease, lease.remaining_ms as u32)).collect(),
        }
    }

    /// Remaining lifetime of a lease; `None` if it has ended.
    pub fn remaining(&self, lease: LeaseId) -> Option<u32> {
        self.leases.iter().find(|(id, _)| *id == lease).map(|(_, remaining)| *remaining)
    }
}

impl LiveGrantor {
    /// Opens a tenure from the journal. Its opening batch must become durable.
    pub fn open(
        base: &Journal,
        opened: Moment,
        generation: u64,
        restore: Option<RestoreSpec>,
    ) -> Result<TurnResult, String> {
        let opening = TenureOptions {
            cluster: CLUSTER,
            incarnation: Incarnation(1),
            generation,
            validity: Validity::Session,
            max_ttl: MAX_TTL,
            restore,
        };
        let history = hash_of(&(base.history, opened, format!("{opening:?}")));
        let live = Self {
            base: base.clone(),
            opening,
            opened,
            served: None,
            turns: Vec::new(),
            chain: [0; 32],
            renewed: Vec::new(),
            last_batch: opened.at,
            view: GrantorView::default(),
            digest: 0,
            history,
        };
        cached_turn(history, || {
            let (grantor, out) = live.rebuild()?;
            Ok(live.clone().finish_turn(&grantor, out, opened))
        })
    }

    /// The opening batch is durable.
    pub fn serve(&self, at: Moment) -> Self {
        Self { served: Some(at), history: hash_of(&(self.history, at)), ..self.clone() }
    }

    /// Its state after the last turn.
    pub fn view(&self) -> &GrantorView {
        &self.view
    }

    /// Driver clock at the last turn.
    pub fn last_turn(&self) -> u32 {
        let turn = self.turns.last().map(|turn| turn.0);
        turn.or(self.served).unwrap_or(self.opened).at
    }

    /// Runs one turn.
    pub fn turn(&self, at: Moment, requests: Vec<TurnRequest>) -> Result<TurnResult, String> {
        let history = hash_of(&(self.history, at, format!("{requests:?}")));
        cached_turn(history, || {
            let (mut grantor, mut out) = self.rebuild()?;
            let mut live = Self { history, ..self.clone() };
            let turn = (at, requests);
            run_turn(&mut grantor, &turn, &mut out);
            live.track_renewals(&grantor, &turn, &out);
            live.turns.push(Arc::new(turn));
            Ok(live.finish_turn(&grantor, out, at))
        })
    }

    /// Rebuilds the grantor.
    fn rebuild(&self) -> Result<(Grantor, Output), String> {
        let recovered = self.base.recover(self.opening.generation % 2 == 1)?;
        let mut grantor = recovered.open(self.opened.now(), &self.opening).map_err(|wrong| wrong.to_string())?;
        let mut out = Output::default();
        grantor.take_output(&mut out);
        if let Some(at) = self.served {
            grantor.serve(at.now());
        }
        for turn in &self.turns {
            run_turn(&mut grantor, turn, &mut out);
        }
        Ok((grantor, out))
    }

    fn finish_turn(mut self, grantor: &Grantor, out: Output, at: Moment) -> TurnResult {
        if !out.batch.is_empty() {
            self.chain = Sha256::digest(&out.batch).into();
            self.last_batch = at.at;
        }
        self.view = GrantorView::of(grantor);
        self.digest = digest(&grantor.snapshot(), &self.chain);
        let batch = (!out.batch.is_empty()).then(|| Batch { bytes: out.batch.into(), after: self.digest });
        TurnResult { live: self, batch, replies: out.replies }
    }

    fn track_renewals(&mut self, grantor: &Grantor, (at, requests): &(Moment, Vec<TurnRequest>), out: &Output) {
        for (request, command) in requests {
            let answer = out.replies.iter().find(|reply| reply.tag == request.tag).map(|reply| &reply.answer);
            let renewed = match (command, answer) {
                (Command::Renew(renew), Some(Answer::Current(_))) => match renew.lease.selector {
                    Lease::Id(id) => RenewedItem::Lease(id),
                    Lease::Resource(_) => panic!("models renew by id"),
                },
                (Command::RenewSession { session, .. }, Some(Answer::Session(_))) => RenewedItem::Session(*session),
                _ => continue,
            };
            self.renewed.retain(|(what, _)| *what != renewed);
            self.renewed.push((renewed, at.at));
        }
        self.renewed.retain(|(what, _)| match what {
            RenewedItem::Lease(id) => grantor.lease(*id).is_some(),
            RenewedItem::Session(id) => grantor.session(*id).is_some(),
        });
        self.renewed.sort_unstable();
    }
}

fn run_turn(grantor: &mut Grantor, (at, requests): &(Moment, Vec<TurnRequest>), out: &mut Output) {
    let now = at.now();
    for (request, command) in requests {
        grantor.step(now, &Input::Request(*request, command.clone()));
    }
    grantor.step(now, &Input::Tick);
    grantor.take_output(out);
}

/// Digest of a state without its history: the hash chain of the journal is left out.
fn digest(snapshot: &[u8], chain: &[u8; 32]) -> u64 {
    let at = snapshot.windows(32).position(|bytes| bytes == chain).expect("a snapshot contains the head of the chain");
    hash_of(&(&snapshot[..at], &snapshot[at + 32..]))
}

fn hash_of(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Cache of grantors by history, because many events of a model do not affect the grantor.
#[allow(clippy::large_enum_variant, reason = "most entries are turns, so a box would cost more")]
enum CachedWork {
    TurnResult(TurnResult),
    Appended(Journal),
}

const MAX_CACHED: usize = 50_000;

thread_local! {
    static CACHE: RefCell<BTreeMap<u64, Arc<CachedWork>>> = const { RefCell::new(BTreeMap::new()) };
}

fn cached_turn(history: u64, work: impl FnOnce() -> Result<TurnResult, String>) -> Result<TurnResult, String> {
    match &*cached(history, || work().map(CachedWork::TurnResult))? {
        CachedWork::TurnResult(turn) => Ok(turn.clone()),
        CachedWork::Appended(_) => unreachable!("a history has one kind of result"),
    }
}

/// Turns a panic of the grantor into an error, so that the search can report the events that led to it.
fn cached(history: u64, work: impl FnOnce() -> Result<CachedWork, String>) -> Result<Arc<CachedWork>, String> {
    if let Some(found) = CACHE.with_borrow(|cache| cache.get(&history).cloned()) {
        return Ok(found);
    }
    let fresh = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        Err(text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("the core panicked").to_owned())
    })?;
    let fresh = Arc::new(fresh);
    CACHE.with_borrow_mut(|cache| {
        if cache.len() >= MAX_CACHED {
            cache.clear();
        }
        cache.insert(history, fresh.clone());
    });
    Ok(fresh)
}
