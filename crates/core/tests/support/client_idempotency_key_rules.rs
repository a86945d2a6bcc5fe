//! Idempotency keys that clients make, against a grantor: the reply is stored in a session of the key, which only the same identity
//! finds, also after a failover (L11, A6).

use leasehold_core::access::{AccessGrant, Caller, IdentityLimits, Rights, Role};
use leasehold_core::command::{Acquire, Answer, Command, Input, Proof, ProvenTokens, Reply, Request, RequestId};
use leasehold_core::grantor::{Grantor, Output, RecoveredGrantor, TenureOptions, recover};
use leasehold_core::ids::SessionId;
use leasehold_core::lease::Validity;
use leasehold_core::limits::KEY_TTL;
use leasehold_core::name::resource_hash;
use leasehold_core::refusal::{Limit, Refusal, RefusalSubject};
use leasehold_core::secret::SecretDigest;
use leasehold_core::time::{Instant, Now, WallClock};
use leasehold_core::token::{Cluster, Incarnation, Number, Token, TokenScope};

const ANN: &str = "spiffe://example/ann";
const BOB: &str = "spiffe://example/bob";

/// A grantor, its journal and a clock.
struct KeyScene {
    grantor: Grantor,
    batches: Vec<Vec<u8>>,
    ms: u64,
    /// Keys that one identity may have.
    max_keys: u64,
}

fn now(ms: u64) -> Now {
    Now { instant: Instant::from_millis(ms), wall: WallClock::after_era(1_000_000_000 + ms) }
}

fn open(recovered: RecoveredGrantor, generation: u64, ms: u64) -> (Grantor, Vec<u8>) {
    let options = TenureOptions {
        cluster: Cluster(*b"cluster1"),
        incarnation: Incarnation(1),
        generation,
        validity: Validity::Session,
        max_ttl: KEY_TTL,
        restore: None,
    };
    let mut grantor = recovered.open(now(ms), &options).expect("it opens");
    let mut out = Output::default();
    grantor.take_output(&mut out);
    grantor.serve(now(ms));
    (grantor, out.batch)
}

fn key(principal: &str) -> SecretDigest {
    SecretDigest::of(format!("{principal}\0the same key of both").as_bytes())
}

impl KeyScene {
    fn new() -> Self {
        let (grantor, batch) = open(RecoveredGrantor::empty(1), 1, 0);
        Self { grantor, batches: vec![batch], ms: 0, max_keys: u64::MAX }
    }

    fn run(&mut self, principal: &str, request: Request<'_>, command: Command<'_>) -> Answer {
        let limits = IdentityLimits { keys: self.max_keys, ..IdentityLimits::UNLIMITED };
        let grant = AccessGrant { role: Role::Holder, prefix: "jobs".into() };
        let rights = Rights::new(1, vec![grant]).with_limits(limits);
        let request = Request { caller: Caller { principal, rights: &rights }, ..request };
        self.grantor.step(now(self.ms), &Input::Request(request, command));
        self.end_turn().into_iter().find(|reply| reply.tag == 1).expect("an answer").answer
    }

    fn end_turn(&mut self) -> Vec<Reply> {
        let mut out = Output::default();
        self.grantor.take_output(&mut out);
        self.batches.extend((!out.batch.is_empty()).then_some(out.batch));
        out.replies
    }

    /// The session of the key of an identity.
    fn session(&mut self, principal: &str) -> Result<SessionId, String> {
        match self.open_for(principal, Request::tagged(1), "jobs/a") {
            Answer::Session(grant) => Ok(grant.session),
            other => Err(format!("L11: no session of a key: {other:?}")),
        }
    }

    /// Opens or finds the session of the key of an identity, for an acquire.
    fn open_for(&mut self, principal: &str, request: Request<'_>, resource: &str) -> Answer {
        let acquire = Command::Acquire(Acquire::exclusive(resource, "w", 60_000));
        self.run(principal, request, Command::OpenKeySession { key: key(principal), command: Some(&acquire) })
    }

    /// Acquires under the key of an identity, as the server does.
    fn acquire(&mut self, principal: &str, session: SessionId, digest: u64) -> Answer {
        let id = Some(RequestId { session, sequence: 1, lowest: 1, digest });
        let request = Request { id, proof: Proof::of_stream(session), ..Request::tagged(1) };
        self.run(principal, request, Command::Acquire(Acquire::exclusive("jobs/a", "w", 60_000)))
    }

    fn wait(&mut self, ms: u64) {
        let end = self.ms + ms;
        while self.ms < end {
            self.ms = (self.ms + 100).min(end);
            self.grantor.step(now(self.ms), &Input::Tick);
            self.end_turn();
        }
    }

    fn fail_over(&mut self, generation: u64) -> Result<(), String> {
        let snapshot = self.grantor.snapshot();
        let from_snapshot = RecoveredGrantor::from_snapshot(&snapshot, 2).map_err(|error| error.to_string())?;
        let recovered = recover(3, None, self.batches.iter().map(Vec::as_slice)).map_err(|error| error.to_string())?;
        // By turns, so that both ways find the session.
        let recovered = if generation.is_multiple_of(2) { from_snapshot } else { recovered };
        let (grantor, batch) = open(recovered, generation, self.ms);
        self.grantor = grantor;
        self.batches.push(batch);
        Ok(())
    }
}

