//! Audit changes of a few turns, with the identity that each of them names (A13).

use leasehold_core::access::{Caller, RequestOrigin, Rights, Via};
use leasehold_core::codec::Reader;
use leasehold_core::command::{
    Acquire, AcquireOptions, Answer, Command, Input, LeaseRef, LeaseSelector, OpenSession, Request, Revoke,
};
use leasehold_core::grantor::{AuditChange, Grantor, Output, RecoveredGrantor, RestoreSpec, TenureOptions, recover};
use leasehold_core::ids::SessionId;
use leasehold_core::lease::{EndReason, Validity};
use leasehold_core::record::{BatchHeader, Record};
use leasehold_core::time::{Instant, Now, WallClock};
use leasehold_core::token::{Cluster, Incarnation};

pub const WORKER: &str = "spiffe://example/jobs/worker";
pub const USER: &str = "uid:1000";

/// A grantor and the batches that it wrote.
pub struct AttributedRun {
    grantor: Grantor,
    pub batches: Vec<Vec<u8>>,
}

pub fn now(ms: u64) -> Now {
    Now { instant: Instant::from_millis(ms), wall: WallClock::after_era(61_000_000_000 + ms) }
}

fn options(generation: u64, restore: Option<RestoreSpec>) -> TenureOptions {
    TenureOptions {
        cluster: Cluster(*b"examples"),
        incarnation: Incarnation(9),
        generation,
        validity: Validity::Session,
        max_ttl: 600_000,
        restore,
    }
}

impl AttributedRun {
    pub fn new() -> Self {
        let mut grantor = RecoveredGrantor::empty(1).open(now(0), &options(1, None)).expect("a new cluster opens");
        let mut out = Output::default();
        grantor.take_output(&mut out);
        grantor.serve(now(0));
        Self { grantor, batches: vec![out.batch] }
    }

    /// The same journal, restored as a backup by a process of this user.
    pub fn restored(&self, uid: Option<u32>) -> Self {
        let restore = RestoreSpec { incarnation: Incarnation(10), floor: None, uid };
        let recovered = recover(2, None, self.batches.iter().map(Vec::as_slice)).expect("the journal is valid");
        let mut grantor = recovered.open(now(90_000), &options(2, Some(restore))).expect("the backup opens");
        let mut out = Output::default();
        grantor.take_output(&mut out);
        grantor.serve(now(90_000));
        Self { grantor, batches: [&self.batches[..], &[out.batch]].concat() }
    }

    /// A turn of these requests and a tick; every request succeeds.
    pub fn turn(&mut self, ms: u64, requests: &[(&str, Command<'_>)]) -> Vec<Answer> {
        for (tag, (principal, command)) in requests.iter().enumerate() {
            let caller = Caller { principal, rights: Rights::UNRESTRICTED };
            let request = Request { caller, origin: origin(principal), ..Request::tagged(tag as u64) };
            self.grantor.step(now(ms), &Input::Request(request, command.clone()));
        }
        self.grantor.step(now(ms), &Input::Tick);
        let mut out = Output::default();
        self.grantor.take_output(&mut out);
        if !out.batch.is_empty() {
            self.batches.push(out.batch);
        }
        out.replies.into_iter().map(|reply| reply.answer).collect()
    }

    /// Every change after the opening: kind, resource, identity, how it is known, credential and address.
    pub fn changes(&self) -> Vec<String> {
        let mut recovered = RecoveredGrantor::empty(3);
        let mut changes = Vec::new();
        let mut each = |_: &BatchHeader, change: &AuditChange<'_>| {
            let via = change.via.map_or("", Via::word);
            let from = change.from.map(|from| from.to_string()).unwrap_or_default();
            let all = [change.kind, change.resource, change.by, via, change.credential, &from];
            let proposal = change.proposal.map(|id| id.to_string());
            let all = all.into_iter().chain(proposal.as_deref()).filter(|text| !text.is_empty());
            changes.push(all.collect::<Vec<_>>().join(" "));
        };
        for batch in &self.batches {
            recovered.apply_with_changes(batch, Some(&mut each)).expect("the journal is valid");
        }
        changes
    }

    /// How many records of a batch are attributions.
    pub fn attributions(batch: &[u8]) -> usize {
        let mut from = Reader::new(batch);
        BatchHeader::decode(&mut from).expect("a batch has a header");
        let mut count = 0;
        while !from.is_empty() {
            let record = Record::decode(&mut from).expect("a batch has valid records");
            count += usize::from(matches!(record, Record::AttributedTo(_) | Record::AttributionEnded));
        }
        count
    }
}

fn origin(principal: &str) -> RequestOrigin<'static> {
    match principal {
        WORKER => RequestOrigin {
            via: Via::Certificate,
            credential: "00112233aabbccdd",
            from: Some("10.0.0.7:4711".parse().expect("an address")),
            ..RequestOrigin::LOCAL
        },
        USER => RequestOrigin { via: Via::Uid, ..RequestOrigin::LOCAL },
        _ => RequestOrigin::LOCAL,
    }
}

