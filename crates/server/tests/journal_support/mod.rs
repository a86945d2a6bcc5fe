//! What the journal tests share: a future that never waits, and a disk that loses power.

#![allow(dead_code, reason = "each test file uses its own part")]

pub mod simulated_disk;

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use leasehold_server::journal::conformance::RecordedReplay;
use leasehold_server::journal::file::{Directory, Disk, FileJournal, FileOptions};
use leasehold_server::journal::{AppendOutcome, Journal, JournalError, OpenError, OpenedJournal, SnapshotStore};

/// The outcome of a future that has nothing to wait for.
pub fn now<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => panic!("this journal never waits"),
    }
}

/// Small segments, and everything in the order of one thread.
pub fn small() -> FileOptions {
    FileOptions { segment_bytes: 4_096, accept_copy: false, background: false }
}

/// A directory with small segments.
pub fn small_in(path: impl Into<std::path::PathBuf>) -> Directory {
    Directory { path: path.into(), options: small() }
}

/// Opens a journal on a disk and hears what it tells.
pub fn open_on<D: Disk>(
    disk: D,
    options: &FileOptions,
) -> Result<(OpenedJournal<FileJournal<D>>, RecordedReplay), OpenError> {
    let mut told = RecordedReplay::default();
    FileJournal::open_on(disk, options, &mut told).map(|opened| (opened, told))
}

/// Appends the next batch.
pub fn append<J: Journal>(journal: &mut J, batch: &[u8]) -> Result<(), JournalError> {
    let kept = now(journal.append(journal.next(), batch))?;
    assert_eq!(kept, AppendOutcome::Durable);
    Ok(())
}

/// Saves a snapshot.
pub fn save<J: Journal>(journal: &J, sequence: u64, snapshot: &[u8]) -> Result<(), JournalError> {
    let kept = now(journal.snapshots().save(sequence, snapshot))?;
    assert_eq!(kept, AppendOutcome::Durable);
    Ok(())
}

/// How hard to try: one of three numbers, by `LEASEHOLD_DEPTH`.
pub fn depth(quick: usize, full: usize, deep: usize) -> usize {
    match std::env::var("LEASEHOLD_DEPTH").as_deref() {
        Ok("quick") => quick,
        Ok("deep") => deep,
        _ => full,
    }
}
