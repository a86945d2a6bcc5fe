//! Shared by the journal tests: small segments, one-line append and save, and the simulated disk.

#![allow(dead_code, reason = "each test file uses its own part")]

pub mod simulated_disk;

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use leasehold_server::journal::conformance::RecordedReplay;
use leasehold_server::journal::file::{Directory, Disk, FileJournal, FileOptions};
use leasehold_server::journal::{AppendOutcome, Journal, JournalError, OpenError, OpenedJournal, SnapshotStore};

/// The output of a future that is ready at its first poll.
pub fn poll_ready<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("this journal is always ready"),
    }
}

/// Segments of 4 KiB, and no background thread.
pub fn small_segments() -> FileOptions {
    FileOptions { segment_bytes: 4_096, accept_copy: false, background: false }
}

/// A directory with small segments.
pub fn small_directory(path: impl Into<std::path::PathBuf>) -> Directory {
    Directory { path: path.into(), options: small_segments() }
}

/// Opens a journal on a disk and records its replay.
pub fn open_on<D: Disk>(
    disk: D,
    options: &FileOptions,
) -> Result<(OpenedJournal<FileJournal<D>>, RecordedReplay), OpenError> {
    let mut replay = RecordedReplay::default();
    FileJournal::open_on(disk, options, &mut replay).map(|opened| (opened, replay))
}

/// Appends the next batch, durably.
pub fn append<J: Journal>(journal: &mut J, batch: &[u8]) -> Result<(), JournalError> {
    let outcome = poll_ready(journal.append(journal.next(), batch))?;
    assert_eq!(outcome, AppendOutcome::Durable);
    Ok(())
}

/// Saves a snapshot, durably.
pub fn save<J: Journal>(journal: &J, sequence: u64, snapshot: &[u8]) -> Result<(), JournalError> {
    let outcome = poll_ready(journal.snapshots().save(sequence, snapshot))?;
    assert_eq!(outcome, AppendOutcome::Durable);
    Ok(())
}