pub fn open_session() -> Command<'static> {
    Command::OpenSession(OpenSession { holder: "app", ttl_ms: 60_000, secret: [1; 32].into(), waits_only: false })
}

pub fn acquire(resource: &str, ttl_ms: u64) -> Command<'_> {
    Command::Acquire(Acquire::exclusive(resource, "app", ttl_ms))
}

pub fn revoke(resource: &str, grace_ms: u64) -> Command<'_> {
    let selector = LeaseSelector::Resource(resource);
    Command::Revoke(Revoke { selector, reason: EndReason::Operator, comment: "it leaks", grace_ms })
}

/// Every change names who caused it, also if others act in the same turn; what time causes names no one.
pub fn changes_name_their_caller() -> Result<(), String> {
    let mut run = AttributedRun::new();
    let answers = run.turn(20, &[(USER, open_session())]);
    let Some(Answer::Session(opened)) = answers.first() else { return Err(format!("{answers:?}")) };
    let session: SessionId = opened.session;
    let options = AcquireOptions { wait_ms: 60_000, ..AcquireOptions::DEFAULT };
    let waits = Acquire { session: Some(session), options, ttl_ms: None, ..Acquire::exclusive("jobs/a", "", 0) };
    let answers = run.turn(
        40,
        &[
            (WORKER, acquire("jobs/a", 200)),
            (WORKER, acquire("jobs/w", 60_000)),
            (USER, acquire("jobs/u", 60_000)),
            ("local", acquire("jobs/l", 60_000)),
            (WORKER, acquire("jobs/short", 200)),
            (USER, Command::Acquire(waits)),
        ],
    );
    let Some(Answer::Granted(worker)) = answers.get(1) else { return Err(format!("{answers:?}")) };
    // Without a pause that would be credited to the leases.
    for ms in (60..240).step_by(20) {
        run.turn(ms, &[]);
    }
    // One turn: revocations, expiries, and a grant to a waiter.
    run.turn(250, &[(USER, revoke("jobs/u", 0)), (WORKER, revoke("jobs/l", 1_000))]);
    run.turn(270, &[("local", revoke("jobs/w", 1_000))]);
    // The holder releases during the grace period; the other lease ends with it.
    run.turn(290, &[(WORKER, Command::Release(LeaseRef::by_name("jobs/w", worker.number)))]);
    run.turn(1_400, &[]);
    let expected = [
        "created",
        "opened",
        "session_opened uid:1000 uid",
        "granted jobs/a spiffe://example/jobs/worker mtls 00112233aabbccdd 10.0.0.7:4711",
        "granted jobs/w spiffe://example/jobs/worker mtls 00112233aabbccdd 10.0.0.7:4711",
        "granted jobs/u uid:1000 uid",
        "granted jobs/l local local",
        "granted jobs/short spiffe://example/jobs/worker mtls 00112233aabbccdd 10.0.0.7:4711",
        "ended jobs/u uid:1000 uid",
        "revoked jobs/l spiffe://example/jobs/worker mtls 00112233aabbccdd 10.0.0.7:4711",
        "ended jobs/a",
        "ended jobs/short",
        "granted jobs/a uid:1000",
        "revoked jobs/w local local",
        "ended jobs/w spiffe://example/jobs/worker mtls 00112233aabbccdd 10.0.0.7:4711",
        "ended jobs/l",
    ];
    let changes = run.changes();
    if changes == expected { Ok(()) } else { Err(format!("{changes:#?}")) }
}
