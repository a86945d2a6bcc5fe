//! The encoding of snapshots, and journals of earlier versions.

use std::collections::BTreeMap;

use leasehold_core::access::{
    AccessGrant, ApprovalRules, Caller, DangerousAction, IdentityUsage, RequestOrigin, Rights, Role, Via,
};
use leasehold_core::charter::{Charter, Target, TargetMode};
use leasehold_core::command::{
    Acquire, AcquireOptions, Answer, Command, Input, LeaseRef, OpenSession, Request, RequestId,
};
use leasehold_core::coverage::{FenceMode, FenceReport};
use leasehold_core::grantor::{Grantor, Output, RecoveredGrantor, TenureOptions, recover};
use leasehold_core::ids::SessionId;
use leasehold_core::lease::{Access, Validity};
use leasehold_core::payload::{cache, delivery};
use leasehold_core::refusal::Refusal;
use leasehold_core::time::{Instant, Now, WallClock};
use leasehold_core::token::{Cluster, Incarnation, Token, TokenScope};
use leasehold_core::trace_context::TraceContext;

use crate::{golden, hex, number, path, unhex};

/// The batches and the snapshot of a small cluster that uses most features.
fn cluster() -> (Vec<Vec<u8>>, Vec<u8>) {
    let now = |ms: u64| Now { instant: Instant::from_millis(ms), wall: WallClock::after_era(61_000_000_000 + ms) };
    let opening = TenureOptions {
        cluster: Cluster(*b"examples"),
        incarnation: Incarnation(9),
        generation: 1,
        validity: Validity::Session,
        max_ttl: 600_000,
        restore: None,
    };
    let mut grantor = RecoveredGrantor::empty(1).open(now(0), &opening).unwrap();
    let (mut out, mut batches) = (Output::default(), Vec::new());
    grantor.take_output(&mut out);
    batches.push(out.batch.clone());
    grantor.serve(now(0));
    // The reuse count follows from the clock.
    let session = SessionId { slot: 0, reuse: (61_000_000_020_u64 >> 10) as u32 };
    let id = |sequence| RequestId { session, sequence, lowest: 1, digest: sequence };
    let in_session = |resource, access, options| {
        Command::Acquire(Acquire {
            resource,
            holder: "",
            session: Some(session),
            access,
            slots: None,
            ttl_ms: None,
            options,
        })
    };
    let waits = AcquireOptions { wait_ms: 60_000, ..AcquireOptions::DEFAULT };
    let full = AcquireOptions {
        max_hold_ms: Some(500_000),
        progress_ms: Some(9_000),
        metadata: b"at 10.0.0.1",
        ..AcquireOptions::DEFAULT
    };
    let commands: Vec<(Option<u64>, Command<'_>)> = vec![
        (
            None,
            Command::OpenSession(OpenSession {
                holder: "app",
                ttl_ms: 20_000,
                secret: [1; 32].into(),
                waits_only: false,
            }),
        ),
        (None, Command::Acquire(Acquire::exclusive("jobs/settle", "worker-1", 10_000))),
        (Some(1), in_session("db/primary", Access::Exclusive, full)),
        (Some(2), in_session("jobs/settle", Access::Exclusive, waits)),
        (Some(3), in_session("config", Access::Shared, AcquireOptions::DEFAULT)),
        (None, Command::SetCapacity { resource: "gpu", units: 8 }),
        (Some(4), in_session("gpu", Access::Units(3), AcquireOptions::DEFAULT)),
        (None, Command::Acquire(Acquire::exclusive("short", "worker-2", 100))),
        (None, Command::Collect { resource: "log", below: 50 }),
        (
            None,
            Command::Delivery(delivery::DeliveryCommand::Enqueue {
                queue: "mail",
                body: b"hello",
                delay_ms: 0,
                max_attempts: None,
            }),
        ),
        (
            None,
            Command::Cache(cache::CacheCommand::Read {
                key: "user/1",
                session: Some(session),
                reader: "r",
                ttl_ms: 5_000,
            }),
        ),
    ];
    for (at, (sequence, command)) in commands.into_iter().enumerate() {
        let now = now(20 * (at as u64 + 1));
        let request = Request { id: sequence.map(id), ..Request::tagged(at as u64) };
        grantor.step(now, &Input::Request(request, command));
        grantor.step(now, &Input::Tick);
        grantor.take_output(&mut out);
        batches.push(out.batch.clone());
    }
    let held = grantor.held_by("app");
    let primary = held.iter().find(|lease| lease.resource == "db/primary").unwrap();
    let put = Command::Put {
        lease: LeaseRef::by_id(primary.lease, primary.number),
        key: "checkpoint",
        bytes: Some(b"42"),
        expect: None,
    };
    for (at, input) in [(300, Input::Request(Request::tagged(99), put)), (400, Input::Tick)] {
        grantor.step(now(at), &input);
        grantor.step(now(at), &Input::Tick);
        grantor.take_output(&mut out);
        if !out.batch.is_empty() {
            batches.push(out.batch.clone());
        }
    }
    (batches, grantor.snapshot())
}

