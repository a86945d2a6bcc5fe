//! Runs the core and the spec with the same input, on a journal that crashes can truncate.

use std::collections::BTreeMap;

use leasehold_core::codec::Reader;
use leasehold_core::command::{Answer, Command, HeldDigest, Input, Request, RequestId};
use leasehold_core::grantor::{Grantor, Output, RecoveredGrantor, RestoreSpec, TenureOptions};
use leasehold_core::ids::{LeaseId, SessionId};
use leasehold_core::lease::Validity;
use leasehold_core::record::{BatchHeader, Record};
use leasehold_core::time::{Instant, Now, WallClock};
use leasehold_core::token::Number;

use super::charters;
use super::identity;
use super::model::{Name, Spec};
use super::random_actions::{Action, RunProfile};
use super::request_gen;

/// Maximum number of turns that a grantor needs to finish the work that one turn left over.
const MAX_SETTLE_TURNS: usize = 100;
/// Maximum ttl of the cluster.
const MAX_TTL: u64 = 3_000;

pub struct Runner {
    pub core: Grantor,
    pub standby: RecoveredGrantor,
    pub spec: Spec,
    pub profile: RunProfile,
    /// Durable batches, each with the spec after it.
    pub journal: Vec<(Vec<u8>, Spec)>,
    pub snapshot: Option<(usize, Vec<u8>)>,
    pub generation: u64,
    pub clock: u64,
    pub wall: u64,
    pub pending: Vec<(Request<'static>, Command<'static>)>,
    tags: u64,
    /// What the clients know from answers.
    pub grants: Vec<KnownGrant>,
    pub sessions: Vec<(SessionId, [u8; 32])>,
    pub sent: Vec<(RequestId, Command<'static>)>,
    opening: BTreeMap<u64, [u8; 32]>,
    acquiring: BTreeMap<u64, Vec<Name>>,
    /// The highest durable token number, and the lower bound of every later one.
    pub highest: u64,
    pub coverage: BTreeMap<&'static str, u64>,
    /// Trace for people; `None` if it is not needed.
    pub trace: Option<Vec<String>>,
}

#[derive(Clone, Copy, Debug)]
pub struct KnownGrant {
    pub lease: LeaseId,
    pub number: Number,
    pub resource: Name,
    pub session: Option<SessionId>,
}

impl Runner {
    pub fn new(profile: RunProfile, trace: bool) -> Result<Self, String> {
        let (clock, wall) = (1_000, 50_000_000);
        let now = at(clock, wall);
        let mut core = RecoveredGrantor::empty(7).open(now, &opening(1, None)).map_err(|e| e.to_string())?;
        let mut out = Output::default();
        core.take_output(&mut out);
        let mut standby = RecoveredGrantor::empty(99);
        standby.apply(&out.batch).map_err(|e| e.to_string())?;
        let mut spec = Spec::new(MAX_TTL);
        spec.open(wall, None);
        spec.serve(clock);
        core.serve(now);
        let mut runner = Self {
            core,
            standby,
            journal: vec![(out.batch, spec.clone())],
            spec,
            profile,
            snapshot: None,
            generation: 1,
            clock,
            wall,
            pending: Vec::new(),
            tags: 0,
            grants: Vec::new(),
            sessions: Vec::new(),
            sent: Vec::new(),
            opening: BTreeMap::new(),
            acquiring: BTreeMap::new(),
            highest: 0,
            coverage: BTreeMap::new(),
            trace: trace.then(Vec::new),
        };
        runner.set_charters()?;
        Ok(runner)
    }

    fn set_charters(&mut self) -> Result<(), String> {
        let now = at(self.clock, self.wall);
        for prefix in charters::PREFIXES {
            let charter = Box::new(charters::of(prefix).expect("a prefix with a charter"));
            let set = Command::SetCharter { prefix, charter, comment: "agreed" };
            self.core.step(now, &Input::Request(Request::tagged(0), set));
        }
        self.core.step(now, &Input::Tick);
        let mut out = Output::default();
        self.core.take_output(&mut out);
        if out.replies.iter().any(|reply| reply.answer != Answer::Done) {
            return Err(format!("a charter was refused: {:?}", out.replies));
        }
        self.spec.begin_turn(self.clock, self.wall);
        self.append(out.batch)
    }