fn expect<T: PartialEq + std::fmt::Debug>(what: &str, actual: T, expected: T) -> Result<(), String> {
    if actual == expected { Ok(()) } else { Err(format!("L11: {what}: {actual:?} instead of {expected:?}")) }
}

pub fn a_retry_finds_the_reply_after_failovers() -> Result<(), String> {
    let mut scene = KeyScene::new();
    let session = scene.session(ANN)?;
    let Answer::Granted(grant) = scene.acquire(ANN, session, 7) else { return Err("the name is free".into()) };
    for generation in 2..4 {
        expect("the session of the key is found", scene.session(ANN)?, session)?;
        let Answer::Granted(again) = scene.acquire(ANN, session, 7) else { return Err("L11: no stored reply".into()) };
        expect("the reply is the same", (again.lease, again.number), (grant.lease, grant.number))?;
        let conflict = Answer::Refused(Refusal::Conflict(RefusalSubject::Request));
        expect("another body is a conflict", scene.acquire(ANN, session, 8), conflict)?;
        scene.fail_over(generation)?;
    }
    expect("the session of the key is found at last", scene.session(ANN)?, session)
}

pub fn another_identity_does_not_find_it() -> Result<(), String> {
    let mut scene = KeyScene::new();
    let session = scene.session(ANN)?;
    scene.acquire(ANN, session, 7);
    let other = scene.session(BOB)?;
    expect("the same text is another key", other == session, false)?;
    // Even one that knows the digest gets a session of its own.
    let acquire = Command::Acquire(Acquire::exclusive("jobs/a", "w", 60_000));
    let open = Command::OpenKeySession { key: key(ANN), command: Some(&acquire) };
    let found = scene.run(BOB, Request::tagged(1), open);
    let Answer::Session(found) = found else { return Err(format!("A6: {found:?}")) };
    expect("the owner is compared", found.session == session, false)?;
    let absent = Answer::Refused(Refusal::NotFound(RefusalSubject::Session));
    expect("and the session is private", scene.acquire(BOB, session, 7), absent)
}

pub fn a_key_is_forgotten_after_its_time() -> Result<(), String> {
    let mut scene = KeyScene::new();
    let session = scene.session(ANN)?;
    scene.wait(KEY_TTL - 5_000);
    expect("it is known until then, and used", scene.session(ANN)?, session)?;
    scene.wait(KEY_TTL - 5_000);
    expect("its time counts from its last use", scene.session(ANN)?, session)?;
    scene.wait(KEY_TTL + 5_000);
    expect("it is forgotten", scene.session(ANN)? == session, false)
}

pub fn nothing_is_opened_without_a_request() -> Result<(), String> {
    let mut scene = KeyScene::new();
    let extend = || Command::OpenKeySession { key: key(ANN), command: None };
    let absent = Answer::Refused(Refusal::NotFound(RefusalSubject::Session));
    expect("A4: a key without a request", scene.run(ANN, Request::tagged(1), extend()), absent)?;
    let session = scene.session(ANN)?;
    match scene.run(ANN, Request::tagged(1), extend()) {
        Answer::Session(grant) => expect("its session is extended", grant.session, session),
        other => Err(format!("L11: a known key is not extended: {other:?}")),
    }
}

/// A request that presents a sealed token which this journal never issued.
fn showing_a_lost_token(scene: &KeyScene) -> Request<'static> {
    let number = Number::new((now(scene.ms).wall.since_era() + 60_000) << 22).expect("a number");
    let (cluster, incarnation, resource) = (Cluster(*b"cluster1"), Incarnation(1), resource_hash("jobs/a"));
    let token = Token { cluster, incarnation, resource, scope: TokenScope::Slot(0), number };
    let proven = ProvenTokens { observed: true, presented: false };
    Request { observed: Some(token), proven, ..Request::tagged(1) }
}

pub fn a_refused_key_hides_no_rollback() -> Result<(), String> {
    let mut scene = KeyScene { max_keys: 0, ..KeyScene::new() };
    let shown = showing_a_lost_token(&scene);
    let denied = scene.open_for(ANN, shown, "pay/a");
    expect("A4: what a denied request shows does not count", scene.grantor.rollback_proofs(), 0)?;
    expect("A4: it is denied", matches!(denied, Answer::Refused(Refusal::Denied(_))), true)?;
    let shown = showing_a_lost_token(&scene);
    let refused = scene.open_for(ANN, shown, "jobs/a");
    let exhausted = Answer::Refused(Refusal::Exhausted { limit: Limit::IdentityKeys, max: 0, got: 1 });
    expect("no key can be stored", refused, exhausted)?;
    expect("T9: what it shows counts", scene.grantor.rollback_proofs(), 1)?;
    let mut scene = KeyScene::new();
    let shown = showing_a_lost_token(&scene);
    let opened = scene.open_for(ANN, shown, "jobs/a");
    expect("a key is stored", matches!(opened, Answer::Session(_)), true)?;
    expect("T9: what it shows counts with the request", scene.grantor.rollback_proofs(), 0)
}

/// All rules.
pub fn check() -> Result<(), String> {
    nothing_is_opened_without_a_request()?;
    a_refused_key_hides_no_rollback()?;
    a_retry_finds_the_reply_after_failovers()?;
    another_identity_does_not_find_it()?;
    a_key_is_forgotten_after_its_time()
}
