//! The replaced file under the suite that every fence passes, and the same without the fence.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use leasehold_core::token::{Incarnation, Number};
use leasehold_fence::conformance::{self, Applied, CLUSTER, Inside, Subject, Writer, check, name, number, race};
use leasehold_fence::file::{Replace, survey};
use leasehold_fence::{Error, Kept, Once};

use crate::leader::Leader;

/// A file whose content is the log of what was applied.
struct Subjected {
    leader: Mutex<Leader>,
    fenced: bool,
}

impl Subjected {
    fn new(fenced: bool) -> Self {
        Self { leader: Mutex::new(Leader::nowhere()), fenced }
    }

    fn path(&self) -> PathBuf {
        self.leader.lock().expect("no panic").file()
    }

    fn open(&self) -> Result<Replace, Error> {
        Replace::open(&self.path(), CLUSTER, name(), 0)
    }
}

impl Subject for Subjected {
    type Writer = One;

    async fn fresh(&self) {
        *self.leader.lock().expect("no panic") = Leader::nowhere();
        Replace::create(&self.path(), CLUSTER, name(), 0, b"").expect("created");
    }

    async fn unarmed(&self) -> bool {
        *self.leader.lock().expect("no panic") = Leader::nowhere();
        std::fs::write(self.path(), "").expect("a bare file");
        true
    }

    async fn writer(&self) -> One {
        One { path: self.path(), fenced: self.fenced, patience: PATIENCE }
    }

    async fn applied(&self) -> Vec<Applied> {
        let log = std::fs::read_to_string(self.path()).expect("read past the fence");
        let pairs = log.lines().map(|line| line.split_once(' ').expect("a number and a value"));
        pairs.map(|(n, value)| Applied { number: number(n.parse().expect("a number")), value: value.into() }).collect()
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

    async fn make_strict(&self) -> Result<bool, Error> {
        self.open()?.make_strict().map(|()| true)
    }

    async fn adopt(&self, incarnation: Incarnation) -> Result<bool, Error> {
        self.open()?.adopt(incarnation).map(|()| true)
    }

    async fn survey(&self) -> Result<Option<Vec<Kept>>, Error> {
        survey(&self.path()).map(Some)
    }

    async fn occupied(&self, token: &str, value: &str) -> Option<Inside<One>> {
        let successor = One { patience: Duration::from_millis(50), ..self.writer().await };
        let (old, token, value) = (self.open().expect("it is there"), token.to_owned(), value.to_owned());
        let (stands, stood) = mpsc::channel();
        let (go, may_go) = mpsc::channel::<()>();
        let writer = thread::spawn(move || {
            old.update(&token, |content| {
                stands.send(()).expect("somebody waits for it");
                match may_go.recv() {
                    Ok(()) => appended(content, &token, &value),
                    Err(_) => content.to_vec(),
                }
            })
        });
        stood.recv().expect("it gets inside");
        let goes_on = Box::pin(async move {
            go.send(()).expect("it stands there");
            writer.join().expect("no panic").map(drop)
        });
        // The kernel does not always tell who has a lock.
        Some(Inside { who: None, bound: PATIENCE, successor, goes_on })
    }
}

struct One {
    path: PathBuf,
    fenced: bool,
    patience: Duration,
}

const PATIENCE: Duration = Duration::from_secs(120);

impl One {
    fn open(&self) -> Result<Replace, Error> {
        Ok(Replace::open(&self.path, CLUSTER, name(), 0)?.patience(self.patience))
    }
}

fn appended(old: &[u8], token: &str, value: &str) -> Vec<u8> {
    let number: u64 = token.get(57..76).and_then(|digits| digits.parse().ok()).unwrap_or_default();
    [old, format!("{number} {value}\n").as_bytes()].concat()
}

impl Writer for One {
    async fn claim(&mut self, token: &str) -> Result<Number, Error> {
        if self.fenced {
            return self.open()?.claim(token);
        }
        Ok(number(token[57..76].parse().expect("the suite shows whole tokens to this one")))
    }

    async fn write(&mut self, token: &str, value: &str) -> Result<(), Error> {
        if self.fenced {
            return self.open()?.update(token, |old| appended(old, token, value)).map(|_| ());
        }
        let old = std::fs::read(&self.path)?;
        Ok(std::fs::write(&self.path, appended(&old, token, value))?)
    }

    async fn write_sequenced(&mut self, token: &str, sequence: u64, value: &str) -> Result<Option<Once>, Error> {
        self.open()?.update_once(token, sequence, |old| appended(old, token, value)).map(Some)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_replaced_file_passes_the_conformance_suite() {
    let held = check(&Subjected::new(true)).await.unwrap_or_else(|broken| panic!("{broken}"));
    use conformance::{BOUNDED, LOST, MISSING, SEQUENCES, STRICT, SURVEY};
    for obligation in [MISSING, LOST, SURVEY, STRICT, SEQUENCES, BOUNDED] {
        assert!(held.contains(&obligation), "{held:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_racing_operations_never_write_below_the_mark() {
    let raced = race(&Subjected::new(true), 8, 10_000, 4).await.unwrap_or_else(|broken| panic!("{broken}"));
    assert!(raced.refused > 0, "{raced:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_fence_the_same_race_corrupts() {
    let broken = race(&Subjected::new(false), 8, 10_000, 4).await.expect_err("no fence, no order");
    assert_eq!(broken.obligation, conformance::RACE);
}