#[test]
fn the_encoding_of_a_snapshot_is_unchanged_and_decodes() {
    let (batches, snapshot) = cluster();
    let wrapped: Vec<String> =
        hex(&snapshot).as_bytes().chunks(120).map(|l| String::from_utf8_lossy(l).into()).collect();
    let known = golden("snapshot.hex", &(wrapped.join("\n") + "\n"));
    assert!(snapshot == unhex(&known), "the encoding of a snapshot changed: existing snapshots could not be read");
    let recovered = recover(5, Some(&unhex(&known)), []).unwrap();
    assert!(recovered.snapshot() == snapshot, "the decoded snapshot differs from the written one");
    let replayed = recover(6, None, batches.iter().map(Vec::as_slice)).unwrap();
    assert!(replayed.snapshot() == snapshot, "replayed records and the snapshot give the same state");
}

#[test]
#[allow(clippy::disallowed_methods, reason = "the test writes its files; the core writes none")]
fn a_snapshot_of_format_1_is_read_as_if_every_charter_had_changed_at_that_time() {
    let (_, snapshot) = cluster();
    let first = unhex(&std::fs::read_to_string(path("snapshot-1.hex")).unwrap());
    assert_eq!((first[0], snapshot[0]), (1, 3));
    let rewritten = recover(8, Some(&first), []).unwrap().snapshot();
    assert!(rewritten[0] == 3 && rewritten != snapshot, "missing fields are not guessed");
    assert!(
        recover(9, Some(&rewritten), []).unwrap().snapshot() == rewritten,
        "the snapshot is written in the newest format and read again"
    );
}

#[test]
#[allow(clippy::disallowed_methods, reason = "the test writes its files; the core writes none")]
fn a_snapshot_of_format_2_is_read_as_if_no_opening_had_lifted_the_counter() {
    let (_, snapshot) = cluster();
    let second = unhex(&std::fs::read_to_string(path("snapshot-2.hex")).unwrap());
    assert_eq!(second[0], 2);
    assert!(recover(8, Some(&second), []).unwrap().snapshot() == snapshot, "the state of one tenure has no gaps");
}

