//! A fenced cell as a subject of the conformance suite, and the same cell without its fence.

use std::sync::{Arc, Mutex};

use leasehold_core::token::{Incarnation, Number};
use leasehold_fence::cell::FencedCell;
use leasehold_fence::conformance::{self, AppliedEntry, FenceWriter, Subject, fence_id, number};
use leasehold_fence::{ApplyOnce, Error, MarkInfo, SealVerifier};

type CellLog = FencedCell<Vec<AppliedEntry>>;

/// A cell that `fresh` replaces.
pub struct CellSubject {
    log: Mutex<Arc<CellLog>>,
    fenced: bool,
}

impl CellSubject {
    pub fn new(fenced: bool) -> Self {
        Self { log: Mutex::new(empty()), fenced }
    }

    fn log(&self) -> Arc<CellLog> {
        self.log.lock().expect("not poisoned").clone()
    }
}

fn empty() -> Arc<CellLog> {
    Arc::new(FencedCell::new(&fence_id(), Vec::new()))
}

impl Subject for CellSubject {
    type Writer = CellWriter;

    async fn fresh(&self) {
        *self.log.lock().expect("not poisoned") = empty();
    }

    async fn writer(&self) -> CellWriter {
        CellWriter { log: self.log(), fenced: self.fenced }
    }

    async fn applied(&self) -> Vec<AppliedEntry> {
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

    async fn strict(&self, enabled: bool) -> Result<bool, Error> {
        self.log().strict(enabled).map(|()| true)
    }

    async fn adopt(&self, incarnation: Incarnation) -> Result<bool, Error> {
        self.log().adopt(incarnation).map(|()| true)
    }

    async fn seal(&self) -> Result<bool, Error> {
        self.log().seal().map(|()| true)
    }

    async fn sealed_writer(&self, verifier: &SealVerifier) -> Option<CellWriter> {
        let log = FencedCell::new(&fence_id(), Vec::new()).with_seal_verifier(verifier);
        *self.log.lock().expect("not poisoned") = Arc::new(log);
        Some(self.writer().await)
    }

    fn keys_in_target(&self) -> bool {
        true
    }

    async fn list_marks(&self) -> Result<Option<Vec<MarkInfo>>, Error> {
        self.log().mark_info().map(|info| Some(vec![info]))
    }
}

pub struct CellWriter {
    log: Arc<CellLog>,
    fenced: bool,
}

fn applied(token: &str, value: &str) -> AppliedEntry {
    let value_of_token = token.get(57..76).and_then(|digits| digits.parse().ok()).unwrap_or(1);
    AppliedEntry { number: number(value_of_token), value: value.to_owned() }
}

impl FenceWriter for CellWriter {
    async fn claim(&mut self, token: &str) -> Result<Number, Error> {
        if self.fenced { self.log.claim(token) } else { Ok(applied(token, "").number) }
    }

    async fn write(&mut self, token: &str, value: &str) -> Result<(), Error> {
        let entry = applied(token, value);
        if self.fenced {
            return self.log.write(token, |log| log.push(entry));
        }
        // Without the fence: the highest token is presented instead of the given one.
        let highest = conformance::token(1 << 40);
        self.log.write(&highest, |log| log.push(entry))
    }

    async fn write_once(&mut self, token: &str, sequence: u64, value: &str) -> Result<Option<ApplyOnce>, Error> {
        let entry = applied(token, value);
        self.log.write_once(token, sequence, |log| log.push(entry)).map(Some)
    }
}
