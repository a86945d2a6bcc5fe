//! The encoding of every record.

use std::sync::Arc;

use leasehold_core::access::{Attribution, RequestOrigin, Via};
use leasehold_core::codec::Reader;
use leasehold_core::command::HandoffMode;
use leasehold_core::coverage::{CoverageRecord, FenceMode};
use leasehold_core::ids::{LeaseId, SessionId};
use leasehold_core::lease::{Access, EndReason};
use leasehold_core::payload::{cache, delivery, state};
use leasehold_core::record::{DrainCause, ExpiredBatch, GrantRecord, Record, StoredOutcome, WaitRecord};
use leasehold_core::refusal::{AccessKind, BusyHolder, Cycle, CycleMember, Limit, NotCurrent, Refusal, RefusalSubject};
use leasehold_core::time::GrantorTime;
use leasehold_core::token::{Cluster, Incarnation};
use leasehold_core::trace_context::TraceContext;

use crate::{golden, hex, number, unhex};

fn cycle() -> Cycle {
    let member = |holder: &str, waits_for: &str| CycleMember { holder: holder.into(), waits_for: waits_for.into() };
    Cycle { members: vec![member("alice", "a"), member("bob", "b")], length: 2 }
}

/// One of every record, with non-zero fields where possible.
fn records() -> Vec<Record<'static>> {
    let session = SessionId { slot: 3, reuse: 2 };
    let granted = GrantRecord {
        lease: LeaseId { slot: 7, reuse: 1 },
        number: number(258_755_447_193_600_007),
        resource: "jobs/settle",
        session: None,
        owner: None,
        holder: "worker-1",
        access: Access::Exclusive,
        slot: 0,
        ttl: 10_000,
        priority: 100,
        waiter: None,
        overlaps: None,
        max_hold: None,
        progress: None,
        metadata: b"",
    };
    let opened = Record::SessionOpened {
        session,
        owner: None,
        holder: "worker-1",
        ttl: 5_000,
        secret: [0xa5; 32],
        waits_only: true,
    };
    let mut all = vec![
        Record::Created { cluster: Cluster(*b"examples"), incarnation: Incarnation(9), max_ttl: 600_000 },
        Record::Opened { generation: 4, counter: 77 },
        Record::Idle,
        Record::Stalled { ms: 1_234 },
        Record::Restored { incarnation: Incarnation(10), counter: 88, quarantine: GrantorTime(600_500) },
        Record::RolledBack { presented: number(99), counter: 100, quarantine: GrantorTime(700_000) },
        Record::QuarantineWaived { comment: "all targets surveyed" },
        opened.clone(),
        Record::SessionAlive { session: 3 },
        Record::SessionEnded { session, reason: EndReason::Ttl },
        Record::Granted(granted),
        Record::Granted(GrantRecord {
            session: Some(3),
            access: Access::Units(4),
            ttl: 0,
            waiter: Some(5),
            overlaps: Some(6),
            max_hold: Some(60_000),
            progress: Some(3_000),
            metadata: b"rack 12",
            ..granted
        }),
        Record::Depth { lease: 7, depth: 2 },
        Record::Alive { lease: 7 },
        Record::Retimed { lease: 7, ttl: 20_000 },
        Record::Ended { lease: 7, number: number(12), reason: EndReason::Operator, hold: true, comment: "on fire" },
        Record::Rotated { lease: 7, number: number(13) },
        Record::Progressed { lease: 7, at: 4_096 },
        Record::Waiting(WaitRecord {
            waiter: 5,
            session: 3,
            holder: "worker-1",
            resources: vec![("a", Access::Shared), ("b", Access::Slot)],
            atomic: true,
            ttl: 0,
            priority: 200,
            until: GrantorTime(9_999),
            sequence: Some(17),
            max_hold: Some(60_000),
            progress: None,
            metadata: b"m",
        }),
        Record::Draining {
            lease: 7,
            cause: DrainCause::Handoff { mode: HandoffMode::Overlap, to: "worker-2" },
            until: GrantorTime(5_000),
        },
        Record::Draining {
            lease: 7,
            cause: DrainCause::Handoff { mode: HandoffMode::Gap, to: "" },
            until: GrantorTime(5_000),
        },
        Record::Draining { lease: 7, cause: DrainCause::Priority, until: GrantorTime(5_000) },
        Record::Draining {
            lease: 7,
            cause: DrainCause::Revoked { reason: EndReason::Policy, comment: "quota" },
            until: GrantorTime(5_000),
        },
        Record::DrainDropped { lease: 7 },
        Record::Capacity { resource: "gpu", units: 8, lasting: true },
        Record::HoldConfirmed { lease: 7, number: number(14) },
        Record::HoldResized { lease: 7, units: 3 },
        Record::Vetoed { lease: 7, until: GrantorTime(8_000) },
        Record::Pinned { lease: 7, at: 1_000 },
        Record::Floor { resource: "table", at: 900 },
        Record::Freed { resource: "jobs/settle", comment: "looked at" },
        Record::CharterSet { prefix: "jobs", charter: b"\x01\x02", comment: "new", owner: None },
        Record::CharterRemoved { prefix: "jobs", comment: "old" },
        Record::Deadlocked { cycle: cycle(), victim: "bob", policy: 1 },
        Record::State(state::StateRecord::Put {
            resource: "shard/1".into(),
            token: number(15),
            owner: None,
            key: "checkpoint".into(),
            bytes: Arc::from(&b"offset 42"[..]),
        }),
        Record::State(state::StateRecord::Deleted {
            resource: "shard/1".into(),
            token: number(15),
            key: "checkpoint".into(),
        }),
    ];
    let outcomes = [
        StoredOutcome::Done,
        StoredOutcome::Waiting,
        StoredOutcome::Granted(vec![LeaseId { slot: 7, reuse: 1 }]),
        StoredOutcome::Values(vec![1, 2, 300]),
    ];
    let refusals = [
        Refusal::Implausible { presented: number(99) },
        Refusal::NotFound(RefusalSubject::Lease),
        Refusal::Conflict(RefusalSubject::Capacity),
        Refusal::Lost(EndReason::MaxHold),
        Refusal::NotCurrent(NotCurrent::Superseded),
        Refusal::Stale { presented: 4, mark: 5 },
        Refusal::busy(3),
        Refusal::Deadlock(Box::new(cycle())),
        Refusal::Exhausted { limit: Limit::Units, max: 8, got: 9 },
        Refusal::TokensExhausted,
        Refusal::Timeout,
        Refusal::Cancelled,
        Refusal::Quarantined { remaining: 400, rolled_back: true },
        Refusal::HeldForOperator,
    ];
    all.extend(refusals.iter().map(|why| Record::WaitEnded { waiter: 5, refusal: why.clone() }));
    let outcomes = outcomes.into_iter().chain(refusals.into_iter().map(StoredOutcome::Refused));
    all.extend(outcomes.map(|outcome| Record::Answered {
        session: 3,
        sequence: 17,
        lowest: 16,
        digest: 0x0123_4567_89ab_cdef,
        outcome,
    }));
    all.extend(delivery_records(session).into_iter().map(Record::Delivery));
    all.extend(cache_records(session).into_iter().map(Record::Cache));
    all.push(Record::Expired(ExpiredBatch(vec![(7, number(1 << 60)), (8, number((1 << 60) + 1)), (2, number(12))])));
    all.extend(coverage_records().into_iter().map(Record::Coverage));
    let by = BusyHolder { holder: "worker-2".into(), others: 2, held_ms: 4_000, remaining_ms: 26_000 };
    let later = [
        Refusal::Busy { position: 3, holder: Some(Box::new(by)) },
        Refusal::AccessChange { held: AccessKind::Shared, requested: AccessKind::Exclusive },
    ];
    all.extend(later.iter().map(|why| Record::WaitEnded { waiter: 5, refusal: why.clone() }));
    all.push(Record::MaxTtlSet { max_ttl: 1_200_000, comment: "slow batches" });
    all.extend(owned_records(session, granted));
    all.extend(attribution_records());
    all.extend([
        Record::Proposed {
            proposal: 17,
            proposer: "spiffe://example/ops/ann",
            credential: "0123456789abcdef",
            command: &[6],
            until: GrantorTime(900_000),
        },
        Record::ProposalApproved { proposal: 17, approver: "uid:1000", credential: "" },
        Record::ProposalCanceled { proposal: 18, by: "dns:host.example" },
    ]);
    let owner = "spiffe://example/jobs/worker";
    all.push(Record::CharterSet { prefix: "jobs", charter: b"\x01\x02", comment: "new", owner: Some(owner) });
    let CoverageRecord::Reported { resource, slot, target, mode, .. } = coverage_records().remove(0) else {
        unreachable!("the first one is a report")
    };
    let owner = Some(owner.into());
    all.push(Record::Coverage(CoverageRecord::Reported { resource, slot, target, mode, owner }));
    all.push(Record::ActedAlone { action: "revoke", resource: "jobs/settle", reason: "the site is down" });
    let changed = Refusal::SubjectChanged { subject: RefusalSubject::Lease, proposed: 1, found: 300 };
    all.push(Record::WaitEnded { waiter: 5, refusal: changed });
    all.extend(written_records());
    all.extend(traced_records());
    all
}

