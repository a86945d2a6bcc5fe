//! Conformance suite of a journal: one named check for each obligation of [`Journal`].
//!
//! Obligations 13 and 14 need a disk that is full or fails on command; each journal has its own tests for them.

mod audit_files;
mod join_futures;

use std::fmt;
use std::ops::ControlFlow;

use leasehold_core::grantor::CorruptionError;

use join_futures::join;

use super::{
    AppendOutcome, FIRST, Journal, JournalLocation, OpenedJournal, ReadError, Replay, SnapshotStore, WriterStatus,
};

/// How an open treats an existing writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fencing {
    /// It ends the authority of that writer.
    Takeover,
    /// It is refused while that writer lives, because the fence is a lock on one machine.
    ExclusiveLock,
}

/// An obligation that a journal violates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokenObligation {
    /// Name of the check.
    pub check: &'static str,
    /// The violation.
    pub reason: String,
}

impl fmt::Display for BrokenObligation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.check, self.reason)
    }
}

impl std::error::Error for BrokenObligation {}

/// A replay that records everything it receives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordedReplay {
    /// The snapshot, if there was one.
    pub snapshot: Option<(u64, Vec<u8>)>,
    /// The batches, in order.
    pub batches: Vec<(u64, Vec<u8>)>,
}

impl Replay for RecordedReplay {
    fn snapshot(&mut self, sequence: u64, bytes: &[u8]) -> Result<(), CorruptionError> {
        if self.snapshot.is_some() || !self.batches.is_empty() {
            return Err(CorruptionError { at: 0, problem: "a snapshot comes first and once" });
        }
        self.snapshot = Some((sequence, bytes.to_vec()));
        Ok(())
    }

    fn batch(&mut self, sequence: u64, bytes: &[u8]) -> Result<(), CorruptionError> {
        self.batches.push((sequence, bytes.to_vec()));
        Ok(())
    }
}

/// Runs all checks; `new` returns an empty location for each. Returns the names of the checks that passed.
pub async fn run<L: JournalLocation>(
    new: impl Fn() -> L,
    fencing: Fencing,
) -> Result<Vec<&'static str>, BrokenObligation> {
    let mut passed = Vec::new();
    macro_rules! check {
        ($name:literal, $check:expr) => {
            let outcome: CheckResult = $check.await;
            outcome.map_err(|reason| BrokenObligation { check: $name, reason })?;
            passed.push($name);
        };
    }
    check!("1 opening fences", opening_fences(&new(), fencing));
    check!("2 generations rise", generations_rise(&new()));
    check!("3 replay is complete and in order", replay_is_complete(&new()));
    check!("4 durable batches are replayed", durable_batches_are_replayed(&new()));
    check!("5 only appended batches are replayed", only_appended_batches_are_replayed(&new()));
    check!("6 a resend is harmless", a_resend_is_harmless(&new()));
    if fencing == Fencing::Takeover {
        check!("7 a fenced writer changes nothing", a_fenced_writer_changes_nothing(&new()));
    }
    check!("8 confirm is linearizable", confirm_is_linearizable(&new(), fencing));
    check!("9 snapshots replace batches", snapshots_replace_batches(&new()));
    check!("10 trim removes only covered batches", trim_removes_only_covered_batches(&new()));
    check!("11 tail reads durable batches", tail_reads_durable_batches(&new()));
    check!("12 snapshots are independent of appends", snapshots_are_independent_of_appends(&new()));
    check!("15 synced audit files are durable", audit_files::synced_files_are_durable(&new()));
    Ok(passed)
}

/// A batch with unique content, from one byte to a few sectors.
pub fn batch(number: u64) -> Vec<u8> {
    let length = 1 + (number.wrapping_mul(397) % 1_500) as usize;
    let mut batch = format!("batch {number}.").into_bytes();
    batch.resize(length, number as u8 | 1);
    batch[0] = number as u8;
    batch
}

type CheckResult = Result<(), String>;

async fn opening_fences<L: JournalLocation>(location: &L, fencing: Fencing) -> CheckResult {
    let (mut first, _) = open(location).await?;
    durable(&mut first, 1).await?;
    match (fencing, open(location).await) {
        (Fencing::ExclusiveLock, Ok(_)) => Err("a second open succeeded while the first writer lives".to_owned()),
        (Fencing::ExclusiveLock, Err(_)) => {
            durable(&mut first, 2).await?;
            drop(first);
            let (second, replay) = open(location).await?;
            same("replay after a refused open", &numbers(&replay), &vec![1, 2])?;
            same("next", &second.next(), &3)
        }
        (Fencing::Takeover, second) => {
            let (mut second, replay) = second?;
            same("replay of the second open", &numbers(&replay), &vec![1])?;
            same("the first writer's append", &first.append(2, b"late").await, &Ok(AppendOutcome::Fenced))?;
            durable(&mut second, 2).await
        }
    }
}

