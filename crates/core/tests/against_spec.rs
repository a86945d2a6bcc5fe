//! The core does what a small naive specification says, over random runs with crashes, failovers and restores in between.

mod spec;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use leasehold_core::codec::{Reader, Write};
use leasehold_core::grantor::{Corrupt, Recovered, recover};
use leasehold_core::ids::{LeaseId, SessionId};
use leasehold_core::lease::{Access, Reason};
use leasehold_core::record::{Cause, Granted, Header, Outcome, Record, Waiting};
use leasehold_core::refusal::Refusal;
use leasehold_core::time::{Millis, Wall};
use leasehold_core::token::{Incarnation, Number};
use spec::{Act, Chance, Seen, quietly};

/// One of three numbers, by how hard to try.
#[allow(clippy::disallowed_methods, reason = "a test asks its surroundings how hard to try; the core does not")]
fn by_depth(quick: u64, full: u64, deep: u64) -> u64 {
    match std::env::var("LEASEHOLD_DEPTH").as_deref() {
        Ok("quick") => quick,
        Ok("deep") => deep,
        _ => full,
    }
}

/// A runner of properties that draws the same cases every time; how many, `PROPTEST_CASES` says.
fn runner() -> TestRunner {
    let config = Config { failure_persistence: None, max_shrink_iters: 0, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
}

/// What all runs together must have met at least once; otherwise they show less than they seem to.
const SOMETIMES: [&str; 61] = [
    "CANCELLED",
    "DEADLOCK",
    "TIMEOUT",
    "a batch landed and nobody heard",
    "a batch was lost",
    "a collection",
    "a confirmed hold",
    "a deadlock refused",
    "a deadlock reported",
    "a deadlock revoked",
    "a first renewal of a tenure",
    "a grant after a wait",
    "a hold entered again",
    "a hold for an operator",
    "a hold freed",
    "a lease ended in the turn that was late for it",
    "a new ttl",
    "a notice to go",
    "a pin",
    "a pre-emption taken back",
    "a quarantine waived",
    "a request came again",
    "a resized hold",
    "a restore",
    "a rollback",
    "a rotated token",
    "a session ran out",
    "a session was heard again",
    "a shown token proved a rollback",
    "a snapshot",
    "a stall",
    "a target forgotten",
    "a target that reported",
    "a veto",
    "a wait by several actors of one session",
    "a wait for several resources",
    "a wait may pass",
    "a wait that was not heard yet",
    "a zombie",
    "an inherited priority",
    "an opening from a snapshot",
    "an opening that never served",
    "an overlap",
    "deadlock",
    "exclusive",
    "handed_off",
    "max_hold",
    "more units used than there are",
    "operator",
    "policy",
    "priority",
    "progress on record",
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
fn the_core_answers_as_the_spec_over_many_runs() {
    let mut seen = Seen::new();
    for seed in 0..by_depth(300, 3_000, 60_000) {
        match spec::seen_by(seed) {
            Ok(met) => met.into_iter().for_each(|(what, times)| *seen.entry(what).or_default() += times),
            Err(why) => panic!("{why}"),
        }
    }
    let never: Vec<&str> = SOMETIMES.into_iter().filter(|what| !seen.contains_key(what)).collect();
    assert!(never.is_empty(), "no run met {never:?}; all met {seen:?}");
}

#[test]
fn the_core_answers_as_the_spec_whatever_happens_in_which_order() {
    let act = prop_oneof![
        40 => any::<u64>().prop_map(Act::Ask),
        10 => (0..130_u64).prop_map(Act::Turn),
        3 => (0..4_000_u64).prop_map(Act::Turn),
        2 => (0..4_000_u64).prop_map(Act::Serve),
        4 => Just(Act::RenewSessions),
        2 => Just(Act::RenewLeases),
        1 => Just(Act::Snapshot),
        2 => (any::<bool>(), any::<bool>(), 0..5_000_u64)
            .prop_map(|(landed, unserved, outage)| Act::Crash { landed, unserved, outage }),
        1 => (0..6_u64, 1..5_000_u64).prop_map(|(batches, outage)| Act::RollBack { batches, outage }),
        1 => (0..6_u64, 1..5_000_u64, any::<bool>())
            .prop_map(|(batches, outage, floor)| Act::Restore { batches, outage, floor }),
    ];
    let runs = (any::<u64>(), prop::collection::vec(act, 1..150));
    let result = runner().run(&runs, |(seed, acts)| spec::run(seed, &acts).map(|_| ()).map_err(TestCaseError::fail));
    if let Err(why) = result {
        panic!("{why}");
    }
}

/// What bytes from anywhere make of a grantor: a state that can be told, or a complaint. Never a panic.
fn look(bytes: &[u8], how: impl Fn(&[u8]) -> Result<Recovered, Corrupt>) -> Result<bool, TestCaseError> {
    let told = quietly(|| {
        how(bytes).is_ok_and(|state| {
            let told = state.snapshot();
            state.state_hash() != [0; 32] && !told.is_empty()
        })
    });
    told.map_err(|panic| TestCaseError::fail(format!("panicked ({panic}) on {bytes:02x?}")))
}

/// Bytes of a batch that begins a journal, with whatever behind its header.
fn first_batch(rest: &[u8]) -> Vec<u8> {
    let mut batch = Vec::new();
    Header { chain: [0; 32], time: Millis(0), wall: Wall(0) }.encode(&mut batch);
    batch.extend_from_slice(rest);
    batch
}

#[test]
fn arbitrary_bytes_are_read_or_refused() {
    let bytes = prop::collection::vec(any::<u8>(), 0..400);
    let result = runner().run(&bytes, |bytes| {
        let read = quietly(|| {
            let mut from = Reader::new(&bytes);
            while !from.is_empty() && Record::decode(&mut from).is_ok() {}
        });
        prop_assert!(read.is_ok(), "{read:?} on {bytes:02x?}");
        look(&bytes, |bytes| recover(1, None, [bytes]))?;
        look(&first_batch(&bytes), |bytes| recover(1, None, [bytes]))?;
        look(&bytes, |bytes| Recovered::from_snapshot(bytes, 1))?;
        Ok(())
    });
    if let Err(why) = result {
        panic!("{why}");
    }
}

/// Something done to bytes that were right: a bit, a byte, a cut, a piece twice, or a number that claims far too much.
fn damaged(bytes: &[u8], chance: &mut Chance) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let at = chance.below(bytes.len() as u64) as usize;
    match chance.below(6) {
        0 | 1 => bytes[at] ^= 1 << chance.below(8),
        2 => bytes[at] = chance.next() as u8,
        3 => bytes.truncate(at),
        4 => {
            let piece = bytes[at..(at + chance.below(40) as usize).min(bytes.len())].to_vec();
            let to = chance.below(bytes.len() as u64) as usize;
            bytes.splice(to..to, piece);
        }
        _ => {
            let mut huge = Vec::new();
            huge.num(u64::MAX >> chance.below(50));
            bytes.splice(at..=at, huge);
        }
    }
    bytes
}

#[test]
fn damaged_snapshots_and_batches_are_read_or_refused() {
    let mut chance = Chance(11);
    let (mut read, mut refused) = (0, 0);
    for seed in 0..by_depth(6, 30, 300) {
        let (batches, snapshot) = spec::kept_by(seed, 60);
        for _ in 0..200 {
            let bytes = damaged(&snapshot, &mut chance);
            let ok = look(&bytes, |bytes| Recovered::from_snapshot(bytes, 1)).unwrap_or_else(|why| panic!("{why}"));
            *(if ok { &mut read } else { &mut refused }) += 1;
            let i = chance.below(batches.len() as u64) as usize;
            let bytes = damaged(&batches[i], &mut chance);
            let ok = look(&bytes, |bytes| {
                let before = batches[..i].iter().map(|batch| &batch[..]);
                recover(1, None, before.chain([bytes]))
            });
            *(if ok.unwrap_or_else(|why| panic!("{why}")) { &mut read } else { &mut refused }) += 1;
        }
    }
    assert!(read > 0 && refused > 0, "{read} read, {refused} refused");
}

#[test]
fn a_flipped_bit_of_a_batch_is_found_at_the_latest_by_the_next_one() {
    for seed in 0..by_depth(1, 4, 40) {
        let (batches, _) = spec::kept_by(seed, 25);
        for i in 0..batches.len() - 1 {
            let mut before =
                recover(1, None, batches[..i].iter().map(|batch| &batch[..])).expect("the journal replays");
            let start = before.snapshot();
            for bit in 0..batches[i].len() * 8 {
                let mut flipped = batches[i].clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                let found = before.apply(&flipped).and_then(|()| before.apply(&batches[i + 1])).is_err();
                assert!(found, "seed {seed}: bit {bit} of batch {i} was flipped and nobody noticed");
                before = Recovered::from_snapshot(&start, 1).expect("the state is read again");
            }
        }
    }
}

#[test]
fn a_claimed_length_is_never_believed() {
    let (batches, snapshot) = spec::kept_by(3, 60);
    let mut huge = Vec::new();
    huge.num(u64::MAX / 2);
    for at in 0..snapshot.len() {
        let mut bytes = snapshot.clone();
        bytes.splice(at..=at, huge.clone());
        look(&bytes, |bytes| Recovered::from_snapshot(bytes, 1)).unwrap_or_else(|why| panic!("{why}"));
    }
    for at in 0..batches[1].len() {
        let mut bytes = batches[1].clone();
        bytes.splice(at..=at, huge.clone());
        let read = look(&bytes, |bytes| recover(1, None, [&batches[0][..], bytes]));
        read.unwrap_or_else(|why| panic!("{why}"));
    }
    let long = "x".repeat(70_000);
    let session = SessionId { slot: 0, reuse: 0 };
    let mut rest = Vec::new();
    Record::SessionOpened { session, holder: &long, ttl: 1_000, secret: [0; 32], waits_only: false }.encode(&mut rest);
    let ok = look(&first_batch(&rest), |bytes| recover(1, None, [bytes])).unwrap_or_else(|why| panic!("{why}"));
    assert!(!ok, "a holder's name of 70,000 bytes");
}

/// A record that somebody could have put together, whether or not it fits anything.
fn some_record(chance: &mut Chance) -> Record<'static> {
    let small = |chance: &mut Chance| chance.pick(&[0, 0, 1, 1, 2, 3, 4, 7, u32::MAX]);
    let large = |chance: &mut Chance| chance.pick(&[0, 1, 100, 5_000, 1 << 40, u64::MAX]);
    let name = |chance: &mut Chance| chance.pick(&["plain/a", "plain/b", "pool/x", "urgent/x", "seats/x"]);
    let who = |chance: &mut Chance| chance.pick(&["ann", "bob", "one"]);
    let access = |chance: &mut Chance| {
        chance.pick(&[Access::Exclusive, Access::Shared, Access::Slot, Access::Units(1), Access::Units(u32::MAX)])
    };
    let maybe = |chance: &mut Chance| chance.pick(&[None, None, Some(0), Some(300), Some(u64::MAX)]);
    let reason = |chance: &mut Chance| chance.pick(&Reason::ALL);
    let number = Number::new(1 + (chance.next() >> 2)).expect("in range");
    let (lease, at, until) = (small(chance), large(chance), Millis(large(chance)));
    match chance.below(26) {
        0 => Record::Opened { generation: at, counter: large(chance) },
        1 => Record::Stalled { ms: at },
        2 => Record::Restored { incarnation: Incarnation(2), counter: at, quarantine: until },
        3 => Record::RolledBack { shown: number, counter: number.get(), quarantine: until },
        4 => Record::SessionAlive { session: lease },
        5 => Record::SessionEnded { session: SessionId { slot: lease, reuse: 0 }, reason: reason(chance) },
        6..=9 => Record::Granted(Granted {
            lease: LeaseId { slot: chance.below(30) as u32, reuse: 0 },
            number,
            resource: name(chance),
            session: chance.pick(&[None, Some(0), Some(1), Some(2), Some(9)]),
            holder: who(chance),
            access: access(chance),
            slot: small(chance),
            ttl: small(chance),
            priority: chance.next() as u8,
            waiter: chance.pick(&[None, None, Some(0), Some(1)]),
            overlaps: chance.pick(&[None, None, Some(0), Some(lease)]),
            max_hold: maybe(chance),
            progress: maybe(chance),
            metadata: b"",
        }),
        10 => Record::Depth { lease, depth: small(chance) },
        11 => Record::Alive { lease },
        12 => Record::Retimed { lease, ttl: small(chance) },
        13 => Record::Ended { lease, number, reason: reason(chance), hold: chance.one_in(2), why: "" },
        14 => Record::Rotated { lease, number },
        15 => Record::Progressed { lease, at },
        16 | 17 => Record::Waiting(Waiting {
            waiter: chance.below(4) as u32,
            session: chance.below(4) as u32,
            holder: who(chance),
            asks: (0..1 + chance.below(3)).map(|_| (name(chance), access(chance))).collect(),
            several: chance.one_in(2),
            ttl: small(chance),
            priority: chance.next() as u8,
            until,
            sequence: maybe(chance),
            max_hold: maybe(chance),
            progress: maybe(chance),
            metadata: b"",
        }),
        18 => Record::WaitEnded { waiter: lease, why: Refusal::Timeout },
        19 => Record::Draining { lease, cause: Cause::Priority, until },
        20 => Record::DrainDropped { lease },
        21 => Record::Capacity { resource: name(chance), units: small(chance), lasting: chance.one_in(2) },
        22 => Record::HoldConfirmed { lease, number },
        23 => Record::HoldResized { lease, units: small(chance) },
        24 => Record::Pinned { lease, at },
        _ => Record::Answered { session: lease, sequence: at, lowest: at, digest: 0, outcome: Outcome::Waiting },
    }
}

#[test]
fn records_that_fit_no_state_are_refused() {
    let mut chance = Chance(23);
    let (mut fitted, mut refused) = (0, 0);
    for seed in 0..by_depth(10, 60, 600) {
        let (_, snapshot) = spec::kept_by(seed, 50);
        for _ in 0..200 {
            let mut state = Recovered::from_snapshot(&snapshot, 1).expect("a kept state is read");
            let records: Vec<Record<'_>> = (0..1 + chance.below(4)).map(|_| some_record(&mut chance)).collect();
            let mut batch = Vec::new();
            let header = Header { chain: state.chain(), time: Millis(1 << 40), wall: Wall(1 << 40) };
            header.encode(&mut batch);
            records.iter().for_each(|record| record.encode(&mut batch));
            let applied = quietly(|| state.apply(&batch).is_ok() && !state.snapshot().is_empty());
            match applied {
                Ok(true) => fitted += 1,
                Ok(false) => refused += 1,
                Err(panic) => panic!("seed {seed}: {panic}: {records:?}"),
            }
        }
    }
    assert!(fitted > 0 && refused > 0, "{fitted} fitted, {refused} refused");
}
