//! Generations in a store without conditional puts: stale writes are stored, but no reader uses them.

use std::sync::Arc;

use leasehold_fence::objects::Generations;
use leasehold_fence::{Error, FenceRefusal, MarkLoss};
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use tempfile::TempDir;

use crate::invalid_tokens::mistakes;
use crate::support::{fence_id, number, token};

async fn armed() -> (TempDir, Generations) {
    let (dir, generations) = unarmed();
    generations.arm().await.expect("armed");
    (dir, generations)
}

fn unarmed() -> (TempDir, Generations) {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Arc::new(LocalFileSystem::new_with_prefix(dir.path()).expect("a store"));
    let generations = Generations::new(store, "guarded", &fence_id()).expect("a prefix");
    (dir, generations)
}

async fn read(generations: &Generations, name: &str) -> Option<(u64, String)> {
    let current = generations.get(name).await.expect("it can be read");
    current.map(|(number, content)| (number.get(), String::from_utf8(content).expect("text")))
}

#[tokio::test]
async fn a_stale_write_is_not_visible_to_readers() {
    let (_dir, generations) = armed().await;
    let mut old = generations.claim(&token(33)).await.expect("claimed");
    old.write("state", b"first").await.expect("stored");
    assert_eq!(read(&generations, "state").await, Some((33, "first".to_owned())));
    let mut new = generations.claim(&token(34)).await.expect("a successor");
    assert_eq!(new.get("state").await.expect("inherited").as_deref(), Some(&b"first"[..]));
    let error = old.write("state", b"late").await.expect_err("a stale token");
    assert_eq!(error.refusal(), Some(&FenceRefusal::Stale { presented: number(33), mark: number(34) }));
    assert_eq!(read(&generations, "state").await, Some((34, "first".to_owned())));
    new.write("state", b"second").await.expect("stored");
    assert_eq!(read(&generations, "state").await, Some((34, "second".to_owned())));
    let counters = generations.counters().snapshot();
    assert_eq!((counters.claims, counters.admitted, counters.stale), (2, 2, 1));
}

#[tokio::test]
async fn a_delayed_write_does_not_change_inherited_objects() {
    let (dir, generations) = armed().await;
    let mut old = generations.claim(&token(33)).await.expect("claimed");
    old.write("state", b"first").await.expect("stored");
    generations.claim(&token(34)).await.expect("a successor");
    // The bytes of a delayed request of the zombie, which bypass all checks.
    let late = dir.path().join("guarded/generations/0000000000000000033/w/0000000000000000001/state");
    std::fs::create_dir_all(late.parent().expect("a dir")).expect("made");
    std::fs::write(late, "late").expect("stored");
    assert_eq!(read(&generations, "state").await, Some((34, "first".to_owned())));
    let next = generations.claim(&token(35)).await.expect("one more");
    assert_eq!(next.get("state").await.expect("inherited").as_deref(), Some(&b"first"[..]));
}

#[tokio::test]
async fn an_incomplete_claim_rejects_predecessors_and_is_not_visible() {
    let (dir, generations) = armed().await;
    let mut old = generations.claim(&token(33)).await.expect("claimed");
    old.write("state", b"first").await.expect("stored");
    generations.claim(&token(34)).await.expect("a successor");
    let complete = dir.path().join("guarded/generations/0000000000000000034/taken");
    std::fs::remove_file(complete).expect("as if it died before this");
    assert_eq!(old.write("state", b"late").await.expect_err("the announcement suffices").code(), "STALE_TOKEN");
    assert_eq!(generations.mark().await.expect("stored"), Some(number(34)));
    assert!(read(&generations, "state").await.is_some_and(|(generation, _)| generation == 33));
    let again = generations.claim(&token(34)).await.expect("the same holder after a crash");
    assert_eq!(again.number(), number(34));
    assert!(read(&generations, "state").await.is_some_and(|(generation, _)| generation == 34));
}

