//! A grantor driven by a benchmark: turns without a journal, names of 28 bytes, a manual clock.

#![allow(dead_code, reason = "each bench uses its own part")]

use leasehold_core::access::{AccessGrant, Caller, Rights, Role};
use leasehold_core::command::{
    Acquire, AcquireOptions, Answer, Command, Input, LeaseRef, OpenSession, Proof, Renew, Request,
};
use leasehold_core::grantor::{Grantor, Output, RecoveredGrantor, TenureOptions};
use leasehold_core::ids::{LeaseId, SessionId};
use leasehold_core::lease::{Access, Validity};
use leasehold_core::time::{Instant, Now, WallClock};
use leasehold_core::token::{Cluster, Incarnation, Number};
use leasehold_testkit::rng::SplitMix64;

pub const MILLION: u32 = 1_000_000;
/// The ttl of leases and sessions, unless a bench measures their end.
pub const TTL: u64 = 600_000;
/// Commands of one turn.
pub const TURN: usize = 256;

/// A grantor with its driver.
pub struct BenchGrantor {
    pub grantor: Grantor,
    pub out: Output,
    ms: u64,
    ttl: u64,
    /// The rights of the identity that sends the requests; without them access is not restricted.
    rights: Option<Rights>,
    /// The session whose stream carries the requests.
    stream: Option<SessionId>,
    /// Whether leases are acquired in sessions.
    uses_sessions: bool,
}

/// The identity of a bench with access rules.
const PRINCIPAL: &str = "spiffe://example/eu-west/orders/worker";

/// A lease as its holder refers to it.
#[derive(Clone, Copy)]
pub struct Lease {
    pub id: LeaseId,
    pub number: Number,
    /// The session that carries it.
    stream: Option<SessionId>,
}

impl BenchGrantor {
    pub fn new() -> Self {
        Self::opened(RecoveredGrantor::empty(7))
    }

    /// The next tenure of a recovered state, serving.
    pub fn opened(recovered: RecoveredGrantor) -> Self {
        let mut grantor = recovered.open(at(0), &opening(1)).expect("a new cluster opens");
        let mut out = Output::default();
        grantor.take_output(&mut out);
        grantor.serve(at(0));
        // As in a server without watchers.
        grantor.set_watched(false);
        Self { grantor, out, ms: 0, ttl: TTL, rights: None, stream: None, uses_sessions: false }
    }

    /// A grantor with `count` leases, and these leases.
    pub fn holding(count: u32) -> (Self, Vec<Lease>) {
        Self::holding_for(count, TTL)
    }

    /// The same over the streams of sessions.
    pub fn holding_over_streams(count: u32) -> (Self, Vec<Lease>) {
        let mut bench = Self::new();
        bench.uses_sessions = true;
        bench.hold(count)
    }

    /// The same under access rules with 16 grants, of which one covers the leases, over the streams of sessions.
    pub fn holding_as_identity(count: u32) -> (Self, Vec<Lease>) {
        let mut bench = Self::new();
        let others = (0..15).map(|n| format!("orders/elsewhere-{n}")).chain(["orders/eu-west".to_owned()]);
        let grants = others.map(|prefix| AccessGrant { role: Role::Holder, prefix: prefix.into() });
        bench.rights = Some(Rights::new(1, grants.collect()));
        bench.uses_sessions = true;
        bench.hold(count)
    }

    /// Changes the access rules of all identities, so that every lease is checked again.
    pub fn change_access(&mut self) {
        let rights = self.rights.take().expect("the bench has access rules");
        self.rights = Some(Rights::new(rights.epoch() + 1, rights.grants().to_vec()));
    }

    /// The same with another ttl.
    pub fn holding_for(count: u32, ttl: u64) -> (Self, Vec<Lease>) {
        let mut bench = Self::new();
        bench.ttl = ttl;
        bench.hold(count)
    }

    fn hold(mut self, count: u32) -> (Self, Vec<Lease>) {
        let bench = &mut self;
        let names = names(0..count);
        let mut leases = Vec::with_capacity(names.len());
        for (turn, names) in names.chunks(TURN).enumerate() {
            // A session carries a limited number of leases.
            if bench.uses_sessions && (turn * TURN).is_multiple_of(65_536) {
                bench.stream = Some(bench.open_session("worker"));
            }
            bench.acquire_turn(names, &mut leases);
        }
        (self, leases)
    }

    /// Each actor holds one resource and waits for the resource of the next one. Only the wait that closes the cycle is missing.
    pub fn open_cycle(length: u32) -> (Self, LastWait) {
        let mut bench = Self::new();
        let last = bench.chain(length, false);
        (bench, last)
    }

    /// The same in this grantor, with the waits started from the first to the last or backwards.
    pub fn chain(&mut self, length: u32, backwards: bool) -> LastWait {
        let sessions: Vec<SessionId> = (0..100).map(|n| self.open_session(&format!("session-{n}"))).collect();
        let actors: Vec<String> = (0..length.div_ceil(100)).map(|n| format!("actor-{n}")).collect();
        let names = names(0..length);
        let actor_of = |n: usize| (sessions[n % 100], actors[n / 100].as_str());
        let length = length as usize;
        for (n, name) in names.iter().enumerate() {
            self.acquire_in(0, actor_of(n).0, actor_of(n).1, name, Access::Exclusive);
            if n % TURN == 0 {
                self.turn();
            }
        }
        self.turn();
        for n in 0..length - 1 {
            let n = if backwards { length - 2 - n } else { n };
            self.acquire_in(0, actor_of(n).0, actor_of(n).1, &names[n + 1], Access::Exclusive);
            if n % TURN == 0 {
                self.turn();
            }
        }
        self.finish_work();
        let (session, actor) = actor_of(length - 1);
        LastWait { session, actor: actor.to_owned(), resource: names[0].clone() }
    }

