//! Compares the core with a simple specification, over random runs with crashes, failovers and restores.

mod spec;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use leasehold_core::codec::{Reader, Write};
use leasehold_core::grantor::{CorruptionError, RecoveredGrantor, recover};
use leasehold_core::ids::{LeaseId, SessionId};
use leasehold_core::lease::{Access, EndReason};
use leasehold_core::record::{BatchHeader, DrainCause, GrantRecord, Record, StoredOutcome, WaitRecord};
use leasehold_core::refusal::Refusal;
use leasehold_core::time::{GrantorTime, WallClock};
use leasehold_core::token::{Incarnation, Number};
use leasehold_testkit::depth::depth;
use leasehold_testkit::rng::SplitMix64;
use spec::{Action, RunCoverage, catch_panic};

/// A property test runner with a fixed seed. `PROPTEST_CASES` sets the number of cases.
fn runner() -> TestRunner {
    let config = Config { failure_persistence: None, max_shrink_iters: 0, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
}

/// Situations that all runs together must reach at least once.
const SOMETIMES: [&str; 64] = [
    "CANCELLED",
    "DEADLOCK",
    "TIMEOUT",
    "a batch became durable and its answers were lost",
    "a batch was lost",
    "a collection",
    "a confirmed reservation",
    "a deadlock refused",
    "a deadlock reported",
    "a deadlock revoked",
    "a first renewal of a tenure",
    "a grant after a wait",
    "a key found its session",
    "a lost token below the counter",
    "a reentrant grant",
    "a resource reserved for an operator",
    "a reserved resource freed",
    "a lease ended in the turn that was late for it",
    "a new ttl",
    "a drain notice",
    "a pin",
    "a canceled preemption",
    "a quarantine waived",
    "a retry",
    "a retry under a key",
    "a resized reservation",
    "a restore",
    "a rollback",
    "a rotated token",
    "an expired session",
    "a session was renewed again",
    "a presented token revealed a rollback",
    "a snapshot",
    "a stall",
    "a target forgotten",
    "a target that reported",
    "a veto",
    "a wait by several actors of one session",
    "a wait for several resources",
    "a wait may overtake",
    "a wait of a session that is not renewed yet",
    "a zombie",
    "an inherited priority",
    "a recovery from a snapshot",
    "a recovery that never served",
    "an overlap",
    "deadlock",
    "exclusive",
    "handed_off",
    "max_hold",
    "more units used than the capacity",
    "operator",
    "policy",
    "priority",
    "recorded progress",
    "released",
    "restored",
    "session",
    "shared",
    "slot",
    "stalled",
    "ttl",
    "units",
    "a late renewal was accepted",
];

#[test]
fn the_core_matches_the_spec_over_many_runs() {
    let mut coverage = RunCoverage::new();
    for seed in 0..depth(300, 3_000, 60_000) {
        match spec::coverage_of(seed) {
            Ok(met) => met.into_iter().for_each(|(what, times)| *coverage.entry(what).or_default() += times),
            Err(error) => panic!("{error}"),
        }
    }
    let never: Vec<&str> = SOMETIMES.into_iter().filter(|what| !coverage.contains_key(what)).collect();
    assert!(never.is_empty(), "no run reached {never:?}; coverage {coverage:?}");
}

#[test]
fn the_core_matches_the_spec_for_any_order_of_actions() {
    let action = prop_oneof![
        40 => any::<u64>().prop_map(Action::Request),
        10 => (0..130_u64).prop_map(Action::Turn),
        3 => (0..4_000_u64).prop_map(Action::Turn),
        2 => (0..4_000_u64).prop_map(Action::Serve),
        4 => Just(Action::RenewSessions),
        2 => Just(Action::RenewLeases),
        1 => Just(Action::Snapshot),
        2 => (any::<bool>(), any::<bool>(), 0..5_000_u64)
            .prop_map(|(durable, unserved, outage)| Action::Crash { durable, unserved, outage }),
        1 => (0..6_u64, 1..5_000_u64).prop_map(|(batches, outage)| Action::RollBack { batches, outage }),
        1 => (0..6_u64, 1..5_000_u64, any::<bool>())
            .prop_map(|(batches, outage, floor)| Action::Restore { batches, outage, floor }),
    ];
    let runs = (any::<u64>(), prop::collection::vec(action, 1..150));
    let result =
        runner().run(&runs, |(seed, actions)| spec::run(seed, &actions).map(|_| ()).map_err(TestCaseError::fail));
    if let Err(error) = result {
        panic!("{error}");
    }
}

/// Recovers a grantor from arbitrary bytes: returns whether they were accepted. A panic fails the test.
fn accepts(
    bytes: &[u8],
    recover: impl Fn(&[u8]) -> Result<RecoveredGrantor, CorruptionError>,
) -> Result<bool, TestCaseError> {
    let result = catch_panic(|| {
        recover(bytes).is_ok_and(|state| {
            let snapshot = state.snapshot();
            state.state_hash() != [0; 32] && !snapshot.is_empty()
        })
    });
    result.map_err(|panic| TestCaseError::fail(format!("panicked ({panic}) on {bytes:02x?}")))
}

/// The first batch of a journal, with arbitrary bytes after its header.
fn first_batch(rest: &[u8]) -> Vec<u8> {
    let mut batch = Vec::new();
    BatchHeader { chain: [0; 32], time: GrantorTime(0), wall: WallClock(0) }.encode(&mut batch);
    batch.extend_from_slice(rest);
    batch
}

#[test]
fn arbitrary_bytes_are_accepted_or_refused_without_a_panic() {
    let bytes = prop::collection::vec(any::<u8>(), 0..400);
    let result = runner().run(&bytes, |bytes| {
        let read = catch_panic(|| {
            let mut from = Reader::new(&bytes);
            while !from.is_empty() && Record::decode(&mut from).is_ok() {}
        });
        prop_assert!(read.is_ok(), "{read:?} on {bytes:02x?}");
        accepts(&bytes, |bytes| recover(1, None, [bytes]))?;
        accepts(&first_batch(&bytes), |bytes| recover(1, None, [bytes]))?;
        accepts(&bytes, |bytes| RecoveredGrantor::from_snapshot(bytes, 1))?;
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

/// Damages valid bytes: flips a bit, changes a byte, truncates, repeats a part, or inserts a huge length.
fn damaged(bytes: &[u8], rng: &mut SplitMix64) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let at = rng.below(bytes.len() as u64) as usize;
    match rng.below(6) {
        0 | 1 => bytes[at] ^= 1 << rng.below(8),
        2 => bytes[at] = rng.next_u64() as u8,
        3 => bytes.truncate(at),
        4 => {
            let piece = bytes[at..(at + rng.below(40) as usize).min(bytes.len())].to_vec();
            let to = rng.below(bytes.len() as u64) as usize;
            bytes.splice(to..to, piece);
        }
        _ => {
            let mut huge = Vec::new();
            huge.num(u64::MAX >> rng.below(50));
            bytes.splice(at..=at, huge);
        }
    }
    bytes
}

#[test]
fn damaged_snapshots_and_batches_are_accepted_or_refused_without_a_panic() {
    let mut rng = SplitMix64::new(11);
    let (mut read, mut refused) = (0, 0);
    for seed in 0..depth(6, 30, 300) {
        let (batches, snapshot) = spec::journal_of(seed, 60);
        for _ in 0..200 {
            let bytes = damaged(&snapshot, &mut rng);
            let ok = accepts(&bytes, |bytes| RecoveredGrantor::from_snapshot(bytes, 1))
                .unwrap_or_else(|error| panic!("{error}"));
            *(if ok { &mut read } else { &mut refused }) += 1;
            let i = rng.below(batches.len() as u64) as usize;
            let bytes = damaged(&batches[i], &mut rng);
            let ok = accepts(&bytes, |bytes| {
                let before = batches[..i].iter().map(|batch| &batch[..]);
                recover(1, None, before.chain([bytes]))
            });
            *(if ok.unwrap_or_else(|error| panic!("{error}")) { &mut read } else { &mut refused }) += 1;
        }
    }
    assert!(read > 0 && refused > 0, "{read} read, {refused} refused");
}

#[test]
fn a_flipped_bit_in_a_batch_is_detected_by_the_next_batch_at_the_latest() {
    for seed in 0..depth(1, 4, 40) {
        let (batches, _) = spec::journal_of(seed, 25);
        for i in 0..batches.len() - 1 {
            let mut before =
                recover(1, None, batches[..i].iter().map(|batch| &batch[..])).expect("the journal replays");
            let start = before.snapshot();
            for bit in 0..batches[i].len() * 8 {
                let mut flipped = batches[i].clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                let found = before.apply(&flipped).and_then(|()| before.apply(&batches[i + 1])).is_err();
                assert!(found, "seed {seed}: bit {bit} of batch {i} was flipped and not detected");
                before = RecoveredGrantor::from_snapshot(&start, 1).expect("its own snapshot");
            }
        }
    }
}

#[test]
fn a_length_field_never_causes_a_large_allocation() {
    let (batches, snapshot) = spec::journal_of(3, 60);
    let mut huge = Vec::new();
    huge.num(u64::MAX / 2);
    for at in 0..snapshot.len() {
        let mut bytes = snapshot.clone();
        bytes.splice(at..=at, huge.clone());
        accepts(&bytes, |bytes| RecoveredGrantor::from_snapshot(bytes, 1)).unwrap_or_else(|error| panic!("{error}"));
    }
    for at in 0..batches[1].len() {
        let mut bytes = batches[1].clone();
        bytes.splice(at..=at, huge.clone());
        let read = accepts(&bytes, |bytes| recover(1, None, [&batches[0][..], bytes]));
        read.unwrap_or_else(|error| panic!("{error}"));
    }
    let long = "x".repeat(70_000);
    let session = SessionId { slot: 0, reuse: 0 };
    let mut rest = Vec::new();
    let opened = |owner, holder| {
        let (secret, waits_only) = ([0; 32], false);
        Record::SessionOpened { session, owner, holder, ttl: 1_000, secret, waits_only }
    };
    opened(None, &long).encode(&mut rest);
    let ok = accepts(&first_batch(&rest), |bytes| recover(1, None, [bytes])).unwrap_or_else(|error| panic!("{error}"));
    assert!(!ok, "a holder name of 70,000 bytes was accepted");
    for (owner, valid) in [(&long[..2_048], true), (&long[..2_049], false), ("", false), ("local", false)] {
        let mut rest = Vec::new();
        opened(Some(owner), "ann").encode(&mut rest);
        let read = |bytes: &[u8]| recover(1, None, [bytes]);
        let ok = accepts(&first_batch(&rest), read).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(ok, valid, "an owner of {} bytes", owner.len());
    }
}

/// A well-formed record that may not apply to the state.
fn some_record(rng: &mut SplitMix64) -> Record<'static> {
    let small = |rng: &mut SplitMix64| rng.pick(&[0, 0, 1, 1, 2, 3, 4, 7, u32::MAX]);
    let large = |rng: &mut SplitMix64| rng.pick(&[0, 1, 100, 5_000, 1 << 40, u64::MAX]);
    let name = |rng: &mut SplitMix64| rng.pick(&["plain/a", "plain/b", "pool/x", "urgent/x", "seats/x"]);
    let holder = |rng: &mut SplitMix64| rng.pick(&["ann", "bob", "one"]);
    let access = |rng: &mut SplitMix64| {
        rng.pick(&[Access::Exclusive, Access::Shared, Access::Slot, Access::Units(1), Access::Units(u32::MAX)])
    };
    let maybe = |rng: &mut SplitMix64| rng.pick(&[None, None, Some(0), Some(300), Some(u64::MAX)]);
    let reason = |rng: &mut SplitMix64| rng.pick(&EndReason::ALL);
    let number = Number::new(1 + (rng.next_u64() >> 2)).expect("in range");
    let (lease, at, until) = (small(rng), large(rng), GrantorTime(large(rng)));
    match rng.below(26) {
        0 => Record::Opened { generation: at, counter: large(rng) },
        1 => Record::Stalled { ms: at },
        2 => Record::Restored { incarnation: Incarnation(2), counter: at, quarantine: until },
        3 => Record::RolledBack { presented: number, counter: number.get(), quarantine: until },
        4 => Record::SessionAlive { session: lease },
        5 => Record::SessionEnded { session: SessionId { slot: lease, reuse: 0 }, reason: reason(rng) },
        6..=9 => Record::Granted(GrantRecord {
            lease: LeaseId { slot: rng.below(30) as u32, reuse: 0 },
            number,
            resource: name(rng),
            session: rng.pick(&[None, Some(0), Some(1), Some(2), Some(9)]),
            owner: rng.pick(&[None, None, Some("uid:7")]),
            holder: holder(rng),
            access: access(rng),
            slot: small(rng),
            ttl: small(rng),
            priority: rng.next_u64() as u8,
            waiter: rng.pick(&[None, None, Some(0), Some(1)]),
            overlaps: rng.pick(&[None, None, Some(0), Some(lease)]),
            max_hold: maybe(rng),
            progress: maybe(rng),
            metadata: b"",
        }),
        10 => Record::Depth { lease, depth: small(rng) },
        11 => Record::Alive { lease },
        12 => Record::Retimed { lease, ttl: small(rng) },
        13 => Record::Ended { lease, number, reason: reason(rng), hold: rng.one_in(2), comment: "" },
        14 => Record::Rotated { lease, number },
        15 => Record::Progressed { lease, at },
        16 | 17 => Record::Waiting(WaitRecord {
            waiter: rng.below(4) as u32,
            session: rng.below(4) as u32,
            holder: holder(rng),
            resources: (0..1 + rng.below(3)).map(|_| (name(rng), access(rng))).collect(),
            atomic: rng.one_in(2),
            ttl: small(rng),
            priority: rng.next_u64() as u8,
            until,
            sequence: maybe(rng),
            max_hold: maybe(rng),
            progress: maybe(rng),
            metadata: b"",
        }),
        18 => Record::WaitEnded { waiter: lease, refusal: Refusal::Timeout },
        19 => Record::Draining { lease, cause: DrainCause::Priority, until },
        20 => Record::DrainDropped { lease },
        21 => Record::Capacity { resource: name(rng), units: small(rng), lasting: rng.one_in(2) },
        22 => Record::HoldConfirmed { lease, number },
        23 => Record::HoldResized { lease, units: small(rng) },
        24 => Record::Pinned { lease, at },
        _ => Record::Answered { session: lease, sequence: at, lowest: at, digest: 0, outcome: StoredOutcome::Waiting },
    }
}

#[test]
fn records_that_do_not_apply_to_the_state_are_refused() {
    let mut rng = SplitMix64::new(23);
    let (mut fitted, mut refused) = (0, 0);
    for seed in 0..depth(10, 60, 600) {
        let (_, snapshot) = spec::journal_of(seed, 50);
        for _ in 0..200 {
            let mut state = RecoveredGrantor::from_snapshot(&snapshot, 1).expect("a valid snapshot");
            let records: Vec<Record<'_>> = (0..1 + rng.below(4)).map(|_| some_record(&mut rng)).collect();
            let mut batch = Vec::new();
            let header = BatchHeader { chain: state.chain(), time: GrantorTime(1 << 40), wall: WallClock(1 << 40) };
            header.encode(&mut batch);
            records.iter().for_each(|record| record.encode(&mut batch));
            let applied = catch_panic(|| state.apply(&batch).is_ok() && !state.snapshot().is_empty());
            match applied {
                Ok(true) => fitted += 1,
                Ok(false) => refused += 1,
                Err(panic) => panic!("seed {seed}: {panic}: {records:?}"),
            }
        }
    }
    assert!(fitted > 0 && refused > 0, "{fitted} fitted, {refused} refused");
}
