//! A store in memory under the suite that every fence passes: fast, so that the race is long.

use std::sync::{Arc, Mutex};

use leasehold_core::token::{Incarnation, Number};
use leasehold_fence::conformance::{self, Applied, CLUSTER, Subject, Writer, check, name, number, race};
use leasehold_fence::objects::{Change, Fence, survey};
use leasehold_fence::{Error, Kept, Once};
use object_store::memory::InMemory;

struct Memory(Mutex<Arc<InMemory>>);

impl Memory {
    fn new() -> Self {
        Self(Mutex::default())
    }

    fn store(&self) -> Arc<InMemory> {
        self.0.lock().expect("no panic").clone()
    }

    fn fence(&self) -> Fence {
        Fence::new(self.store(), "guarded", CLUSTER, name(), 0).expect("a prefix")
    }
}

fn appended(old: Option<&[u8]>, token: &str, value: &str) -> Vec<u8> {
    let number: u64 = token.get(57..76).and_then(|digits| digits.parse().ok()).unwrap_or_default();
    [old.unwrap_or_default(), format!("{number} {value}\n").as_bytes()].concat()
}

impl Subject for Memory {
    type Writer = One;

    async fn fresh(&self) {
        *self.0.lock().expect("no panic") = Arc::default();
        self.fence().arm().await.expect("armed");
    }

    async fn unarmed(&self) -> bool {
        *self.0.lock().expect("no panic") = Arc::default();
        true
    }

    async fn writer(&self) -> One {
        One(self.fence())
    }

    async fn applied(&self) -> Vec<Applied> {
        let log = match self.fence().get("log").await {
            Ok(log) => String::from_utf8(log.unwrap_or_default()).expect("text"),
            Err(error) => panic!("{error}"),
        };
        let pairs = log.lines().map(|line| line.split_once(' ').expect("a number and a value"));
        pairs.map(|(n, value)| Applied { number: number(n.parse().expect("a number")), value: value.into() }).collect()
    }

    async fn mark(&self) -> Result<Option<Number>, Error> {
        self.fence().mark().await
    }

    async fn declare_lost(&self) -> Result<bool, Error> {
        self.fence().declare_lost().await.map(|()| true)
    }

    async fn rearm(&self, floor: Number) -> Result<bool, Error> {
        self.fence().rearm(floor).await.map(|()| true)
    }

    async fn make_strict(&self) -> Result<bool, Error> {
        self.fence().make_strict().await.map(|()| true)
    }

    async fn adopt(&self, incarnation: Incarnation) -> Result<bool, Error> {
        self.fence().adopt(incarnation).await.map(|()| true)
    }

    async fn survey(&self) -> Result<Option<Vec<Kept>>, Error> {
        survey(&*self.store(), None).await.map(Some)
    }
}

struct One(Fence);

impl Writer for One {
    async fn claim(&mut self, token: &str) -> Result<Number, Error> {
        self.0.claim(token).await
    }

    async fn write(&mut self, token: &str, value: &str) -> Result<(), Error> {
        self.0.update(token, "log", |old| appended(old, token, value)).await.map(|_| ())
    }

    async fn write_sequenced(&mut self, token: &str, sequence: u64, value: &str) -> Result<Option<Once>, Error> {
        // Whoever holds alone finds what was there unchanged.
        let old = self.0.get("log").await.unwrap_or_default();
        let content = appended(old.as_deref(), token, value);
        self.0.write_once(token, sequence, &[Change::Put("log", &content)]).await.map(Some)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_in_memory_passes_the_conformance_suite() {
    let held = check(&Memory::new()).await.unwrap_or_else(|broken| panic!("{broken}"));
    use conformance::{LOST, MISSING, SEQUENCES, STRICT, SURVEY};
    for obligation in [MISSING, LOST, SURVEY, STRICT, SEQUENCES] {
        assert!(held.contains(&obligation), "{held:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_racing_operations_never_write_below_the_mark() {
    let raced = race(&Memory::new(), 8, 10_000, 4).await.unwrap_or_else(|broken| panic!("{broken}"));
    assert!(raced.refused > 0, "{raced:?}");
}
