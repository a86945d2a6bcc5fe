//! Appends per second of the file journal, compared with bare syncs of the same disk.
//!
//! `cargo bench -p leasehold-server --bench journal [DIRECTORY]`; the directory selects the disk to measure.

use std::fs::File;
use std::future::Future;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use leasehold_server::journal::conformance::RecordedReplay;
use leasehold_server::journal::file::Directory;
use leasehold_server::journal::{AppendOutcome, Journal, JournalLocation, SnapshotStore};

const SIZES: [usize; 3] = [256, 16 << 10, 256 << 10];
const EACH: Duration = Duration::from_millis(700);
const ROUNDS: usize = 3;

fn main() {
    let chosen = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).map(PathBuf::from);
    let above = tempfile::tempdir_in(chosen.unwrap_or_else(std::env::temp_dir)).expect("a directory to measure in");
    println!("{:>10} {:>14} {:>14} {:>8} {:>10}", "batch", "appends/s", "bare syncs/s", "ratio", "MiB/s");
    for size in SIZES {
        // Machines are noisy: the best of several rounds counts.
        let (mut appends, mut bare) = (0.0_f64, 0.0_f64);
        for round in 0..ROUNDS {
            bare = bare.max(bare_syncs(above.path(), size));
            appends = appends.max(appended(&above.path().join(format!("{size}-{round}")), size));
        }
        let volume = appends * size as f64 / f64::from(1 << 20);
        println!("{size:>10} {appends:>14.0} {bare:>14.0} {:>8.2} {volume:>10.1}", appends / bare);
    }
}

fn appended(path: &Path, size: usize) -> f64 {
    let mut journal = now(Directory::new(path).open(&mut RecordedReplay::default())).expect("a new directory").journal;
    let snapshots = journal.snapshots();
    let batch = vec![0xA5; size];
    let rate = rate(|| {
        let sequence = journal.next();
        journal.disk_space().expect("space");
        assert_eq!(now(journal.append(sequence, &batch)), Ok(AppendOutcome::Durable));
        if sequence.is_multiple_of(4_096) {
            assert_eq!(now(snapshots.save(sequence, &batch)), Ok(AppendOutcome::Durable));
            assert_eq!(now(snapshots.trim(sequence)), Ok(AppendOutcome::Durable));
        }
    });
    drop((journal, snapshots));
    std::fs::remove_dir_all(path).expect("removed");
    rate
}

/// Repeats one write and one sync in a file of zeros.
fn bare_syncs(above: &Path, size: usize) -> f64 {
    const BYTES: usize = 32 << 20;
    let path = above.join("bare");
    let file = File::create(&path).expect("created");
    file.write_all_at(&vec![0; BYTES], 0).expect("written");
    file.sync_all().expect("synced");
    let (batch, mut at) = (vec![0xA5; size], 0);
    rate(|| {
        file.write_all_at(&batch, at).expect("written");
        file.sync_data().expect("synced");
        at = (at + size as u64) % (BYTES - size) as u64;
    })
}

fn rate(mut one: impl FnMut()) -> f64 {
    let (began, mut count) = (Instant::now(), 0_u32);
    while began.elapsed() < EACH {
        one();
        count += 1;
    }
    f64::from(count) / began.elapsed().as_secs_f64()
}

fn now<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => unreachable!("the file journal never waits"),
    }
}