#[test]
fn the_encoding_of_gaps_and_of_a_waived_quarantine_is_unchanged_and_decodes() {
    let (mut batches, _) = cluster();
    for generation in 2..=4 {
        let now = Now {
            instant: Instant::from_millis(generation),
            wall: WallClock::after_era(61_000_000_000 + generation * 1_000_000),
        };
        let opening = TenureOptions {
            cluster: Cluster(*b"examples"),
            incarnation: Incarnation(9),
            generation,
            validity: Validity::Session,
            max_ttl: 600_000,
            restore: None,
        };
        let recovered = recover(generation, None, batches.iter().map(Vec::as_slice)).unwrap();
        let mut opened = recovered.open(now, &opening).unwrap();
        let mut out = Output::default();
        opened.take_output(&mut out);
        batches.push(out.batch.clone());
        opened.serve(now);
        let presented = Token {
            cluster: Cluster(*b"examples"),
            incarnation: Incarnation(9),
            resource: [0; 8],
            scope: TokenScope::Slot(0),
            number: number(opened.status().counter + 1_000),
        };
        let commands: &[(Option<Token>, Command<'_>)] = match generation {
            4 => &[
                (Some(presented), Command::ObserveToken),
                (None, Command::WaiveQuarantine { comment: "a wrong token" }),
            ],
            3 => &[(None, Command::Acquire(Acquire::exclusive("jobs/third", "worker-3", 1_000)))],
            _ => &[(None, Command::Acquire(Acquire::exclusive("jobs/second", "worker-2", 1_000)))],
        };
        for (observed, command) in commands {
            let request = Request { observed: *observed, ..Request::tagged(1) };
            opened.step(now, &Input::Request(request, command.clone()));
        }
        opened.step(now, &Input::Tick);
        opened.take_output(&mut out);
        batches.push(out.batch.clone());
        let wrapped: Vec<String> =
            hex(&opened.snapshot()).as_bytes().chunks(120).map(|l| String::from_utf8_lossy(l).into()).collect();
        let known = unhex(&golden(&format!("snapshot-gaps-{generation}.hex"), &(wrapped.join("\n") + "\n")));
        assert!(opened.snapshot() == known, "the encoding of a snapshot changed");
        assert!(recover(12, Some(&known), []).unwrap().snapshot() == known, "it decodes as written");
        let replayed = recover(13, None, batches.iter().map(Vec::as_slice)).unwrap();
        assert!(replayed.snapshot() == known, "replayed records and the snapshot give the same state");
    }
}

/// The batches and the snapshot of a small cluster in which two identities and `local` own something of every kind.
fn owned_cluster() -> (Vec<Vec<u8>>, Vec<u8>) {
    let now = |ms: u64| Now { instant: Instant::from_millis(ms), wall: WallClock::after_era(61_000_000_000 + ms) };
    let opening = TenureOptions {
        cluster: Cluster(*b"examples"),
        incarnation: Incarnation(9),
        generation: 1,
        validity: Validity::Session,
        max_ttl: 600_000,
        restore: None,
    };
    let mut grantor = RecoveredGrantor::empty(1).open(now(0), &opening).unwrap();
    let (mut out, mut batches) = (Output::default(), Vec::new());
    grantor.take_output(&mut out);
    batches.push(out.batch.clone());
    grantor.serve(now(0));
    let caller = |principal| Caller { principal, rights: Rights::UNRESTRICTED };
    let (worker, user) = (caller("spiffe://example/jobs/worker"), caller("uid:1000"));
    let open = |waits_only| {
        Command::OpenSession(OpenSession { holder: "app", ttl_ms: 20_000, secret: [1; 32].into(), waits_only })
    };
    let exclusive = |resource, ttl_ms| Command::Acquire(Acquire::exclusive(resource, "worker-1", ttl_ms));
    let carried_by = |slot, resource, access, ttl_ms| {
        let session = Some(SessionId { slot, reuse: (61_000_000_020_u64 >> 10) as u32 });
        let options = AcquireOptions { wait_ms: 60_000, ..AcquireOptions::DEFAULT };
        Command::Acquire(Acquire { resource, holder: "one", session, access, slots: None, ttl_ms, options })
    };
    let queue = "mail";
    let (body, delay_ms, max_attempts) = (b"hello", 0, None);
    let (session, holder, visibility_ms, limit) = (None, "worker-1", 30_000, 1);
    let (key, reader, writer, ttl_ms) = ("user/1", "reader", "writer", 5_000);
    use cache::CacheCommand::{GetOrFill, Intend, Read};
    use delivery::DeliveryCommand::{Enqueue, Receive};
    let commands: Vec<(Caller<'_>, Command<'_>)> = vec![
        (worker, open(false)),
        (user, open(true)),
        (Caller::LOCAL, open(false)),
        (worker, exclusive("jobs/a", 10_000)),
        (user, exclusive("jobs/b", 10_000)),
        (Caller::LOCAL, exclusive("jobs/c", 10_000)),
        // Two identities with one holder name are two actors.
        (worker, carried_by(0, "db/primary", Access::Exclusive, None)),
        (user, carried_by(1, "db/second", Access::Exclusive, Some(10_000))),
        (user, carried_by(1, "jobs/a", Access::Exclusive, Some(10_000))),
        // These end before the snapshot.
        (worker, exclusive("jobs/short", 100)),
        (user, exclusive("jobs/shorter", 100)),
        (Caller::LOCAL, Command::Delivery(Enqueue { queue, body, delay_ms, max_attempts })),
        (Caller::LOCAL, Command::Delivery(Enqueue { queue, body, delay_ms, max_attempts })),
        (worker, Command::Delivery(Receive { queue, session, holder, visibility_ms, limit })),
        (Caller::LOCAL, Command::Delivery(Receive { queue, session, holder, visibility_ms, limit })),
        (user, Command::Cache(Read { key, session, reader, ttl_ms })),
        (Caller::LOCAL, Command::Cache(Read { key, session, reader, ttl_ms })),
        (worker, Command::Cache(Intend { key: "user/2", session, writer, ttl_ms })),
        (user, Command::Cache(GetOrFill { key: "user/3", session, reader, ttl_ms, missing: None })),
    ];
    for (at, (caller, command)) in commands.into_iter().enumerate() {
        let now = now(20 * (at as u64 + 1));
        let request = Request { caller, ..Request::tagged(at as u64) };
        grantor.step(now, &Input::Request(request, command));
        grantor.step(now, &Input::Tick);
        grantor.take_output(&mut out);
        assert!(out.replies.iter().all(|reply| !matches!(reply.answer, Answer::Refused(_))), "{at}: {:?}", out.replies);
        batches.push(out.batch.clone());
    }
    for ms in [500, 520] {
        grantor.step(now(ms), &Input::Tick);
        grantor.take_output(&mut out);
        batches.extend((!out.batch.is_empty()).then(|| out.batch.clone()));
    }
    (batches, grantor.snapshot())
}

#[test]
fn the_encoding_of_owners_is_unchanged_and_decodes() {
    let (batches, snapshot) = owned_cluster();
    assert_eq!(snapshot[0], 4, "a state with owners has its own format");
    let wrapped: Vec<String> =
        hex(&snapshot).as_bytes().chunks(120).map(|l| String::from_utf8_lossy(l).into()).collect();
    let known = unhex(&golden("snapshot-attributed.hex", &(wrapped.join("\n") + "\n")));
    assert!(snapshot == known, "the encoding of a snapshot changed: existing snapshots could not be read");
    assert!(recover(5, Some(&known), []).unwrap().snapshot() == snapshot, "it decodes as written");
    let lines: String = batches.iter().map(|batch| hex(batch) + "\n").collect();
    let journal: Vec<Vec<u8>> = golden("journal-attributed.hex", &lines).lines().map(unhex).collect();
    assert!(journal == batches, "the encoding of a batch changed");
    let replayed = recover(6, None, journal.iter().map(Vec::as_slice)).unwrap();
    assert!(replayed.snapshot() == snapshot, "replayed records and the snapshot give the same state");
}

/// A second tenure of the cluster with owners, in which two identities restricted by access rules act.
struct SecondTenure {
    batches: Vec<Vec<u8>>,
    grantor: Grantor,
    ms: u64,
    /// The trace that the next requests belong to.
    trace: Option<TraceContext>,
}

const OPERATOR: &str = "spiffe://example/ops/ann";
const APPROVER: &str = "dns:host.example";

impl SecondTenure {
    fn open() -> Self {
        let (mut batches, snapshot) = owned_cluster();
        let opening = TenureOptions {
            cluster: Cluster(*b"examples"),
            incarnation: Incarnation(9),
            generation: 2,
            validity: Validity::Session,
            max_ttl: 600_000,
            restore: None,
        };
        let mut grantor = recover(5, Some(&snapshot), []).unwrap().open(Self::now(600), &opening).unwrap();
        let mut out = Output::default();
        grantor.take_output(&mut out);
        batches.push(out.batch);
        grantor.serve(Self::now(600));
        Self { batches, grantor, ms: 600, trace: None }
    }

    fn now(ms: u64) -> Now {
        Now { instant: Instant::from_millis(ms), wall: WallClock::after_era(61_000_000_000 + ms) }
    }

    fn step(&mut self, caller: Caller<'_>, credential: &str, command: Command<'_>) -> Answer {
        self.ms += 20;
        let trace = self.trace;
        let origin = RequestOrigin { via: Via::Certificate, credential, trace, ..RequestOrigin::LOCAL };
        let request = Request { caller, origin, ..Request::tagged(self.ms) };
        self.grantor.step(Self::now(self.ms), &Input::Request(request, command));
        let mut out = Output::default();
        self.grantor.take_output(&mut out);
        self.batches.push(out.batch);
        out.replies.into_iter().find(|reply| reply.tag == self.ms).expect("it is answered").answer
    }

    /// Compares the snapshot and the journal with their golden files, and with each other.
    fn check(&self, name: &str, format: u8) {
        let snapshot = self.grantor.snapshot();
        assert_eq!(snapshot[0], format);
        let wrapped: Vec<String> =
            hex(&snapshot).as_bytes().chunks(120).map(|l| String::from_utf8_lossy(l).into()).collect();
        let known = unhex(&golden(&format!("snapshot-{name}.hex"), &(wrapped.join("\n") + "\n")));
        assert!(snapshot == known, "the encoding of a snapshot changed: existing snapshots could not be read");
        let lines: String = self.batches.iter().map(|batch| hex(batch) + "\n").collect();
        let journal: Vec<Vec<u8>> = golden(&format!("journal-{name}.hex"), &lines).lines().map(unhex).collect();
        assert!(journal == self.batches, "the encoding of a batch changed");
        let decoded = recover(5, Some(&known), []).unwrap();
        assert!(decoded.snapshot() == snapshot, "it decodes as written");
        let replayed = recover(6, None, journal.iter().map(Vec::as_slice)).unwrap();
        assert!(replayed.snapshot() == snapshot, "replayed records and the snapshot give the same state");
        let usages = |all: &mut dyn Iterator<Item = (&str, IdentityUsage)>| -> BTreeMap<String, IdentityUsage> {
            all.filter(|(_, has)| *has != IdentityUsage::default()).map(|(name, has)| (name.into(), has)).collect()
        };
        let counted = usages(&mut self.grantor.identity_usages());
        assert!(counted.len() >= 3, "{counted:?}");
        assert_eq!(usages(&mut decoded.identity_usages()), counted, "the counts follow from the snapshot");
        assert_eq!(usages(&mut replayed.identity_usages()), counted, "and from the journal");
    }
}

#[test]
fn the_encoding_of_proposals_is_unchanged_and_decodes() {
    let mut tenure = SecondTenure::open();
    let mut approval = ApprovalRules::NONE;
    approval.require(DangerousAction::SetMaxTtl);
    approval.require(DangerousAction::RemoveCharter);
    let admin = vec![AccessGrant { role: Role::Admin, prefix: "".into() }];
    let rights = Rights::new(1, admin).with_approval(approval);
    let (operator, approver) =
        (Caller { principal: OPERATOR, rights: &rights }, Caller { principal: APPROVER, rights: &rights });
    let charter = Box::new(Charter { capacity: Some(2), ..Charter::default() });
    let set = Command::SetCharter { prefix: "jobs", charter, comment: "" };
    assert_eq!(tenure.step(Caller::LOCAL, "", set), Answer::Done);
    let longer = Command::SetMaxTtl { max_ttl_ms: 700_000, comment: "slow batches" };
    let remove = || Command::RemoveCharter { prefix: "jobs", comment: "moved" };
    let proposed = |proposal| Answer::Refused(Refusal::ApprovalRequired { proposal });
    assert_eq!(tenure.step(operator, "0011", longer), proposed(1));
    assert_eq!(tenure.step(operator, "0011", remove()), proposed(2));
    assert_eq!(tenure.step(approver, "2233", remove()), proposed(3));
    let digest = tenure.grantor.proposals().next().unwrap().digest;
    let approve = Command::Approve { proposal: 1, digest, proposer: Some(&rights) };
    assert_eq!(tenure.step(approver, "2233", approve), Answer::Done);
    tenure.check("proposals", 5);
    assert_eq!(tenure.grantor.proposals().count(), 2);
}

#[test]
fn the_encoding_of_owned_charters_and_targets_is_unchanged_and_decodes() {
    let mut tenure = SecondTenure::open();
    let rights = Rights::new(1, vec![AccessGrant { role: Role::Admin, prefix: "".into() }]);
    let (operator, reporter) =
        (Caller { principal: OPERATOR, rights: &rights }, Caller { principal: "uid:1000", rights: &rights });
    let target = |name: &str, reporter: Option<&str>| Target {
        name: name.into(),
        at: "somewhere".into(),
        mode: Some(TargetMode::Forced),
        reporter: reporter.map(Into::into),
    };
    let charter =
        Charter { targets: vec![target("ledger", Some("uid:1000")), target("mail", None)], ..Charter::default() };
    for (caller, prefix) in [(Caller::LOCAL, "a"), (operator, "jobs"), (operator, "jobs/a"), (reporter, "jobs/b")] {
        let set = Command::SetCharter { prefix, charter: Box::new(charter.clone()), comment: "" };
        assert_eq!(tenure.step(caller, "", set), Answer::Done);
    }
    // A caller that replaces a charter or reports a target again does not become its owner.
    let again = Command::SetCharter { prefix: "jobs/a", charter: Box::default(), comment: "" };
    assert_eq!(tenure.step(reporter, "", again), Answer::Done);
    let report = |resource, target, slot, mode| FenceReport {
        resource,
        slot,
        target,
        mode,
        checks: 1,
        refusals: 0,
        checked_ago_ms: 0,
        highest: None,
        zombie: None,
    };
    let batches = [
        (Caller::LOCAL, vec![report("jobs/c", "other", 0, FenceMode::Forced)]),
        (
            reporter,
            vec![report("jobs/c", "ledger", 0, FenceMode::Forced), report("jobs/c", "ledger", 1, FenceMode::Forced)],
        ),
        (operator, vec![report("jobs/c", "mail", 0, FenceMode::Cooperative)]),
        (operator, vec![report("jobs/c", "other", 0, FenceMode::Cooperative)]),
        (operator, vec![report("rest", "mail", 0, FenceMode::Cooperative)]),
    ];
    for (caller, reports) in batches {
        let report = Command::Report { cluster: Cluster(*b"examples"), reports: &reports };
        assert_eq!(tenure.step(caller, "", report), Answer::Done);
    }
    let forget = Command::ForgetTarget { resource: "rest", target: "mail", comment: "" };
    assert_eq!(tenure.step(reporter, "", forget), Answer::Done);
    tenure.check("charter-owners", 6);
    let has = |principal| {
        let IdentityUsage { charters, targets, .. } = tenure.grantor.identity_usage(principal);
        (charters, targets)
    };
    assert_eq!((has("local"), has(OPERATOR), has("uid:1000")), ((1, 1), (2, 1), (1, 2)));
}

#[test]
fn the_encoding_of_owned_messages_and_state_is_unchanged_and_decodes() {
    use leasehold_core::command::{LeaseRef, LeaseSelector};
    use leasehold_core::payload::delivery::DeliveryCommand::{Ack, Enqueue, Receive};
    let mut tenure = SecondTenure::open();
    let rights = Rights::UNRESTRICTED;
    let (operator, user) = (Caller { principal: OPERATOR, rights }, Caller { principal: "uid:1000", rights });
    let enqueue = |queue, body| Command::Delivery(Enqueue { queue, body, delay_ms: 0, max_attempts: None });
    for (caller, queue, body) in
        [(operator, "post", &b"one"[..]), (user, "post", b"two"), (Caller::LOCAL, "mail", b"3")]
    {
        assert!(matches!(tenure.step(caller, "", enqueue(queue, body)), Answer::Delivery(_)));
    }
    // The first message is acknowledged, so that it is not counted; another one stays with its consumer.
    assert!(matches!(tenure.step(operator, "", enqueue("post", b"four")), Answer::Delivery(_)));
    let receive = Receive { queue: "post", session: None, holder: "h", visibility_ms: 30_000, limit: 2 };
    let Answer::Delivery(received) = tenure.step(user, "", Command::Delivery(receive)) else { panic!("received") };
    let delivery::DeliveryAnswer::Received(received) = *received else { panic!("received") };
    let (item, receipt) = (received[0].item, received[0].receipt);
    let ack = Command::Delivery(Ack { queue: "post", item, receipt });
    assert!(matches!(tenure.step(user, "", ack), Answer::Delivery(_)));
    let mut put = |caller: Caller<'_>, resource, keys: &[(&str, &[u8])]| {
        let acquire = Command::Acquire(Acquire::exclusive(resource, "h", 30_000));
        let Answer::Granted(grant) = tenure.step(caller, "", acquire) else { panic!("granted") };
        let lease =
            LeaseRef { selector: LeaseSelector::Id(grant.lease), number: grant.number, session: None, holder: None };
        for (key, bytes) in keys {
            let put = Command::Put { lease, key, bytes: Some(bytes), expect: None };
            assert!(matches!(tenure.step(caller, "", put), Answer::Stored { .. }));
        }
        assert_eq!(tenure.step(caller, "", Command::Release(lease)), Answer::Done);
    };
    put(operator, "shard/1", &[("a", b"1"), ("b", b"22")]);
    put(user, "shard/1", &[("b", b"333"), ("c", b"4444")]);
    put(Caller::LOCAL, "shard/2", &[("a", b"5")]);
    put(user, "shard/2", &[("z", b"6")]);
    tenure.check("payload-owners", 7);
    let has = |principal| {
        let IdentityUsage { messages, message_bytes, state_bytes, .. } = tenure.grantor.identity_usage(principal);
        (messages, message_bytes, state_bytes)
    };
    let (name, value) = (64 + 7, |bytes: u64| 64 + 1 + bytes);
    assert_eq!(has(OPERATOR), (1, 8, name + value(1)));
    assert_eq!(has("uid:1000"), (1, 7, value(3) + value(4) + value(1)));
    assert_eq!(has("local").2, name + value(1));
}