    pub fn action(&mut self, action: Action) -> Result<(), String> {
        match action {
            Action::Request(seed) => {
                if let Some((request, command)) = request_gen::generate(self, seed) {
                    self.send(request, command);
                }
                Ok(())
            }
            Action::RenewSessions => {
                for (session, _) in self.sessions.clone() {
                    if !self.spec.sessions.get(session.slot as usize).is_none_or(|session| session.ended) {
                        self.send(Request::default(), Command::RenewSession { session, held: None });
                    }
                }
                Ok(())
            }
            Action::RenewLeases => {
                for grant in self.grants.clone() {
                    let held = leasehold_core::command::LeaseRef::by_id(grant.lease, grant.number);
                    if self.spec.leases.get(grant.lease.slot as usize).is_some_and(|lease| lease.end.is_none()) {
                        let renew = leasehold_core::command::Renew { lease: held, ttl_ms: None, progress: None };
                        self.send(Request::default(), Command::Renew(renew));
                    }
                }
                Ok(())
            }
            Action::Turn(ms) => {
                self.advance(ms);
                self.turn(true)?;
                self.settle()
            }
            Action::Serve(ms) => {
                let end = self.clock + ms;
                while self.clock < end {
                    self.advance(90.min(end - self.clock));
                    self.turn(true)?;
                    self.settle()?;
                }
                Ok(())
            }
            Action::Crash { durable, unserved, outage } => self.crash(durable, unserved, outage),
            Action::Snapshot => self.take_snapshot(),
            Action::RollBack { batches, outage } => self.roll_back(batches, outage),
            Action::Restore { batches, outage, floor } => self.restore(batches, outage, floor),
        }
    }

    pub fn advance(&mut self, ms: u64) {
        self.clock += ms;
        self.wall += ms;
    }

    pub fn count(&mut self, what: &'static str) {
        *self.coverage.entry(what).or_default() += 1;
    }

    pub fn log(&mut self, text: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(text());
        }
    }

    fn send(&mut self, mut request: Request<'static>, command: Command<'static>) {
        self.tags += 1;
        request.tag = self.tags;
        if let Some(id) = request.id {
            if self.sent.iter().any(|(other, _)| (other.session, other.sequence) == (id.session, id.sequence)) {
                self.count("a retry");
                let has_key = |(known, secret): &(SessionId, [u8; 32])| {
                    *known == id.session && request_gen::KEYS.iter().any(|key| *secret == [*key; 32])
                };
                if id.sequence == 1 && self.sessions.iter().any(has_key) {
                    self.count("a retry under a key");
                }
            } else {
                self.sent.push((id, command.clone()));
            }
        }
        match &command {
            Command::OpenSession(open) => {
                self.opening.insert(request.tag, open.secret.bytes());
            }
            Command::OpenKeySession { key, .. } => {
                self.opening.insert(request.tag, key.bytes());
            }
            Command::Acquire(acquire) => {
                self.acquiring.insert(request.tag, vec![acquire.resource]);
            }
            Command::AcquireAll(all) => {
                self.acquiring.insert(request.tag, all.resources.iter().map(|(name, _)| *name).collect());
            }
            _ => {}
        }
        self.log(|| format!("    #{} {}{}", request.tag, brief(&command), with_id(&request)));
        self.pending.push((request, command));
    }

