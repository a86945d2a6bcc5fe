//! The trace that a request belongs to is recorded with what it causes, and is part of the holds that ended.

use leasehold_core::access::RequestOrigin;
use leasehold_core::command::{
    Acquire, AcquireAll, AcquireOptions, Answer, Command, Grant, Handoff, Input, LeaseRef, LeaseSelector, OpenSession,
    Request, Revoke,
};
use leasehold_core::grantor::{AuditChange, EndedHold, Grantor, Output, RecoveredGrantor, TenureOptions, recover};
use leasehold_core::ids::SessionId;
use leasehold_core::lease::{Access, EndReason, Validity};
use leasehold_core::record::BatchHeader;
use leasehold_core::time::{Instant, Now, WallClock};
use leasehold_core::token::{Cluster, Incarnation};
use leasehold_core::trace_context::TraceContext;

/// A grantor with the batches that it wrote, and the holds that ended.
struct TracedRun {
    grantor: Grantor,
    batches: Vec<Vec<u8>>,
    ended: Vec<EndedHold>,
    ms: u64,
}

/// Wall-clock time of a turn. During an outage it continues, and grantor time does not.
fn now(ms: u64) -> Now {
    Now { instant: Instant::from_millis(ms), wall: WallClock::after_era(61_000_000_000 + ms) }
}

fn trace(id: u8) -> TraceContext {
    TraceContext::new([id; 16], [id; 8], 1).expect("ids that are not zero")
}

impl TracedRun {
    fn open(batches: Vec<Vec<u8>>, ms: u64, collects: bool) -> Self {
        let opening = TenureOptions {
            cluster: Cluster(*b"examples"),
            incarnation: Incarnation(9),
            generation: batches.len() as u64 + 1,
            validity: Validity::Session,
            max_ttl: 600_000,
            restore: None,
        };
        let recovered = recover(2, None, batches.iter().map(Vec::as_slice)).expect("the journal is valid");
        let mut grantor = recovered.open(now(ms), &opening).expect("a tenure opens");
        grantor.set_holds_collected(collects);
        let mut out = Output::default();
        grantor.take_output(&mut out);
        grantor.serve(now(ms));
        Self { grantor, batches: [&batches[..], &[out.batch]].concat(), ended: Vec::new(), ms }
    }

    fn new() -> Self {
        Self::open(Vec::new(), 0, true)
    }

    /// A turn with one request, 20 ms after the last one.
    fn step(&mut self, trace: Option<TraceContext>, command: Command<'_>) -> Answer {
        let origin = RequestOrigin { trace, ..RequestOrigin::LOCAL };
        let request = Request { origin, ..Request::tagged(1) };
        self.turn(20, Some(Input::Request(request, command))).expect("the request is answered")
    }

    fn turn(&mut self, after_ms: u64, input: Option<Input<'_>>) -> Option<Answer> {
        self.ms += after_ms;
        input.iter().for_each(|input| self.grantor.step(now(self.ms), input));
        self.grantor.step(now(self.ms), &Input::Tick);
        let mut out = Output::default();
        self.grantor.take_output(&mut out);
        if !out.batch.is_empty() {
            self.batches.push(out.batch);
        }
        self.ended.append(&mut out.ended_holds);
        out.replies.into_iter().next().map(|reply| reply.answer)
    }

    /// Lets this time pass in turns, so that none of it is credited as a stall.
    fn pass(&mut self, ms: u64) {
        (0..ms / 20).for_each(|_| drop(self.turn(20, None)));
    }

    fn acquire(&mut self, trace: Option<TraceContext>, resource: &str, ttl_ms: u64) -> Grant {
        match self.step(trace, Command::Acquire(Acquire::exclusive(resource, "app", ttl_ms))) {
            Answer::Granted(grant) => grant,
            other => panic!("{other:?}"),
        }
    }

    fn session(&mut self, trace: Option<TraceContext>) -> SessionId {
        let open = OpenSession { holder: "app", ttl_ms: 60_000, secret: [1; 32].into(), waits_only: false };
        match self.step(trace, Command::OpenSession(open)) {
            Answer::Session(opened) => opened.session,
            other => panic!("{other:?}"),
        }
    }

    /// Kind, resource and trace of every change after the opening.
    fn changes(&self) -> Vec<(String, Option<TraceContext>)> {
        let mut recovered = RecoveredGrantor::empty(3);
        let mut changes = Vec::new();
        let mut each = |_: &BatchHeader, change: &AuditChange<'_>| {
            changes.push((format!("{} {}", change.kind, change.resource).trim_end().to_owned(), change.trace));
        };
        for batch in &self.batches {
            recovered.apply_with_changes(batch, Some(&mut each)).expect("the journal is valid");
        }
        assert_eq!(recovered.state_hash(), self.grantor.state_hash(), "replay gives the same state");
        let restored = RecoveredGrantor::from_snapshot(&self.grantor.snapshot(), 4).expect("a snapshot decodes");
        assert_eq!(restored.state_hash(), self.grantor.state_hash(), "and so does a snapshot");
        changes.split_off(2)
    }
}

