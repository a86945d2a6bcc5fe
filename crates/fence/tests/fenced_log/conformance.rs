//! Conformance suite for the fenced log.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use leasehold_core::token::{Incarnation, Number};
use leasehold_fence::conformance::{
    AppliedEntry, BOUNDED_CLAIM, FenceWriter, INVALID_TOKENS, LIST_MARKS, LOST_MARK, RACE, RISING, SEAL_STAYS, SEALED,
    SEALED_TEXTS, SEQUENCES, STALE, STALE_DETAIL, STRICT, StuckHolder, Subject, check, fence_id, race,
};
use leasehold_fence::file::{FencedLog, LogReader};
use leasehold_fence::{ApplyOnce, Error, MarkInfo, SealVerifier};
use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;

struct LogSubject(Mutex<TempDir>);

fn temp_dir() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory")
}

impl LogSubject {
    fn path(&self) -> PathBuf {
        self.0.lock().expect("not poisoned").path().join("log")
    }

    fn open(&self) -> FencedLog {
        FencedLog::open(&self.path(), &fence_id()).expect("it opens").with_claim_timeout(Duration::from_secs(120))
    }
}

struct LogWriter(FencedLog);

impl Subject for LogSubject {
    type Writer = LogWriter;

    async fn fresh(&self) {
        *self.0.lock().expect("not poisoned") = temp_dir();
        FencedLog::create(&self.path(), &fence_id()).expect("created");
    }

    async fn writer(&self) -> LogWriter {
        LogWriter(self.open())
    }

    async fn applied(&self) -> Vec<AppliedEntry> {
        let mut reader = LogReader::open(&self.path(), &fence_id()).expect("it can be read");
        let all = std::iter::from_fn(|| reader.next().expect("whole"));
        let text = |bytes| String::from_utf8(bytes).expect("text");
        all.map(|entry| AppliedEntry { number: entry.number, value: text(entry.bytes) }).collect()
    }

    async fn mark(&self) -> Result<Option<Number>, Error> {
        self.open().mark()
    }

    async fn declare_lost(&self) -> Result<bool, Error> {
        self.open().declare_lost().map(|()| true)
    }

    async fn rearm(&self, floor: Number) -> Result<bool, Error> {
        self.open().rearm(floor).map(|()| true)
    }

    async fn strict(&self, enabled: bool) -> Result<bool, Error> {
        self.open().strict(enabled).map(|()| true)
    }

    async fn adopt(&self, incarnation: Incarnation) -> Result<bool, Error> {
        self.open().adopt(incarnation).map(|()| true)
    }

    async fn seal(&self) -> Result<bool, Error> {
        self.open().seal().map(|()| true)
    }

    async fn sealed_writer(&self, verifier: &SealVerifier) -> Option<LogWriter> {
        Some(LogWriter(self.open().with_seal_verifier(verifier)))
    }

    async fn list_marks(&self) -> Result<Option<Vec<MarkInfo>>, Error> {
        FencedLog::list_marks(&self.path()).map(Some)
    }

    async fn stuck_holder(&self, token: &str, value: &str) -> Option<StuckHolder<LogWriter>> {
        let successor = LogWriter(self.open().with_claim_timeout(Duration::from_millis(50)));
        let (mut log, lock) = (self.open(), File::open(self.path()).expect("it exists"));
        // Like an append that is stopped after it has locked the file.
        flock(&lock, FlockOperation::LockExclusive).expect("unlocked");
        let (token, value) = (token.to_owned(), value.to_owned());
        let resume = Box::pin(async move {
            flock(&lock, FlockOperation::Unlock).expect("it is our lock");
            log.append(&token, value.as_bytes()).map(drop)
        });
        // The kernel does not always list the holder of a lock.
        Some(StuckHolder { blocker: None, max_claim_time: Duration::from_secs(120), successor, resume })
    }
}

impl FenceWriter for LogWriter {
    async fn claim(&mut self, token: &str) -> Result<Number, Error> {
        self.0.claim(token)
    }

    async fn write(&mut self, token: &str, value: &str) -> Result<(), Error> {
        self.0.append(token, value.as_bytes()).map(|_| ())
    }

    async fn write_once(&mut self, token: &str, sequence: u64, value: &str) -> Result<Option<ApplyOnce>, Error> {
        self.0.append_once(token, sequence, value.as_bytes()).map(Some)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_fence_passes_the_conformance_suite() {
    let obligations = check(&LogSubject(Mutex::new(temp_dir()))).await.unwrap_or_else(|error| panic!("{error}"));
    let all = [
        RISING,
        STALE,
        STALE_DETAIL,
        INVALID_TOKENS,
        SEALED_TEXTS,
        SEALED,
        SEAL_STAYS,
        LOST_MARK,
        LIST_MARKS,
        STRICT,
        SEQUENCES,
        BOUNDED_CLAIM,
        RACE,
    ];
    assert_eq!(obligations, all);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn token_numbers_never_decrease_in_ten_thousand_concurrent_operations() {
    let report =
        race(&LogSubject(Mutex::new(temp_dir())), 4, 10_000, 7).await.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((report.operations, report.undecided), (10_000, 0), "{report:?}");
    assert!(report.refused > 0, "no zombie was rejected: {report:?}");
}