    /// Runs one turn of both. If `durable`, the batch becomes durable and the clients receive the answers.
    pub fn turn(&mut self, durable: bool) -> Result<Vec<u8>, String> {
        let now = at(self.clock, self.wall);
        self.spec.begin_turn(self.clock, self.wall);
        let (time, late) = (self.spec.now, self.spec.late);
        self.log(|| format!("turn at {time}{}", if late { ", late" } else { "" }));
        for (request, command) in std::mem::take(&mut self.pending) {
            self.core.step(now, &Input::Request(request, command.clone()));
            let over: Vec<usize> = self.spec.live().into_iter().filter(|i| self.is_past(*i)).collect();
            self.spec.handle(&request, &command);
            if late && over.iter().any(|i| self.spec.leases[*i].end.is_none() && !self.is_past(*i)) {
                self.count("a late renewal was accepted");
            }
        }
        if late && self.spec.live().into_iter().any(|i| self.is_past(i)) {
            self.count("a lease ended in the turn that was late for it");
        }
        self.core.step(now, &Input::Tick);
        let mut out = Output::default();
        self.core.take_output(&mut out);
        if self.trace.is_some() {
            for reply in &out.replies {
                self.log(|| format!("    -> #{} {}", reply.tag, brief(&reply.answer)));
            }
        }
        let records = read(&out.batch)?;
        self.count_turn(&records);
        self.spec.assign_wait_slots(&records)?;
        self.spec.tick(&records)?;
        super::compare::replies(&out, &self.spec)?;
        super::compare::notices(&out, &self.spec)?;
        if self.is_idle()? {
            super::compare::views(&self.core, &self.spec)?;
        }
        self.check_numbers(&records, durable)?;
        if durable {
            for reply in &out.replies {
                self.receive_answer(reply.tag, &reply.answer);
            }
            self.append(out.batch)?;
            return Ok(Vec::new());
        }
        Ok(out.batch)
    }

    fn is_past(&self, i: usize) -> bool {
        let lease = &self.spec.leases[i];
        !lease.follows_session && self.spec.lease_deadline(lease).0 <= self.spec.now
    }

    /// Makes a batch durable. A standby that applies it has the same state (V1).
    pub fn append(&mut self, batch: Vec<u8>) -> Result<(), String> {
        if batch.is_empty() {
            return Ok(());
        }
        self.standby.apply(&batch).map_err(|e| format!("a batch does not replay: {e}"))?;
        if self.standby.state_hash() != self.core.state_hash() {
            return Err("the replayed state differs from the served state (V1)".to_owned());
        }
        self.journal.push((batch, self.spec.clone()));
        Ok(())
    }

    /// Runs turns until the left-over work is done, within the limit, and checks that nothing remains.
    fn settle(&mut self) -> Result<(), String> {
        for _ in 0..MAX_SETTLE_TURNS {
            if self.is_idle()? {
                return self.spec.check_settled();
            }
            self.turn(true)?;
        }
        Err("the grantor does not finish its work".to_owned())
    }

    /// Whether the last turn left no work over.
    fn is_idle(&self) -> Result<bool, String> {
        let next = self.core.next_deadline().ok_or("a serving grantor has a next deadline")?;
        Ok(next > self.core.last_turn())
    }

