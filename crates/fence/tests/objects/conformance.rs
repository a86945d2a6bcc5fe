//! Conformance suite for the object fence, with a store in memory.

use std::sync::{Arc, Mutex};

use leasehold_core::token::{Incarnation, Number};
use leasehold_fence::conformance::{self, AppliedEntry, FenceWriter, Subject, check, fence_id, number, race};
use leasehold_fence::objects::{Fence, ObjectChange, list_marks};
use leasehold_fence::{ApplyOnce, Error, MarkInfo, SealVerifier};
use object_store::memory::InMemory;

struct MemorySubject(Mutex<Arc<InMemory>>);

impl MemorySubject {
    fn new() -> Self {
        Self(Mutex::default())
    }

    fn store(&self) -> Arc<InMemory> {
        self.0.lock().expect("not poisoned").clone()
    }

    fn fence(&self) -> Fence {
        Fence::new(self.store(), "guarded", &fence_id()).expect("a prefix")
    }
}

fn append_line(old: Option<&[u8]>, token: &str, value: &str) -> Vec<u8> {
    let number: u64 = token.get(57..76).and_then(|digits| digits.parse().ok()).unwrap_or_default();
    [old.unwrap_or_default(), format!("{number} {value}\n").as_bytes()].concat()
}

impl Subject for MemorySubject {
    type Writer = ObjectWriter;

    async fn fresh(&self) {
        *self.0.lock().expect("not poisoned") = Arc::default();
        self.fence().arm().await.expect("armed");
    }

    async fn unarmed(&self) -> bool {
        *self.0.lock().expect("not poisoned") = Arc::default();
        true
    }

    async fn writer(&self) -> ObjectWriter {
        ObjectWriter(self.fence())
    }

    async fn applied(&self) -> Vec<AppliedEntry> {
        let log = match self.fence().get("log").await {
            Ok(log) => String::from_utf8(log.unwrap_or_default()).expect("text"),
            Err(error) => panic!("{error}"),
        };
        let pairs = log.lines().map(|line| line.split_once(' ').expect("a number and a value"));
        pairs
            .map(|(n, value)| AppliedEntry { number: number(n.parse().expect("a number")), value: value.into() })
            .collect()
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

    async fn strict(&self, enabled: bool) -> Result<bool, Error> {
        self.fence().strict(enabled).await.map(|()| true)
    }

    async fn adopt(&self, incarnation: Incarnation) -> Result<bool, Error> {
        self.fence().adopt(incarnation).await.map(|()| true)
    }

    async fn seal(&self) -> Result<bool, Error> {
        self.fence().seal().await.map(|()| true)
    }

    async fn sealed_writer(&self, verifier: &SealVerifier) -> Option<ObjectWriter> {
        Some(ObjectWriter(self.fence().with_seal_verifier(verifier)))
    }

    async fn list_marks(&self) -> Result<Option<Vec<MarkInfo>>, Error> {
        list_marks(&*self.store(), None).await.map(Some)
    }
}

struct ObjectWriter(Fence);

impl FenceWriter for ObjectWriter {
    async fn claim(&mut self, token: &str) -> Result<Number, Error> {
        self.0.claim(token).await
    }

    async fn write(&mut self, token: &str, value: &str) -> Result<(), Error> {
        self.0.update(token, "log", |old| append_line(old, token, value)).await.map(|_| ())
    }

    async fn write_once(&mut self, token: &str, sequence: u64, value: &str) -> Result<Option<ApplyOnce>, Error> {
        // There is one holder, so the content does not change in between.
        let old = self.0.get("log").await.unwrap_or_default();
        let content = append_line(old.as_deref(), token, value);
        self.0.write_once(token, sequence, &[ObjectChange::Put("log", &content)]).await.map(Some)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_fence_passes_the_conformance_suite() {
    let obligations = check(&MemorySubject::new()).await.unwrap_or_else(|error| panic!("{error}"));
    use conformance::{LIST_MARKS, LOST_MARK, SEAL_STAYS, SEALED, SEALED_TEXTS, SEQUENCES, STRICT, UNARMED};
    for obligation in [SEALED_TEXTS, SEALED, SEAL_STAYS, UNARMED, LOST_MARK, LIST_MARKS, STRICT, SEQUENCES] {
        assert!(obligations.contains(&obligation), "{obligations:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn token_numbers_never_decrease_in_ten_thousand_concurrent_operations() {
    let report = race(&MemorySubject::new(), 8, 10_000, 4).await.unwrap_or_else(|error| panic!("{error}"));
    assert!(report.refused > 0, "{report:?}");
}