#[test]
fn the_encoding_of_traces_is_unchanged_and_decodes() {
    let mut tenure = SecondTenure::open();
    let operator = Caller { principal: OPERATOR, rights: Rights::UNRESTRICTED };
    tenure.trace = TraceContext::new([0x4b; 16], [0x02; 8], 1);
    let open = OpenSession { holder: "reader", ttl_ms: 60_000, secret: [0x5a; 32].into(), waits_only: false };
    let Answer::Session(opened) = tenure.step(operator, "0011", Command::OpenSession(open)) else { panic!("opened") };
    let acquire = Command::Acquire(Acquire::exclusive("traced/1", "h", 30_000));
    assert!(matches!(tenure.step(Caller::LOCAL, "", acquire), Answer::Granted(_)));
    let options = AcquireOptions { wait_ms: 60_000, ..AcquireOptions::DEFAULT };
    let wait = Acquire { session: Some(opened.session), options, ..Acquire::exclusive("traced/1", "reader", 30_000) };
    assert!(matches!(tenure.step(operator, "0011", Command::Acquire(wait)), Answer::Waiting { .. }));
    tenure.trace = None;
    let plain = Command::Acquire(Acquire::exclusive("plain/1", "h", 30_000));
    assert!(matches!(tenure.step(Caller::LOCAL, "", plain), Answer::Granted(_)));
    tenure.check("traces", 8);
}