/// The records of requests that belong to a distributed trace.
fn traced_records() -> [Record<'static>; 4] {
    let trace_id = *b"\x4b\xf9\x2f\x35\x77\xb3\x4d\xa6\xa3\xce\x92\x9d\x0e\x0e\x47\x36";
    let trace = TraceContext::new(trace_id, *b"\x00\xf0\x67\xaa\x0b\xa9\x02\xb7", 1).unwrap();
    let local = RequestOrigin { trace: Some(trace), ..RequestOrigin::LOCAL };
    let from = Some("192.0.2.7:4711".parse().unwrap());
    let worker = RequestOrigin { via: Via::Certificate, credential: "00112233aabbccdd", from, ..local };
    [
        Record::AttributedTo(Attribution { principal: "local", origin: local }),
        Record::AttributedTo(Attribution { principal: "spiffe://example/jobs/worker", origin: worker }),
        Record::LeaseTraced { lease: 300, trace },
        Record::WaitTraced { waiter: 5, trace },
    ]
}

/// The records that name who sent a message or wrote state.
fn written_records() -> [Record<'static>; 2] {
    let owner = || Some(Box::from("spiffe://example/jobs/worker"));
    [
        Record::Delivery(delivery::DeliveryRecord::Enqueued {
            queue: "mail".into(),
            item: 1,
            owner: owner(),
            body: Arc::from(&b"hello"[..]),
            delay_ms: 250,
            max_attempts: 5,
        }),
        Record::State(state::StateRecord::Put {
            resource: "shard/1".into(),
            token: number(15),
            owner: owner(),
            key: "checkpoint".into(),
            bytes: Arc::from(&b"offset 42"[..]),
        }),
    ]
}