async fn generations_rise<L: JournalLocation>(location: &L) -> CheckResult {
    let mut highest = 0;
    for sequence in FIRST..FIRST + 5 {
        let (mut journal, _) = open(location).await?;
        if journal.generation() <= highest {
            return Err(format!("generation {} after {highest}", journal.generation()));
        }
        highest = journal.generation();
        // An open without a write counts too.
        if sequence.is_multiple_of(2) {
            let next = journal.next();
            durable(&mut journal, next).await?;
        }
    }
    Ok(())
}

async fn replay_is_complete<L: JournalLocation>(location: &L) -> CheckResult {
    let (journal, replay) = open(location).await?;
    same("an empty journal's replay", &replay, &RecordedReplay::default())?;
    same("an empty journal's next", &journal.next(), &FIRST)?;
    drop(journal);
    for round in 1..=4 {
        let (mut journal, replay) = open(location).await?;
        let before = (round - 1) * 10;
        same("replay", &replay.batches, &batches(1..=before))?;
        for sequence in before + 1..=round * 10 {
            same("next", &journal.next(), &sequence)?;
            durable(&mut journal, sequence).await?;
        }
    }
    Ok(())
}

async fn durable_batches_are_replayed<L: JournalLocation>(location: &L) -> CheckResult {
    let (mut journal, _) = open(location).await?;
    let sizes = [1, 2, 7, 8, 9, 495, 496, 497, 4_096, 65_537, 300_000];
    let batches: Vec<_> = (FIRST..).zip(sizes.map(|size| vec![0xA5; size])).collect();
    for (sequence, batch) in &batches {
        same("append", &journal.append(*sequence, batch).await, &Ok(AppendOutcome::Durable))?;
    }
    // A batch of zeros looks like unwritten space.
    let zeros = (FIRST + sizes.len() as u64, vec![0; 3_000]);
    same("append of zeros", &journal.append(zeros.0, &zeros.1).await, &Ok(AppendOutcome::Durable))?;
    drop(journal);
    let (_, replay) = open(location).await?;
    if replay.batches != [batches, vec![zeros]].concat() {
        return Err(format!("{} batches were replayed, or they differ", replay.batches.len()));
    }
    Ok(())
}

async fn only_appended_batches_are_replayed<L: JournalLocation>(location: &L) -> CheckResult {
    let (mut journal, _) = open(location).await?;
    durable(&mut journal, 1).await?;
    drop(journal);
    for _ in 0..3 {
        let (journal, replay) = open(location).await?;
        same("replay", &replay, &RecordedReplay { snapshot: None, batches: vec![(1, batch(1))] })?;
        same("next", &journal.next(), &2)?;
    }
    Ok(())
}

async fn a_resend_is_harmless<L: JournalLocation>(location: &L) -> CheckResult {
    let (mut journal, _) = open(location).await?;
    for sequence in 1..=3 {
        durable(&mut journal, sequence).await?;
        durable(&mut journal, sequence).await?;
        same("other bytes", &journal.append(sequence, b"other").await, &Ok(AppendOutcome::Fenced))?;
        same("next after a resend", &journal.next(), &(sequence + 1))?;
    }
    drop(journal);
    let (_, replay) = open(location).await?;
    same("replay", &replay.batches, &batches(1..=3))
}

async fn a_fenced_writer_changes_nothing<L: JournalLocation>(location: &L) -> CheckResult {
    let (mut first, _) = open(location).await?;
    let snapshots = first.snapshots();
    durable(&mut first, 1).await?;
    durable(&mut first, 2).await?;
    let (mut second, _) = open(location).await?;
    durable(&mut second, 3).await?;
    for _ in 0..2 {
        same("append", &first.append(3, &batch(3)).await, &Ok(AppendOutcome::Fenced))?;
        same("confirm", &first.confirm().await, &Ok(WriterStatus::Fenced))?;
        same("save", &snapshots.save(2, b"old").await, &Ok(AppendOutcome::Fenced))?;
        same("trim", &snapshots.trim(2).await, &Ok(AppendOutcome::Fenced))?;
    }
    same("the second's snapshot", &second.snapshots().save(1, b"one").await, &Ok(AppendOutcome::Durable))?;
    same("trim by the first", &snapshots.trim(1).await, &Ok(AppendOutcome::Fenced))?;
    drop((first, second, snapshots));
    let (_, replay) = open(location).await?;
    same("snapshot", &replay.snapshot, &Some((1, b"one".to_vec())))?;
    same("batches", &numbers(&replay), &vec![2, 3])
}