#[test]
#[allow(clippy::disallowed_methods, reason = "the test reads its files; the core reads none")]
fn journals_with_owners_from_before_records_were_attributed_are_still_read() {
    let read = |name| std::fs::read_to_string(path(name)).unwrap();
    let snapshot = unhex(&read("snapshot-owners.hex"));
    let journal: Vec<Vec<u8>> = read("journal-owners.hex").lines().map(unhex).collect();
    let replayed = recover(6, None, journal.iter().map(Vec::as_slice)).unwrap();
    assert!(replayed.snapshot() == snapshot, "an old journal leads to another state");
    assert!(recover(5, Some(&snapshot), []).unwrap().snapshot() == snapshot, "it decodes as written");
}

#[test]
fn what_had_no_owner_is_of_local_and_is_written_as_before() {
    let (_, snapshot) = cluster();
    assert_eq!(snapshot[0], 3, "without owners the format is the one that earlier servers read");
    let opening = TenureOptions {
        cluster: Cluster(*b"examples"),
        incarnation: Incarnation(9),
        generation: 2,
        validity: Validity::Session,
        max_ttl: 600_000,
        restore: None,
    };
    let now = Now { instant: Instant::from_millis(0), wall: WallClock::after_era(61_000_100_000) };
    let grantor = recover(5, Some(&snapshot), []).unwrap().open(now, &opening).unwrap();
    let leases: Vec<_> = ["app", "worker-1"].iter().flat_map(|holder| grantor.held_by(holder)).collect();
    assert!(leases.len() > 3, "{leases:?}");
    for lease in leases {
        assert_eq!(grantor.owner_of_lease(lease.lease), Some("local"), "{}", lease.resource);
    }
}

