//! A store without compare-and-swap: nobody is refused there, and nobody follows the zombie either.

use std::sync::Arc;

use leasehold_fence::objects::Generations;
use leasehold_fence::{Error, Lost, Refusal};
use object_store::local::LocalFileSystem;
use tempfile::TempDir;

use crate::mistakes::mistakes;
use crate::support::{CLUSTER, name, number, token};

async fn armed() -> (TempDir, Generations) {
    let (folder, generations) = bare();
    generations.arm().await.expect("armed");
    (folder, generations)
}

fn bare() -> (TempDir, Generations) {
    let folder = tempfile::tempdir().expect("a directory");
    let store = Arc::new(LocalFileSystem::new_with_prefix(folder.path()).expect("a store"));
    let generations = Generations::new(store, "guarded", CLUSTER, name(), 0).expect("a prefix");
    (folder, generations)
}

async fn read(generations: &Generations, name: &str) -> Option<(u64, String)> {
    let found = generations.get(name).await.expect("readable");
    found.map(|(number, content)| (number.get(), String::from_utf8(content).expect("text")))
}

#[tokio::test]
async fn what_a_zombie_writes_after_its_successors_claim_is_followed_by_nobody() {
    let (_folder, generations) = armed().await;
    let mut old = generations.claim(&token(33)).await.expect("claimed");
    old.put("state", b"first").await.expect("kept");
    assert_eq!(read(&generations, "state").await, Some((33, "first".to_owned())));
    let mut new = generations.claim(&token(34)).await.expect("a successor");
    assert_eq!(new.get("state").await.expect("taken over").as_deref(), Some(&b"first"[..]));
    let error = old.put("state", b"late").await.expect_err("a zombie");
    assert_eq!(error.refusal(), Some(&Refusal::Stale { presented: number(33), mark: number(34) }));
    assert_eq!(read(&generations, "state").await, Some((34, "first".to_owned())));
    new.put("state", b"second").await.expect("kept");
    assert_eq!(read(&generations, "state").await, Some((34, "second".to_owned())));
    let counted = generations.counters().read();
    assert_eq!((counted.claims, counted.admitted, counted.stale), (2, 2, 1));
}

#[tokio::test]
async fn a_write_that_lands_between_claim_and_look_changes_nothing_that_was_taken_over() {
    let (folder, generations) = armed().await;
    let mut old = generations.claim(&token(33)).await.expect("claimed");
    old.put("state", b"first").await.expect("kept");
    generations.claim(&token(34)).await.expect("a successor");
    // Past every look: the bytes of a zombie's request that was on its way all the time.
    let late = folder.path().join("guarded/generations/0000000000000000033/w/0000000000000000001/state");
    std::fs::create_dir_all(late.parent().expect("a folder")).expect("made");
    std::fs::write(late, "late").expect("landed");
    assert_eq!(read(&generations, "state").await, Some((34, "first".to_owned())));
    let next = generations.claim(&token(35)).await.expect("one more");
    assert_eq!(next.get("state").await.expect("taken over").as_deref(), Some(&b"first"[..]));
}

#[tokio::test]
async fn a_claim_that_was_not_completed_bars_the_older_and_is_not_followed() {
    let (folder, generations) = armed().await;
    let mut old = generations.claim(&token(33)).await.expect("claimed");
    old.put("state", b"first").await.expect("kept");
    generations.claim(&token(34)).await.expect("a successor");
    let taken = folder.path().join("guarded/generations/0000000000000000034/taken");
    std::fs::remove_file(taken).expect("it died before this");
    assert_eq!(old.put("state", b"late").await.expect_err("announced is enough").code(), "STALE_TOKEN");
    assert_eq!(generations.mark().await.expect("kept"), Some(number(34)));
    assert!(read(&generations, "state").await.is_some_and(|(followed, _)| followed == 33));
    let again = generations.claim(&token(34)).await.expect("the same hold, after its crash");
    assert_eq!(again.number(), number(34));
    assert!(read(&generations, "state").await.is_some_and(|(followed, _)| followed == 34));
}

#[tokio::test]
async fn nothing_armed_and_what_is_shown_by_mistake_are_refused() {
    let (_folder, generations) = bare();
    let lost = generations.claim(&token(33)).await.expect_err("nothing is there");
    assert!(matches!(lost, Error::Refused(Refusal::Lost(Lost::Missing))), "{lost}");
    generations.arm().await.expect("armed");
    assert_eq!(generations.arm().await.expect_err("it is armed").code(), "CONFLICT");
    for (shown, code, why) in mistakes() {
        assert_eq!(generations.claim(&shown).await.expect_err(why).code(), code, "{shown}");
    }
    let mut held = generations.claim(&token(40)).await.expect("claimed");
    for name in ["", "a/b", ".."] {
        assert_eq!(held.put(name, b"x").await.expect_err("no name").code(), "INVALID_ARGUMENT", "{name:?}");
    }
    assert_eq!(generations.claim(&token(39)).await.expect_err("lower").code(), "STALE_TOKEN");
}

#[tokio::test(flavor = "multi_thread")]
async fn among_racing_holders_a_reader_never_sees_a_number_fall_nor_misses_what_was_told_as_kept() {
    let (_folder, generations) = armed().await;
    let holders = (1..=12_u64).map(|number| {
        let generations = generations.clone();
        tokio::spawn(async move {
            let mut kept = Vec::new();
            let Ok(mut held) = generations.claim(&token(number)).await else { return kept };
            for count in 0..8 {
                let name = format!("{number}-{count}");
                if held.put(&name, b"x").await.is_ok() {
                    kept.push(name);
                }
            }
            kept
        })
    });
    let holders: Vec<_> = holders.collect();
    let reader = generations.clone();
    let reader = tokio::spawn(async move {
        let mut highest = 0;
        for _ in 0..50 {
            if let Some((number, _)) = reader.get("12-0").await.expect("readable") {
                assert!(number.get() >= highest, "{number} after {highest}");
                highest = number.get();
            }
        }
    });
    let mut kept = Vec::new();
    for holder in holders {
        kept.extend(holder.await.expect("no panic"));
    }
    reader.await.expect("no panic");
    let last = generations.claim(&token(13)).await.expect("the last one");
    assert!(!kept.is_empty());
    for name in kept {
        assert!(last.get(&name).await.expect("readable").is_some(), "{name} was told as kept");
    }
}