fn held(grant: &Grant) -> LeaseRef<'static> {
    LeaseRef { selector: LeaseSelector::Id(grant.lease), number: grant.number, session: None, holder: None }
}

fn revoke(resource: &str, grace_ms: u64) -> Command<'_> {
    let selector = LeaseSelector::Resource(resource);
    Command::Revoke(Revoke { selector, reason: EndReason::Operator, comment: "it leaks", grace_ms })
}

#[test]
fn every_change_has_the_trace_of_the_request_that_caused_it_and_an_expiry_has_none() {
    let mut run = TracedRun::new();
    let first = run.acquire(Some(trace(1)), "jobs/a", 60_000);
    run.acquire(None, "jobs/b", 200);
    run.step(Some(trace(2)), Command::Release(held(&first)));
    run.pass(400);
    run.acquire(Some(trace(3)), "jobs/c", 60_000);
    run.step(None, revoke("jobs/c", 0));
    let expected = [
        ("granted jobs/a", Some(trace(1))),
        ("granted jobs/b", None),
        ("ended jobs/a", Some(trace(2))),
        ("ended jobs/b", None),
        ("granted jobs/c", Some(trace(3))),
        ("ended jobs/c", None),
    ];
    assert_eq!(run.changes(), expected.map(|(text, trace)| (text.to_owned(), trace)));
}

#[test]
fn a_grant_after_a_wait_has_the_trace_of_the_wait_and_not_of_the_release_that_made_room() {
    let mut run = TracedRun::new();
    let session = run.session(Some(trace(4)));
    let first = run.acquire(Some(trace(1)), "jobs/a", 60_000);
    let options = AcquireOptions { wait_ms: 60_000, ..AcquireOptions::DEFAULT };
    let waits = Acquire { session: Some(session), options, ttl_ms: None, ..Acquire::exclusive("jobs/a", "", 0) };
    assert!(matches!(run.step(Some(trace(5)), Command::Acquire(waits)), Answer::Waiting { .. }));
    run.changes();
    run.step(Some(trace(2)), Command::Release(held(&first)));
    run.step(Some(trace(6)), Command::CloseSession { session });
    let expected = [
        ("session_opened", Some(trace(4))),
        ("granted jobs/a", Some(trace(1))),
        ("ended jobs/a", Some(trace(2))),
        ("granted jobs/a", Some(trace(5))),
        ("session_ended", Some(trace(6))),
        ("ended jobs/a", Some(trace(6))),
    ];
    assert_eq!(run.changes(), expected.map(|(text, trace)| (text.to_owned(), trace)));
    let ends: Vec<_> = run.ended.iter().map(|hold| (hold.reason, hold.session, hold.trace)).collect();
    assert_eq!(
        ends,
        [(EndReason::Released, None, Some(trace(1))), (EndReason::Session, Some(session), Some(trace(5)))]
    );
}

#[test]
fn a_wait_that_ends_without_a_grant_leaves_no_trace() {
    let mut run = TracedRun::new();
    let session = run.session(None);
    run.acquire(None, "jobs/a", 60_000);
    let without = run.grantor.snapshot()[0];
    let options = AcquireOptions { wait_ms: 100, ..AcquireOptions::DEFAULT };
    let waits = Acquire { session: Some(session), options, ttl_ms: None, ..Acquire::exclusive("jobs/a", "", 0) };
    run.step(Some(trace(5)), Command::Acquire(waits));
    assert_eq!(run.grantor.snapshot()[0], 8, "the wait's trace is state");
    run.pass(200);
    assert_eq!(run.grantor.snapshot()[0], without);
    run.changes();
}

#[test]
fn requests_without_a_trace_write_and_store_what_they_did_before() {
    let (mut with, mut without) = (TracedRun::new(), TracedRun::new());
    let grants = [with.acquire(Some(trace(1)), "jobs/a", 60_000), without.acquire(None, "jobs/a", 60_000)];
    let bytes = |run: &TracedRun| run.batches.last().expect("a batch").len();
    // An attribution of `local` with its trace, and the trace of the lease.
    assert_eq!(bytes(&with) - bytes(&without), (1 + 10 + 25) + (2 + 25));
    assert_eq!((with.grantor.snapshot()[0], without.grantor.snapshot()[0]), (8, 3));
    with.step(None, Command::Release(held(&grants[0])));
    without.step(None, Command::Release(held(&grants[1])));
    assert_eq!(with.grantor.snapshot()[0], 3, "nothing of an ended lease is kept");
}