#[test]
fn an_old_journal_is_still_replayed() {
    let (batches, snapshot) = cluster();
    let now: String = batches.iter().map(|batch| hex(batch) + "\n").collect();
    let known = golden("journal.hex", &now);
    let old: Vec<Vec<u8>> = known.lines().map(unhex).collect();
    let replayed = recover(7, None, old.iter().map(Vec::as_slice)).unwrap();
    assert!(replayed.snapshot() == snapshot, "an old journal leads to another state");
}

#[test]
#[allow(clippy::disallowed_methods, reason = "the test writes its files; the core writes none")]
fn journals_from_before_session_ids_were_lifted_to_the_clock_are_still_read() {
    let read = |name| std::fs::read_to_string(path(name)).unwrap();
    let snapshot = unhex(&read("snapshot-unlifted.hex"));
    let journal: Vec<Vec<u8>> = read("journal-unlifted.hex").lines().map(unhex).collect();
    let replayed = recover(10, None, journal.iter().map(Vec::as_slice)).unwrap();
    let decoded = recover(11, Some(&snapshot), []).unwrap();
    assert!(replayed.snapshot() == decoded.snapshot(), "an old journal leads to another state");
    assert!(decoded.snapshot()[1..].starts_with(&snapshot[1..]), "newer formats only add fields at the end");
}