async fn confirm_is_linearizable<L: JournalLocation>(location: &L, fencing: Fencing) -> CheckResult {
    let (mut first, _) = open(location).await?;
    same("confirm before any append", &first.confirm().await, &Ok(WriterStatus::Current))?;
    durable(&mut first, 1).await?;
    same("confirm", &first.confirm().await, &Ok(WriterStatus::Current))?;
    match (fencing, open(location).await) {
        (Fencing::ExclusiveLock, _) => same("confirm", &first.confirm().await, &Ok(WriterStatus::Current)),
        (Fencing::Takeover, second) => {
            let (mut second, _) = second?;
            same("the first's confirm", &first.confirm().await, &Ok(WriterStatus::Fenced))?;
            same("the second's confirm", &second.confirm().await, &Ok(WriterStatus::Current))
        }
    }
}

async fn snapshots_replace_batches<L: JournalLocation>(location: &L) -> CheckResult {
    let (mut journal, _) = open(location).await?;
    let snapshots = journal.snapshots();
    same("no snapshot", &snapshots.newest().await, &Ok(None))?;
    let large = vec![7; 200_000];
    for sequence in 1..=20 {
        durable(&mut journal, sequence).await?;
        if sequence.is_multiple_of(5) {
            same(
                "save",
                &snapshots.save(sequence, &large[..sequence as usize * 10_000]).await,
                &Ok(AppendOutcome::Durable),
            )?;
        }
        if sequence == 17 {
            same("an older snapshot", &snapshots.save(3, b"old").await, &Ok(AppendOutcome::Durable))?;
            same("newest", &snapshots.newest().await, &Ok(Some((15, large[..150_000].to_vec()))))?;
        }
    }
    durable(&mut journal, 21).await?;
    drop((journal, snapshots));
    let (mut journal, replay) = open(location).await?;
    same("snapshot", &replay.snapshot.map(|(at, bytes)| (at, bytes == large)), &Some((20, true)))?;
    same("batches after it", &replay.batches, &vec![(21, batch(21))])?;
    same("a snapshot of the last batch", &journal.snapshots().save(21, b"all").await, &Ok(AppendOutcome::Durable))?;
    drop(journal);
    let replay;
    (journal, replay) = open(location).await?;
    same(
        "everything is in a snapshot",
        &replay,
        &RecordedReplay { snapshot: Some((21, b"all".to_vec())), batches: Vec::new() },
    )?;
    same("next", &journal.next(), &22)
}

async fn trim_removes_only_covered_batches<L: JournalLocation>(location: &L) -> CheckResult {
    let (mut journal, _) = open(location).await?;
    let snapshots = journal.snapshots();
    for sequence in 1..=30 {
        durable(&mut journal, sequence).await?;
    }
    same("trim without a snapshot", &snapshots.trim(30).await, &Ok(AppendOutcome::Durable))?;
    same("all batches", &tail(&snapshots, 1).await, &Ok(((1..=30).collect(), 31)))?;
    for sequence in [10, 20] {
        same("save", &snapshots.save(sequence, b"state").await, &Ok(AppendOutcome::Durable))?;
        same("trim", &snapshots.trim(u64::MAX).await, &Ok(AppendOutcome::Durable))?;
        same("not covered", &tail(&snapshots, sequence + 1).await, &Ok(((sequence + 1..=30).collect(), 31)))?;
    }
    durable(&mut journal, 31).await?;
    drop((journal, snapshots));
    let (_, replay) = open(location).await?;
    same("snapshot", &replay.snapshot, &Some((20, b"state".to_vec())))?;
    same("batches", &replay.batches, &batches(21..=31))
}

