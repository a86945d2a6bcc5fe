//! Only what the manifest names exists; what it does not name any more is swept; a bare manifest refuses.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::name::Name;
use leasehold_core::token::Cluster;
use leasehold_fence::objects::{Change, Fence};
use leasehold_fence::{Error, Refusal};
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

use crate::mistakes::mistakes;
use crate::support::{CLUSTER, name, number, token};

async fn armed() -> (Arc<InMemory>, Fence) {
    let store = Arc::new(InMemory::new());
    let fence = Fence::new(store.clone(), "guarded", CLUSTER, name(), 0).expect("a prefix");
    fence.arm().await.expect("armed");
    (store, fence)
}

#[tokio::test]
async fn changes_are_applied_together_and_what_no_manifest_names_does_not_exist() {
    let (store, fence) = armed().await;
    fence.claim(&token(33)).await.expect("claimed");
    fence.write(&token(33), &[Change::Put("a", b"1"), Change::Put("b", b"2")]).await.expect("current");
    fence.write(&token(33), &[Change::Put("a", b"3"), Change::Remove("b")]).await.expect("current");
    let stray = "guarded/data/0000000000000000033-00000000000000000000000000000000-0";
    store.put(&Path::from(stray), "stray".into()).await.expect("put past the fence");
    assert_eq!(fence.names().await.expect("readable"), ["a"]);
    assert_eq!(fence.get("a").await.expect("readable").as_deref(), Some(&b"3"[..]));
    assert_eq!(fence.get("b").await.expect("readable"), None);
    assert_eq!(fence.arm().await.expect_err("it is armed").code(), "CONFLICT");
}

#[tokio::test]
async fn a_sweep_takes_what_lies_below_the_mark_and_is_named_by_nobody_and_nothing_else() {
    let (store, fence) = armed().await;
    fence.write(&token(33), &[Change::Put("kept", b"1"), Change::Put("replaced", b"2")]).await.expect("current");
    fence.write(&token(33), &[Change::Put("replaced", b"3")]).await.expect("current");
    assert!(fence.orphans().await.expect("listed").is_empty(), "at the mark nothing is swept");
    // A writer that died before its manifest, one that is at work, and what is no data of a fence.
    for key in ["0000000000000000032-0a-0", "0000000000000000034-0b-0", "notes.txt"] {
        store.put(&Path::from(format!("guarded/data/{key}")), "x".into()).await.expect("put");
    }
    fence.claim(&token(34)).await.expect("a successor");
    let orphans = fence.orphans().await.expect("listed");
    assert_eq!(orphans.len(), 2, "{orphans:?}");
    assert!(orphans[0].as_ref().contains("0000000000000000032-0a-0"), "{orphans:?}");
    assert_eq!(fence.sweep().await.expect("swept"), 2);
    assert_eq!(fence.sweep().await.expect("swept"), 0);
    for name in ["kept", "replaced"] {
        assert!(fence.get(name).await.expect("readable").is_some(), "{name}");
    }
    assert!(
        store.head(&Path::from("guarded/data/0000000000000000034-0b-0")).await.is_ok(),
        "its holder may yet name it"
    );
    assert!(store.head(&Path::from("guarded/data/notes.txt")).await.is_ok());
}

#[tokio::test]
async fn what_is_shown_by_mistake_puts_nothing_at_all() {
    let (store, fence) = armed().await;
    fence.claim(&token(40)).await.expect("claimed");
    for (shown, code, why) in mistakes() {
        for error in [
            fence.claim(&shown).await.expect_err(why),
            fence.write(&shown, &[Change::Put("a", b"1")]).await.expect_err(why),
        ] {
            assert_eq!((error.code(), error.refusal().expect(why).why()), (code, why), "{shown}");
        }
    }
    let stale = fence.write(&token(39), &[Change::Put("a", b"1")]).await.expect_err("stale");
    assert_eq!(stale.refusal(), Some(&Refusal::Stale { presented: number(39), mark: number(40) }));
    for name in ["", "two\nlines"] {
        let error = fence.write(&token(40), &[Change::Put(name, b"1")]).await.expect_err("no name");
        assert_eq!(error.code(), "INVALID_ARGUMENT", "{name:?}");
    }
    let all = store.list_with_delimiter(Some(&Path::from("guarded"))).await.expect("listed");
    assert_eq!((all.objects.len(), all.common_prefixes.len()), (1, 0), "the manifest, and no data");
    assert_eq!(fence.counters().read().stale, 1);
}

#[tokio::test]
async fn a_manifest_that_makes_no_sense_or_is_anothers_refuses() {
    let (store, fence) = armed().await;
    let other = Fence::new(store.clone(), "guarded", Cluster(*b"another!"), name(), 0).expect("a prefix");
    assert_eq!(other.claim(&token(5)).await.expect_err("its token").code(), "WRONG_CLUSTER");
    let resource = Name::parse("jobs/other").expect("a name");
    let other = Fence::new(store.clone(), "guarded", CLUSTER, resource, 0).expect("a prefix");
    assert_eq!(other.mark().await.expect_err("another's").refusal(), Some(&Refusal::ForeignMark));
    let manifest = Path::from("guarded/leasehold.manifest");
    for body in ["", "something else", "leasehold-mark 1\ncut"] {
        store.put(&manifest, body.into()).await.expect("put past the fence");
        assert_eq!(fence.claim(&token(5)).await.expect_err(body).refusal().expect(body).why(), "unreadable");
    }
    store.put(&manifest, "leasehold-mark 2\n".into()).await.expect("put past the fence");
    assert!(matches!(fence.claim(&token(5)).await, Err(Error::Version { have: 2, want: 1 })));
}

#[tokio::test]
async fn a_store_without_compare_and_swap_is_refused_and_the_way_out_named() {
    let folder = tempfile::tempdir().expect("a directory");
    let store = Arc::new(LocalFileSystem::new_with_prefix(folder.path()).expect("a store"));
    let fence = Fence::new(store, "guarded", CLUSTER, name(), 0).expect("a prefix").patience(Duration::from_secs(60));
    fence.arm().await.expect("it can create");
    let error = fence.claim(&token(33)).await.expect_err("it cannot swap");
    assert_eq!(error.code(), "CONFIG");
    assert!(error.to_string().contains("Generations"), "{error}");
    assert_eq!(fence.mark().await.expect("still fresh"), None);
}
