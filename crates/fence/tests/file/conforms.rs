//! The suite that every target passes, here on logs of the test's own.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use leasehold_core::token::{Incarnation, Number};
use leasehold_fence::conformance::{
    Applied, BOUNDED, CLUSTER, Inside, LOST, MISTAKES, RACE, RISING, SEQUENCES, STALE, STRICT, SURVEY, Subject, TOLD,
    Writer, check, name, race,
};
use leasehold_fence::file::{Log, Reader};
use leasehold_fence::{Error, Kept, Once};
use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;

struct Shelf(Mutex<TempDir>);

fn directory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory")
}

impl Shelf {
    fn path(&self) -> PathBuf {
        self.0.lock().expect("nobody panics").path().join("log")
    }

    fn open(&self) -> Log {
        Log::open(&self.path(), CLUSTER, name(), 0).expect("it opens").patience(Duration::from_secs(120))
    }
}

struct Way(Log);

impl Subject for Shelf {
    type Writer = Way;

    async fn fresh(&self) {
        *self.0.lock().expect("nobody panics") = directory();
        Log::create(&self.path(), CLUSTER, name(), 0).expect("created");
    }

    async fn writer(&self) -> Way {
        Way(self.open())
    }

    async fn applied(&self) -> Vec<Applied> {
        let mut reader = Reader::open(&self.path(), CLUSTER, name(), 0).expect("readable");
        let all = std::iter::from_fn(|| reader.next().expect("whole"));
        let text = |bytes| String::from_utf8(bytes).expect("text");
        all.map(|entry| Applied { number: entry.number, value: text(entry.bytes) }).collect()
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

    async fn make_strict(&self) -> Result<bool, Error> {
        self.open().strict(true).map(|()| true)
    }

    async fn adopt(&self, incarnation: Incarnation) -> Result<bool, Error> {
        self.open().adopt(incarnation).map(|()| true)
    }

    async fn survey(&self) -> Result<Option<Vec<Kept>>, Error> {
        Log::survey(&self.path()).map(Some)
    }

    async fn occupied(&self, token: &str, value: &str) -> Option<Inside<Way>> {
        let successor = Way(self.open().patience(Duration::from_millis(50)));
        let (mut log, lock) = (self.open(), File::open(self.path()).expect("it is there"));
        // As an append that stands still between its lock and its check.
        flock(&lock, FlockOperation::LockExclusive).expect("nobody has it");
        let (token, value) = (token.to_owned(), value.to_owned());
        let goes_on = Box::pin(async move {
            flock(&lock, FlockOperation::Unlock).expect("it was ours");
            log.append(&token, value.as_bytes()).map(drop)
        });
        // The kernel does not always tell who has a lock.
        Some(Inside { who: None, bound: Duration::from_secs(120), successor, goes_on })
    }
}

impl Writer for Way {
    async fn claim(&mut self, token: &str) -> Result<Number, Error> {
        self.0.claim(token)
    }

    async fn write(&mut self, token: &str, value: &str) -> Result<(), Error> {
        self.0.append(token, value.as_bytes()).map(|_| ())
    }

    async fn write_sequenced(&mut self, token: &str, sequence: u64, value: &str) -> Result<Option<Once>, Error> {
        self.0.append_once(token, sequence, value.as_bytes()).map(Some)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn it_conforms() {
    let held = check(&Shelf(Mutex::new(directory()))).await.unwrap_or_else(|violation| panic!("{violation}"));
    assert_eq!(held, [RISING, STALE, TOLD, MISTAKES, LOST, SURVEY, STRICT, SEQUENCES, BOUNDED, RACE]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn ten_thousand_racing_operations_never_fall() {
    let raced =
        race(&Shelf(Mutex::new(directory())), 4, 10_000, 7).await.unwrap_or_else(|violation| panic!("{violation}"));
    assert_eq!((raced.operations, raced.undecided), (10_000, 0), "{raced:?}");
    assert!(raced.refused > 0, "zombies were among them: {raced:?}");
}