    pub fn has_more_to_do(&self) -> bool {
        self.grantor.next_deadline() == Some(self.grantor.last_turn())
    }

    /// Runs turns until no work is left.
    pub fn finish_work(&mut self) {
        while self.has_more_to_do() {
            self.turn();
        }
    }

    /// Runs idle turns up to the deadline of leases granted at zero, so that the time does not count as a stall.
    pub fn advance_to_deadline(&mut self, ttl: u64) {
        while self.ms + 50 < ttl {
            self.ms += 50;
            self.turn();
        }
        self.ms = ttl;
    }

    pub fn advance(&mut self, ms: u64) {
        self.ms += ms;
    }

    pub fn request(&mut self, tag: u64, command: Command<'_>) {
        let caller = match &self.rights {
            None => Caller::LOCAL,
            Some(rights) => Caller { principal: PRINCIPAL, rights },
        };
        let proof = self.stream.map_or(Proof::NONE, Proof::of_stream);
        self.grantor.step(at(self.ms), &Input::Request(Request { caller, proof, ..Request::tagged(tag) }, command));
    }

    pub fn tick(&mut self) {
        self.grantor.step(at(self.ms), &Input::Tick);
    }

    pub fn take(&mut self) {
        self.grantor.take_output(&mut self.out);
    }

    pub fn turn(&mut self) {
        self.tick();
        self.take();
    }

    /// Acquires all resources in one turn and appends the leases.
    pub fn acquire_turn(&mut self, names: &[String], leases: &mut Vec<Lease>) {
        for (i, name) in names.iter().enumerate() {
            let session = self.stream;
            let acquire = Acquire { session, ..Acquire::exclusive(name, holder_of(i), self.ttl) };
            self.request(i as u64, Command::Acquire(acquire));
        }
        self.turn();
        let stream = self.stream;
        leases.extend(self.out.replies.iter().map(|reply| Lease { stream, ..granted(&reply.answer) }));
    }

    pub fn release_turn(&mut self, leases: &[Lease]) {
        for lease in leases {
            self.request(0, Command::Release(LeaseRef::by_id(lease.id, lease.number)));
        }
        self.turn();
    }

    pub fn renew(&mut self, lease: &Lease) {
        let held = LeaseRef { session: lease.stream, ..LeaseRef::by_id(lease.id, lease.number) };
        self.stream = lease.stream;
        self.request(0, Command::Renew(Renew { lease: held, ttl_ms: None, progress: None }));
    }

    /// Panics unless the last turn renewed each of `count` leases.
    pub fn assert_renewed(&self, count: usize) {
        let renewed = self.out.replies.iter().filter(|reply| matches!(reply.answer, Answer::Current(_)));
        assert_eq!(renewed.count(), count, "every renewal succeeds");
    }

    pub fn open_session(&mut self, holder: &str) -> SessionId {
        self.open_session_with(OpenSession { holder, ttl_ms: TTL, secret: [7; 32].into(), waits_only: false })
    }

    pub fn open_session_with(&mut self, open: OpenSession<'_>) -> SessionId {
        self.request(0, Command::OpenSession(open));
        self.turn();
        match self.out.replies[..] {
            [ref reply] => match reply.answer {
                Answer::Session(grant) => grant.session,
                ref other => panic!("a session, not {other:?}"),
            },
            ref others => panic!("one reply, not {others:?}"),
        }
    }

    /// Acquires a resource in a session, and waits if it is held.
    pub fn acquire_in(&mut self, tag: u64, session: SessionId, holder: &str, resource: &str, access: Access) {
        let options = AcquireOptions { wait_ms: TTL, ..AcquireOptions::DEFAULT };
        let session = Some(session);
        let acquire = Acquire { resource, holder, session, access, slots: None, ttl_ms: None, options };
        self.request(tag, Command::Acquire(acquire));
    }
}

/// The wait that closes a cycle.
pub struct LastWait {
    session: SessionId,
    actor: String,
    resource: String,
}

impl LastWait {
    pub fn start(&self, bench: &mut BenchGrantor) {
        bench.acquire_in(0, self.session, &self.actor, &self.resource, Access::Exclusive);
    }
}

pub fn granted(answer: &Answer) -> Lease {
    match answer {
        Answer::Granted(grant) => Lease { id: grant.lease, number: grant.number, stream: None },
        other => panic!("a grant, not {other:?}"),
    }
}

pub fn at(ms: u64) -> Now {
    Now { instant: Instant::from_millis(ms), wall: WallClock::after_era(1_000 + ms) }
}

pub fn opening(generation: u64) -> TenureOptions {
    TenureOptions {
        cluster: Cluster(*b"measured"),
        incarnation: Incarnation(1),
        generation,
        validity: Validity::Session,
        max_ttl: TTL,
        restore: None,
    }
}

/// Names of 28 bytes.
pub fn names(numbers: std::ops::Range<u32>) -> Vec<String> {
    numbers.map(|number| format!("orders/eu-west/shard-{number:07}")).collect()
}

/// One of four holders.
fn holder_of(i: usize) -> &'static str {
    ["worker-1", "worker-2", "worker-3", "worker-4"][i % 4]
}

/// A shuffle that is the same in every run.
pub fn shuffled<T>(mut items: Vec<T>) -> Vec<T> {
    SplitMix64::new(1).shuffle(&mut items);
    items
}