    /// T1 to T3: every token number is issued once and is above all earlier ones.
    pub fn check_numbers(&mut self, records: &[Record<'_>], durable: bool) -> Result<(), String> {
        let mut highest = self.highest;
        for record in records {
            let new = match record {
                Record::Granted(granted) => granted.number.get(),
                Record::Rotated { number, .. } => number.get(),
                _ => continue,
            };
            if new <= highest {
                return Err(format!("number {new} is not above {highest} (T1)"));
            }
            highest = new;
        }
        if durable {
            self.highest = highest;
        }
        Ok(())
    }

    /// A client receives an answer.
    fn receive_answer(&mut self, tag: u64, answer: &Answer) {
        match answer {
            Answer::Session(grant) => {
                if let Some(secret) = self.opening.remove(&tag) {
                    if self.sessions.iter().any(|(known, _)| *known == grant.session) {
                        self.count("a key found its session");
                    } else {
                        self.sessions.push((grant.session, secret));
                    }
                }
            }
            Answer::Granted(grant) => self.receive_grants(tag, &[*grant]),
            Answer::GrantedAll(grants) => self.receive_grants(tag, grants),
            Answer::Current(current) => {
                // A rotated token replaces the old one.
                let found = self.spec.leases.iter().position(|lease| lease.number == current.number.get());
                if let Some(i) = found
                    && let Some(grant) = self.grants.iter_mut().find(|grant| grant.lease.slot as usize == i)
                {
                    grant.number = current.number;
                }
            }
            _ => {}
        }
    }

    fn receive_grants(&mut self, tag: u64, grants: &[leasehold_core::command::Grant]) {
        let resources = self.acquiring.get(&tag).cloned().unwrap_or_default();
        for (grant, resource) in grants.iter().zip(resources) {
            let session = self.spec.leases[grant.lease.slot as usize].actor.session;
            let session = session.map(|slot| self.spec.session_id(slot));
            self.grants.retain(|known| known.lease != grant.lease);
            self.grants.push(KnownGrant { lease: grant.lease, number: grant.number, resource, session });
        }
    }

    /// The durable batches, and the state after the last one.
    pub fn journal(&self) -> (Vec<Vec<u8>>, Vec<u8>) {
        (self.journal.iter().map(|(batch, _)| batch.clone()).collect(), self.standby.snapshot())
    }

    pub fn known_secret(&self, session: SessionId) -> [u8; 32] {
        self.sessions.iter().find(|(id, _)| *id == session).map_or([0; 32], |(_, secret)| *secret)
    }

    /// The leases of a session as known to a client that received every answer.
    pub fn known_by(&self, session: SessionId) -> HeldDigest {
        let own_leases = self.spec.leases_in(session.slot);
        let digest = own_leases.iter().fold(0, |digest, i| digest ^ self.spec.leases[*i].number);
        HeldDigest { count: own_leases.len() as u32, digest }
    }

    pub fn next_sequence(&self, session: SessionId) -> u64 {
        let used = self.sent.iter().filter(|(id, _)| id.session == session).map(|(id, _)| id.sequence);
        1 + used.max().unwrap_or(0)
    }
}

pub fn at(clock: u64, wall: u64) -> Now {
    Now { instant: Instant::from_millis(clock), wall: WallClock::after_era(wall) }
}

pub fn opening(generation: u64, restore: Option<RestoreSpec>) -> TenureOptions {
    TenureOptions {
        cluster: identity::CLUSTER,
        incarnation: identity::incarnation(1),
        generation,
        validity: Validity::Session,
        max_ttl: MAX_TTL,
        restore,
    }
}

/// The records of a batch.
pub fn read(batch: &[u8]) -> Result<Vec<Record<'_>>, String> {
    if batch.is_empty() {
        return Ok(Vec::new());
    }
    let mut from = Reader::new(batch);
    BatchHeader::decode(&mut from).map_err(|e| e.to_string())?;
    let mut records = Vec::new();
    while !from.is_empty() {
        records.push(Record::decode(&mut from).map_err(|e| e.to_string())?);
    }
    Ok(records)
}

fn with_id(request: &Request<'_>) -> String {
    let id = request.id.map(|id| format!(" as request {} of {}", id.sequence, id.session));
    let presented = request.observed.map(|token| format!(" presenting {}", token.number));
    id.unwrap_or_default() + &presented.unwrap_or_default()
}

/// Debug output without default values.
fn brief(value: &impl std::fmt::Debug) -> String {
    let text = format!("{value:?}");
    let plain = [
        "secret: SecretDigest(..), ",
        "SessionId ",
        "LeaseId ",
        ", reuse: 0",
        "slots: None, ",
        "reentrant: false, ",
        "max_hold_ms: None, ",
        "progress_ms: None, ",
        "metadata: []",
        "validity: Session, ",
        "drain_ms: 10000, ",
        "overlaps_ms: None, ",
        "depth: 1 ",
        "Some",
    ];
    plain.iter().fold(text, |text, part| text.replace(part, ""))
}