/// The records that name who caused what follows.
fn attribution_records() -> Vec<Record<'static>> {
    let attributed = |principal, via, credential, from: Option<&str>, proposal| {
        let from = from.map(|from| from.parse().unwrap());
        Record::AttributedTo(Attribution {
            principal,
            origin: RequestOrigin { via, credential, from, proposal, ..RequestOrigin::LOCAL },
        })
    };
    let worker = "spiffe://example/jobs/worker";
    vec![
        attributed("uid:1000", Via::Uid, "", None, None),
        attributed(worker, Via::Certificate, "00112233aabbccdd", Some("192.0.2.7:4711"), None),
        attributed(worker, Via::Bearer, "deploy-7", Some("[2001:db8::7]:65535"), Some(300)),
        attributed("anonymous", Via::Anonymous, "", Some("127.0.0.1:1"), None),
        Record::AttributionEnded,
    ]
}

/// The records that name an owner.
fn owned_records(session: SessionId, granted: GrantRecord<'static>) -> Vec<Record<'static>> {
    let name = "spiffe://example/jobs/worker";
    let owner = Some(name);
    let boxed = || Some(Box::from(name));
    let began = |kind| cache::CacheRecord::Began {
        key: "user/1".into(),
        kind,
        number: number(31),
        session: None,
        owner: boxed(),
        holder: "writer".into(),
        ttl_ms: 5_000,
    };
    let (secret, waits_only) = ([0xa5; 32], true);
    vec![
        Record::SessionOpened { session, owner, holder: "worker-1", ttl: 5_000, secret, waits_only },
        Record::Granted(GrantRecord { owner, metadata: b"rack 12", ..granted }),
        Record::Delivery(delivery::DeliveryRecord::Delivered {
            first: number(20),
            items: vec![1, 2],
            session: Some(session),
            owner: boxed(),
            holder: "worker-1".into(),
            visibility_ms: 30_000,
        }),
        Record::Cache(cache::CacheRecord::Read {
            key: "user/1".into(),
            lease: number(30),
            session: None,
            owner: boxed(),
            reader: "reader".into(),
            ttl_ms: 5_000,
        }),
        Record::Cache(began(cache::OwnerKind::Intent)),
        Record::Cache(began(cache::OwnerKind::Fill)),
    ]
}

fn delivery_records(session: SessionId) -> Vec<delivery::DeliveryRecord> {
    use delivery::DeliveryRecord;
    vec![
        DeliveryRecord::Enqueued {
            queue: "mail".into(),
            item: 1,
            owner: None,
            body: Arc::from(&b"hello"[..]),
            delay_ms: 250,
            max_attempts: 5,
        },
        DeliveryRecord::Delivered {
            first: number(20),
            items: vec![1, 2],
            session: Some(session),
            owner: None,
            holder: "worker-1".into(),
            visibility_ms: 30_000,
        },
        DeliveryRecord::Extended { item: 1, receipt: number(20), visibility_ms: 30_000 },
        DeliveryRecord::Acked { item: 1, receipt: number(20) },
        DeliveryRecord::Returned { item: 2, receipt: number(21), delay_ms: 100 },
        DeliveryRecord::Expired { item: 2, receipt: number(21) },
        DeliveryRecord::Redriven { item: 2 },
        DeliveryRecord::Dropped { item: 2 },
    ]
}

fn coverage_records() -> Vec<CoverageRecord> {
    let (resource, target) = ("jobs/settle", "ledger");
    vec![
        CoverageRecord::Reported {
            resource: resource.into(),
            slot: 2,
            target: target.into(),
            mode: FenceMode::Cooperative,
            owner: None,
        },
        CoverageRecord::Zombie {
            resource: resource.into(),
            slot: 2,
            target: target.into(),
            presented: number(33),
            mark: number(34),
            times: 7,
            holder: "worker-1".into(),
        },
        CoverageRecord::Forgotten { resource: resource.into(), target: target.into(), comment: "moved".into() },
    ]
}

fn cache_records(session: SessionId) -> Vec<cache::CacheRecord> {
    use cache::{CacheRecord, OwnerKind};
    let began = |kind| CacheRecord::Began {
        key: "user/1".into(),
        kind,
        number: number(31),
        session: Some(session),
        owner: None,
        holder: "writer".into(),
        ttl_ms: 5_000,
    };
    vec![
        CacheRecord::Forgotten { key: "user/0".into() },
        CacheRecord::Read {
            key: "user/1".into(),
            lease: number(30),
            session: Some(session),
            owner: None,
            reader: "reader".into(),
            ttl_ms: 5_000,
        },
        CacheRecord::Renewed { lease: number(30) },
        began(OwnerKind::Intent),
        began(OwnerKind::Fill),
        CacheRecord::Done { number: number(31) },
        CacheRecord::Ended { number: number(31), reason: EndReason::Ttl },
    ]
}

#[test]
fn the_encoding_of_every_record_is_unchanged_and_decodes() {
    let mut now = String::from("# One of every record: its bytes, then its fields.\n");
    for record in records() {
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        now.push_str(&format!("{} {record:?}\n", hex(&bytes)));
    }
    let known = golden("records.txt", &now);
    // The text after the bytes is for people; it shows the field names from the time when the file was written.
    let bytes = |text: &str| text.lines().map(|line| line.split(' ').next().unwrap().to_owned()).collect::<Vec<_>>();
    assert_eq!(bytes(&now), bytes(&known), "the encoding of a record changed: existing journals could not be read");
    for (line, record) in known.lines().filter(|line| !line.starts_with('#')).zip(records()) {
        let bytes = unhex(line.split(' ').next().unwrap());
        let mut from = Reader::new(&bytes);
        assert_eq!(Record::decode(&mut from).unwrap(), record);
        assert!(from.is_empty(), "trailing bytes after {record:?}");
    }
}

#[test]
fn every_record_tag_is_in_the_golden_file() {
    let tags: std::collections::BTreeSet<u8> = records()
        .iter()
        .map(|record| {
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            bytes[0]
        })
        .collect();
    let known = (0..=u8::MAX).filter(|tag| {
        let wrong = Record::decode(&mut Reader::new(&[*tag])).err();
        wrong.is_none_or(|wrong| wrong.problem != "unknown record")
    });
    assert_eq!(tags, known.collect());
}
