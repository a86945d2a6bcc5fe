//! Conformance suite for the fenced file, and for the same file without the fence.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use leasehold_core::token::{Incarnation, Number};
use leasehold_fence::conformance::{
    self, AppliedEntry, FenceWriter, StuckHolder, Subject, check, fence_id, number, race,
};
use leasehold_fence::file::{FencedFile, list_marks};
use leasehold_fence::{ApplyOnce, Error, MarkInfo, SealVerifier};

use crate::fixture::TestFile;

/// A file whose content lists the applied writes.
struct FileSubject {
    fixture: Mutex<TestFile>,
    fenced: bool,
}

impl FileSubject {
    fn new(fenced: bool) -> Self {
        Self { fixture: Mutex::new(TestFile::empty()), fenced }
    }

    fn path(&self) -> PathBuf {
        self.fixture.lock().expect("not poisoned").file()
    }

    fn open(&self) -> Result<FencedFile, Error> {
        FencedFile::open(&self.path(), &fence_id())
    }
}

impl Subject for FileSubject {
    type Writer = FileWriter;

    async fn fresh(&self) {
        *self.fixture.lock().expect("not poisoned") = TestFile::empty();
        FencedFile::create(&self.path(), &fence_id(), b"").expect("created");
    }

    async fn unarmed(&self) -> bool {
        *self.fixture.lock().expect("not poisoned") = TestFile::empty();
        std::fs::write(self.path(), "").expect("a file without a mark");
        true
    }

    async fn writer(&self) -> FileWriter {
        FileWriter { path: self.path(), fenced: self.fenced, claim_timeout: CLAIM_TIMEOUT, verifier: None }
    }

    async fn applied(&self) -> Vec<AppliedEntry> {
        let log = std::fs::read_to_string(self.path()).expect("read without the fence");
        let pairs = log.lines().map(|line| line.split_once(' ').expect("a number and a value"));
        pairs
            .map(|(n, value)| AppliedEntry { number: number(n.parse().expect("a number")), value: value.into() })
            .collect()
    }

    async fn mark(&self) -> Result<Option<Number>, Error> {
        self.open()?.mark()
    }

    async fn declare_lost(&self) -> Result<bool, Error> {
        self.open()?.declare_lost().map(|()| true)
    }

    async fn rearm(&self, floor: Number) -> Result<bool, Error> {
        self.open()?.rearm(floor).map(|()| true)
    }

    async fn strict(&self, enabled: bool) -> Result<bool, Error> {
        self.open()?.strict(enabled).map(|()| true)
    }

    async fn adopt(&self, incarnation: Incarnation) -> Result<bool, Error> {
        self.open()?.adopt(incarnation).map(|()| true)
    }

    async fn seal(&self) -> Result<bool, Error> {
        self.open()?.seal().map(|()| true)
    }

    async fn sealed_writer(&self, verifier: &SealVerifier) -> Option<FileWriter> {
        Some(FileWriter { verifier: Some(verifier.clone()), ..self.writer().await })
    }

    async fn list_marks(&self) -> Result<Option<Vec<MarkInfo>>, Error> {
        list_marks(&self.path()).map(Some)
    }

    async fn stuck_holder(&self, token: &str, value: &str) -> Option<StuckHolder<FileWriter>> {
        let successor = FileWriter { claim_timeout: Duration::from_millis(50), ..self.writer().await };
        let (old, token, value) = (self.open().expect("it exists"), token.to_owned(), value.to_owned());
        let (locked, is_locked) = mpsc::channel();
        let (resume_write, resumed) = mpsc::channel::<()>();
        let writer = thread::spawn(move || {
            old.update(&token, |content| {
                locked.send(()).expect("the test waits");
                match resumed.recv() {
                    Ok(()) => append_line(content, &token, &value),
                    Err(_) => content.to_vec(),
                }
            })
        });
        is_locked.recv().expect("it has the lock");
        let resume = Box::pin(async move {
            resume_write.send(()).expect("it is waiting");
            writer.join().expect("not poisoned").map(drop)
        });
        // The kernel does not always list the holder of a lock.
        Some(StuckHolder { blocker: None, max_claim_time: CLAIM_TIMEOUT, successor, resume })
    }
}

struct FileWriter {
    path: PathBuf,
    fenced: bool,
    claim_timeout: Duration,
    verifier: Option<SealVerifier>,
}

const CLAIM_TIMEOUT: Duration = Duration::from_secs(120);

impl FileWriter {
    fn open(&self) -> Result<FencedFile, Error> {
        let file = FencedFile::open(&self.path, &fence_id())?.with_claim_timeout(self.claim_timeout);
        Ok(match &self.verifier {
            Some(verifier) => file.with_seal_verifier(verifier),
            None => file,
        })
    }
}

fn append_line(old: &[u8], token: &str, value: &str) -> Vec<u8> {
    let number: u64 = token.get(57..76).and_then(|digits| digits.parse().ok()).unwrap_or_default();
    [old, format!("{number} {value}\n").as_bytes()].concat()
}

impl FenceWriter for FileWriter {
    async fn claim(&mut self, token: &str) -> Result<Number, Error> {
        if self.fenced {
            return self.open()?.claim(token);
        }
        Ok(number(token[57..76].parse().expect("a valid token")))
    }

    async fn write(&mut self, token: &str, value: &str) -> Result<(), Error> {
        if self.fenced {
            return self.open()?.update(token, |old| append_line(old, token, value)).map(|_| ());
        }
        let old = std::fs::read(&self.path)?;
        Ok(std::fs::write(&self.path, append_line(&old, token, value))?)
    }

    async fn write_once(&mut self, token: &str, sequence: u64, value: &str) -> Result<Option<ApplyOnce>, Error> {
        self.open()?.update_once(token, sequence, |old| append_line(old, token, value)).map(Some)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_fence_passes_the_conformance_suite() {
    let obligations = check(&FileSubject::new(true)).await.unwrap_or_else(|error| panic!("{error}"));
    use conformance::{BOUNDED_CLAIM, LIST_MARKS, LOST_MARK, SEQUENCES, STRICT, UNARMED};
    use conformance::{SEAL_STAYS, SEALED, SEALED_TEXTS};
    for obligation in
        [SEALED_TEXTS, SEALED, SEAL_STAYS, UNARMED, LOST_MARK, LIST_MARKS, STRICT, SEQUENCES, BOUNDED_CLAIM]
    {
        assert!(obligations.contains(&obligation), "{obligations:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn token_numbers_never_decrease_in_ten_thousand_concurrent_operations() {
    let report = race(&FileSubject::new(true), 8, 10_000, 4).await.unwrap_or_else(|error| panic!("{error}"));
    assert!(report.refused > 0, "{report:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_fence_the_race_breaks_the_order() {
    let error = race(&FileSubject::new(false), 8, 10_000, 4).await.expect_err("there is no fence");
    assert_eq!(error.obligation, conformance::RACE);
}
