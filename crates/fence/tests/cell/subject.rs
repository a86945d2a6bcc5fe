//! The cell as the conformance suite sees it, and the same cell without its fence.

use std::sync::{Arc, Mutex};

use leasehold_core::token::{Incarnation, Number};
use leasehold_fence::cell::Fenced;
use leasehold_fence::conformance::{self, Applied, CLUSTER, Subject, Writer, check, name, number, race};
use leasehold_fence::{Error, Kept, Once};

type Log = Fenced<Vec<Applied>>;

/// A cell that is made anew whenever it is asked for.
struct Cell {
    log: Mutex<Arc<Log>>,
    fenced: bool,
}

impl Cell {
    fn new(fenced: bool) -> Self {
        Self { log: Mutex::new(empty()), fenced }
    }

    fn log(&self) -> Arc<Log> {
        self.log.lock().expect("no panic").clone()
    }
}

fn empty() -> Arc<Log> {
    Arc::new(Fenced::new(CLUSTER, name(), 0, Vec::new()))
}

impl Subject for Cell {
    type Writer = Thread;

    async fn fresh(&self) {
        *self.log.lock().expect("no panic") = empty();
    }

    async fn writer(&self) -> Thread {
        Thread { log: self.log(), fenced: self.fenced }
    }

    async fn applied(&self) -> Vec<Applied> {
        self.log().read(Clone::clone).expect("whole")
    }

    async fn mark(&self) -> Result<Option<Number>, Error> {
        self.log().mark()
    }

    async fn declare_lost(&self) -> Result<bool, Error> {
        self.log().declare_lost().map(|()| true)
    }

    async fn rearm(&self, floor: Number) -> Result<bool, Error> {
        self.log().rearm(floor).map(|()| true)
    }

    async fn make_strict(&self) -> Result<bool, Error> {
        self.log().make_strict().map(|()| true)
    }

    async fn adopt(&self, incarnation: Incarnation) -> Result<bool, Error> {
        self.log().adopt(incarnation).map(|()| true)
    }

    async fn survey(&self) -> Result<Option<Vec<Kept>>, Error> {
        self.log().kept().map(|kept| Some(vec![kept]))
    }
}

struct Thread {
    log: Arc<Log>,
    fenced: bool,
}

fn applied(token: &str, value: &str) -> Applied {
    let shown = token.get(57..76).and_then(|digits| digits.parse().ok()).unwrap_or(1);
    Applied { number: number(shown), value: value.to_owned() }
}

impl Writer for Thread {
    async fn claim(&mut self, token: &str) -> Result<Number, Error> {
        if self.fenced { self.log.claim(token) } else { Ok(applied(token, "").number) }
    }

    async fn write(&mut self, token: &str, value: &str) -> Result<(), Error> {
        let one = applied(token, value);
        if self.fenced {
            return self.log.write(token, |log| log.push(one));
        }
        // Past the fence: whatever is shown, the highest token is what is checked.
        let highest = conformance::token(1 << 40);
        self.log.write(&highest, |log| log.push(one))
    }

    async fn write_sequenced(&mut self, token: &str, sequence: u64, value: &str) -> Result<Option<Once>, Error> {
        let one = applied(token, value);
        self.log.write_once(token, sequence, |log| log.push(one)).map(Some)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cell_passes_the_conformance_suite() {
    let held = check(&Cell::new(true)).await.unwrap_or_else(|broken| panic!("{broken}"));
    for obligation in [conformance::LOST, conformance::STRICT, conformance::SEQUENCES, conformance::SURVEY] {
        assert!(held.contains(&obligation), "{held:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_racing_operations_never_write_below_the_mark() {
    let raced = race(&Cell::new(true), 8, 10_000, 4).await.unwrap_or_else(|broken| panic!("{broken}"));
    assert!(raced.refused > 0, "{raced:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_fence_the_same_race_corrupts() {
    let broken = race(&Cell::new(false), 8, 10_000, 4).await.expect_err("no fence, no order");
    assert_eq!(broken.obligation, conformance::RACE);
}