#[test]
fn all_leases_of_one_request_have_its_trace() {
    let mut run = TracedRun::new();
    let session = run.session(None);
    let resources = [("a", Access::Exclusive), ("b", Access::Shared)];
    let all = AcquireAll {
        resources: &resources,
        holder: "",
        session: Some(session),
        ttl_ms: None,
        options: AcquireOptions::DEFAULT,
    };
    assert!(matches!(run.step(Some(trace(7)), Command::AcquireAll(all)), Answer::GrantedAll(_)));
    run.step(None, Command::CloseSession { session });
    let ended: Vec<_> = run.ended.iter().map(|hold| (&*hold.resource, hold.slot, hold.trace)).collect();
    assert_eq!(ended, [("a", Some(0), Some(trace(7))), ("b", None, Some(trace(7)))]);
    run.changes();
}

#[test]
fn a_hold_that_ends_in_a_later_tenure_has_the_times_and_the_trace_of_its_grant() {
    let mut first = TracedRun::new();
    let grant = first.acquire(Some(trace(1)), "jobs/a", 60_000);
    let granted_at = now(first.ms).wall;
    // An outage of half an hour, in which grantor time stops.
    let mut second = TracedRun::open(first.batches, 1_800_000, true);
    second.step(Some(trace(2)), Command::Release(held(&grant)));
    let [hold] = &second.ended[..] else { panic!("{:?}", second.ended) };
    assert_eq!((&*hold.resource, &*hold.holder, &*hold.owner), ("jobs/a", "app", "local"));
    assert_eq!((hold.lease, hold.number, hold.trace), (grant.lease, grant.number, Some(trace(1))));
    assert_eq!((hold.granted, hold.ended), (granted_at, now(1_800_020).wall));
    second.changes();
}

#[test]
fn a_raised_token_does_not_move_the_start_of_its_hold() {
    let mut run = TracedRun::new();
    let grant = run.acquire(None, "jobs/a", 60_000);
    let granted_at = now(run.ms).wall;
    run.pass(100);
    run.step(None, Command::Rotate(held(&grant)));
    run.step(None, revoke("jobs/a", 0));
    let [hold] = &run.ended[..] else { panic!("{:?}", run.ended) };
    assert!(hold.number > grant.number);
    assert_eq!((hold.granted, hold.reason), (granted_at, EndReason::Operator));
}

#[test]
fn a_hold_shows_when_its_drain_began_and_why() {
    let mut run = TracedRun::new();
    run.acquire(None, "jobs/a", 60_000);
    run.step(None, revoke("jobs/a", 1_000));
    let began = now(run.ms).wall;
    run.pass(1_200);
    let [hold] = &run.ended[..] else { panic!("{:?}", run.ended) };
    let drain = hold.drain.expect("it drained");
    assert_eq!((drain.began, drain.cause, hold.reason), (began, EndReason::Operator, EndReason::Operator));
    assert!(hold.ended > began);
    let handed = run.acquire(None, "jobs/b", 60_000);
    let selector = LeaseSelector::Id(handed.lease);
    let handoff = Handoff { selector, number: Some(handed.number), to: None, mode: None, drain_ms: Some(100) };
    run.step(None, Command::Handoff(handoff));
    run.step(None, Command::Release(held(&handed)));
    let hold = run.ended.last().expect("it ended");
    assert_eq!((hold.reason, hold.drain.map(|drain| drain.cause)), (EndReason::HandedOff, Some(EndReason::HandedOff)));
}

#[test]
fn a_hold_says_whether_its_session_was_closed_or_expired() {
    let mut run = TracedRun::new();
    for (resource, closes) in [("jobs/a", true), ("jobs/b", false)] {
        let open = OpenSession { holder: "app", ttl_ms: 200, secret: [1; 32].into(), waits_only: false };
        let Answer::Session(opened) = run.step(None, Command::OpenSession(open)) else { panic!("opened") };
        let session = opened.session;
        let acquire = Acquire { session: Some(session), ttl_ms: None, ..Acquire::exclusive(resource, "", 0) };
        run.step(None, Command::Acquire(acquire));
        if closes {
            run.step(None, Command::CloseSession { session });
        }
        run.pass(400);
    }
    let ends: Vec<_> = run.ended.iter().map(|hold| (&*hold.resource, hold.reason, hold.session_expired)).collect();
    assert_eq!(ends, [("jobs/a", EndReason::Session, false), ("jobs/b", EndReason::Session, true)]);
}

#[test]
fn nothing_is_collected_unless_it_is_asked_for() {
    let mut run = TracedRun::open(Vec::new(), 0, false);
    let grant = run.acquire(Some(trace(1)), "jobs/a", 60_000);
    run.step(None, Command::Release(held(&grant)));
    assert_eq!(run.ended, []);
    assert_eq!(run.changes()[0].1, Some(trace(1)), "the audit log has it nevertheless");
}