async fn tail_reads_durable_batches<L: JournalLocation>(location: &L) -> CheckResult {
    let (mut journal, _) = open(location).await?;
    let snapshots = journal.snapshots();
    same("empty tail", &tail(&snapshots, 1).await, &Ok((Vec::new(), 1)))?;
    for sequence in 1..=40 {
        durable(&mut journal, sequence).await?;
    }
    for from in [1, 2, 39, 40] {
        same("tail", &tail(&snapshots, from).await, &Ok(((from..=40).collect(), 41)))?;
    }
    same("nothing yet", &tail(&snapshots, 41).await, &Ok((Vec::new(), 41)))?;
    let mut visited = Vec::new();
    let mut visit = |sequence: u64, bytes: &[u8]| {
        visited.push((sequence, bytes.to_vec()));
        if sequence == 7 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    same("tail after a break", &snapshots.tail(5, &mut visit).await, &Ok(8))?;
    same("visited", &visited, &batches(5..=7))?;
    for sequence in [35, 40] {
        same("save", &snapshots.save(sequence, b"state").await, &Ok(AppendOutcome::Durable))?;
    }
    same("trim", &snapshots.trim(40).await, &Ok(AppendOutcome::Durable))?;
    match tail(&snapshots, 1).await {
        Err(ReadError::Trimmed { first }) if first > 1 && first <= 41 => {
            same("from the first batch that is left", &tail(&snapshots, first).await, &Ok(((first..=40).collect(), 41)))
        }
        // A journal may retain more than required.
        whole => same("all batches are left", &whole, &Ok(((1..=40).collect(), 41))),
    }
}

async fn snapshots_are_independent_of_appends<L: JournalLocation>(location: &L) -> CheckResult {
    let (mut journal, _) = open(location).await?;
    let snapshots = journal.snapshots();
    durable(&mut journal, 1).await?;
    let snapshot = vec![3; 100_000];
    for sequence in 2..=40 {
        let append = durable(&mut journal, sequence);
        let other = async {
            let (visited, _) = tail(&snapshots, sequence - 1).await.map_err(|error| error.to_string())?;
            same("durable before", &visited.first(), &Some(&(sequence - 1)))?;
            same("save", &snapshots.save(sequence - 1, &snapshot).await, &Ok(AppendOutcome::Durable))?;
            same("trim", &snapshots.trim(sequence - 1).await, &Ok(AppendOutcome::Durable))
        };
        let (append, other) = join(append, other).await;
        append.and(other)?;
    }
    drop((journal, snapshots));
    let (_, replay) = open(location).await?;
    same("snapshot", &replay.snapshot.map(|(at, _)| at), &Some(39))?;
    same("batches", &replay.batches, &vec![(40, batch(40))])
}

async fn open<L: JournalLocation>(location: &L) -> Result<(L::Journal, RecordedReplay), String> {
    let mut replay = RecordedReplay::default();
    let OpenedJournal { journal, .. } =
        location.open(&mut replay).await.map_err(|error| format!("open failed: {error}"))?;
    let start = replay.snapshot.as_ref().map_or(FIRST, |(sequence, _)| sequence + 1);
    let next = start + replay.batches.len() as u64;
    same("replayed sequences", &numbers(&replay), &(start..next).collect::<Vec<_>>())?;
    same("the next sequence", &journal.next(), &next)?;
    Ok((journal, replay))
}

async fn durable<J: Journal>(journal: &mut J, sequence: u64) -> CheckResult {
    same("append", &journal.append(sequence, &batch(sequence)).await, &Ok(AppendOutcome::Durable))
}

async fn tail<S: SnapshotStore>(snapshots: &S, from: u64) -> Result<(Vec<u64>, u64), ReadError> {
    let mut visited = Vec::new();
    let mut damaged = None;
    let visit = &mut |sequence, bytes: &[u8]| {
        visited.push(sequence);
        if bytes != batch(sequence) {
            damaged.get_or_insert(sequence);
        }
        ControlFlow::Continue(())
    };
    let next = snapshots.tail(from, visit).await?;
    match damaged {
        Some(sequence) => Err(ReadError::Unreadable { reason: format!("batch {sequence} has other bytes") }),
        None => Ok((visited, next)),
    }
}

fn numbers(replay: &RecordedReplay) -> Vec<u64> {
    replay.batches.iter().map(|(sequence, _)| *sequence).collect()
}

fn batches(sequences: std::ops::RangeInclusive<u64>) -> Vec<(u64, Vec<u8>)> {
    sequences.map(|at| (at, batch(at))).collect()
}

fn same<T: fmt::Debug + PartialEq>(what: &str, seen: &T, owed: &T) -> CheckResult {
    // Enough to see what it is, not whole batches.
    let short = |value: &T| format!("{value:?}").chars().take(200).collect::<String>();
    if seen == owed { Ok(()) } else { Err(format!("{what}: {}, not {}", short(seen), short(owed))) }
}