#[tokio::test]
async fn an_unarmed_prefix_and_invalid_tokens_are_rejected() {
    let (_dir, generations) = unarmed();
    let lost = generations.claim(&token(33)).await.expect_err("not armed");
    assert!(matches!(lost, Error::Refused(FenceRefusal::MarkLost(MarkLoss::Missing))), "{lost}");
    generations.arm().await.expect("armed");
    assert_eq!(generations.arm().await.expect_err("it is armed").code(), "CONFLICT");
    for (text, code, reason) in mistakes() {
        assert_eq!(generations.claim(&text).await.expect_err(reason).code(), code, "{text}");
    }
    let mut generation = generations.claim(&token(40)).await.expect("claimed");
    for name in ["", "a/b", ".."] {
        assert_eq!(generation.write(name, b"x").await.expect_err("no name").code(), "INVALID_ARGUMENT", "{name:?}");
    }
    assert_eq!(generations.claim(&token(39)).await.expect_err("lower").code(), "STALE_TOKEN");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_concurrent_holders_generations_never_decrease_and_acknowledged_writes_survive() {
    let (_dir, generations) = armed().await;
    let holders = (1..=12_u64).map(|number| {
        let generations = generations.clone();
        tokio::spawn(async move {
            let mut acked = Vec::new();
            let Ok(mut generation) = generations.claim(&token(number)).await else { return acked };
            for count in 0..8 {
                let name = format!("{number}-{count}");
                if generation.write(&name, b"x").await.is_ok() {
                    acked.push(name);
                }
            }
            acked
        })
    });
    let holders: Vec<_> = holders.collect();
    let reader = generations.clone();
    let reader = tokio::spawn(async move {
        let mut highest = 0;
        for _ in 0..50 {
            if let Some((number, _)) = reader.get("12-0").await.expect("it can be read") {
                assert!(number.get() >= highest, "{number} after {highest}");
                highest = number.get();
            }
        }
    });
    let mut acked = Vec::new();
    for holder in holders {
        acked.extend(holder.await.expect("not poisoned"));
    }
    reader.await.expect("not poisoned");
    let last = generations.claim(&token(13)).await.expect("the last one");
    assert!(!acked.is_empty());
    for name in acked {
        assert!(last.get(&name).await.expect("it can be read").is_some(), "{name} was acknowledged");
    }
}

#[tokio::test]
async fn a_holder_that_claims_again_sees_its_writes_and_a_delayed_one_does_not_replace_a_later_one() {
    let store = Arc::new(InMemory::new());
    let generations = Generations::new(store.clone(), "guarded", &fence_id()).expect("a prefix");
    generations.arm().await.expect("armed");
    let mut first = generations.claim(&token(33)).await.expect("claimed");
    first.write("balance", b"1").await.expect("current");
    first.write("balance", b"2").await.expect("current");
    let delayed: Path = "guarded/generations/0000000000000000033/w/0000000000000000002/balance".into();

    let mut again = generations.claim(&token(33)).await.expect("the same holder, restarted");
    assert_eq!(again.get("balance").await.expect("read").as_deref(), Some(&b"2"[..]), "it sees what it wrote");
    again.write("balance", b"3").await.expect("current");
    // The third write of the first process had no reply, and arrives now.
    store.put(&delayed, "late".into()).await.expect("stored");
    for _ in 0..2 {
        assert_eq!(generations.get("balance").await.expect("read").expect("there").1, b"3");
        let mut again = generations.claim(&token(33)).await.expect("once more");
        assert_eq!(again.get("balance").await.expect("read").as_deref(), Some(&b"3"[..]));
        again.write("other", b"x").await.expect("current");
    }
    let mut successor = generations.claim(&token(34)).await.expect("a successor");
    assert_eq!(successor.get("balance").await.expect("read").as_deref(), Some(&b"3"[..]));
    successor.write("balance", b"4").await.expect("current");
    assert_eq!(again.write("balance", b"zombie").await.expect_err("stale").code(), "STALE_TOKEN");
}

#[tokio::test]
async fn two_processes_with_one_token_never_write_the_same_object() {
    let store = Arc::new(InMemory::new());
    let generations = Generations::new(store.clone(), "guarded", &fence_id()).expect("a prefix");
    generations.arm().await.expect("armed");
    let mut paused = generations.claim(&token(33)).await.expect("claimed");
    // The second process claims while the first one is paused in its claim, before the object that completes it.
    store.delete(&Path::from("guarded/generations/0000000000000000033/taken")).await.expect("deleted");
    let mut second = generations.claim(&token(33)).await.expect("the same holder, restarted");
    second.write("balance", b"2").await.expect("current");
    paused.write("balance", b"1").await.expect("the token is current");
    assert_eq!(second.get("balance").await.expect("read").as_deref(), Some(&b"2"[..]), "what was written stays");
    let written = store.list_with_delimiter(Some(&Path::from("guarded/generations/0000000000000000033/w"))).await;
    assert_eq!(written.expect("listed").common_prefixes.len(), 2);
}

#[tokio::test]
async fn a_folder_that_is_no_generation_does_not_change_the_mark() {
    let (dir, generations) = armed().await;
    let mut old = generations.claim(&token(33)).await.expect("claimed");
    let mut new = generations.claim(&token(34)).await.expect("a successor");
    // Above every number, not in 19 digits, or not a number.
    for name in ["9999999999999999999", "9223372036854775808", "77", "+000000000000000077", "notes"] {
        let stray = dir.path().join("guarded/generations").join(name);
        std::fs::create_dir_all(&stray).expect("made");
        std::fs::write(stray.join("x"), "past the fence").expect("stored");
        assert_eq!(generations.mark().await.expect("stored"), Some(number(34)), "{name}");
        assert_eq!(old.write("state", b"late").await.expect_err("stale").code(), "STALE_TOKEN", "{name}");
        new.write("state", b"current").await.expect("stored");
    }
}
