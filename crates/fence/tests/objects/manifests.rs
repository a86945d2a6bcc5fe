//! The manifest: it lists the existing objects, garbage collection removes others, and a damaged manifest is an error.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::token::{Cluster, Token};
use leasehold_fence::objects::{Fence, ObjectChange};
use leasehold_fence::{Error, FenceRefusal};
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

use crate::invalid_tokens::mistakes;
use crate::support::{CLUSTER, RESOURCE, fence_id, id_of, number, parts, token};

async fn armed() -> (Arc<InMemory>, Fence) {
    let store = Arc::new(InMemory::new());
    let fence = Fence::new(store.clone(), "guarded", &fence_id()).expect("a prefix");
    fence.arm().await.expect("armed");
    (store, fence)
}

#[tokio::test]
async fn changes_are_atomic_and_objects_outside_the_manifest_do_not_exist() {
    let (store, fence) = armed().await;
    fence.claim(&token(33)).await.expect("claimed");
    fence.write(&token(33), &[ObjectChange::Put("a", b"1"), ObjectChange::Put("b", b"2")]).await.expect("current");
    fence.write(&token(33), &[ObjectChange::Put("a", b"3"), ObjectChange::Remove("b")]).await.expect("current");
    let stray = "guarded/data/0000000000000000033-00000000000000000000000000000000-0";
    store.put(&Path::from(stray), "stray".into()).await.expect("put without the fence");
    assert_eq!(fence.names().await.expect("it can be read"), ["a"]);
    assert_eq!(fence.get("a").await.expect("it can be read").as_deref(), Some(&b"3"[..]));
    assert_eq!(fence.get("b").await.expect("it can be read"), None);
    assert_eq!(fence.arm().await.expect_err("it is armed").code(), "CONFLICT");
}

#[tokio::test]
async fn garbage_collection_deletes_only_unlisted_objects_below_the_mark() {
    let (store, fence) = armed().await;
    fence
        .write(&token(33), &[ObjectChange::Put("kept", b"1"), ObjectChange::Put("replaced", b"2")])
        .await
        .expect("current");
    fence.write(&token(33), &[ObjectChange::Put("replaced", b"3")]).await.expect("current");
    assert!(fence.orphans().await.expect("listed").is_empty(), "objects at the mark are kept");
    // Objects of a dead writer, of an active writer, and without a fence.
    for key in ["0000000000000000032-0a-0", "0000000000000000034-0b-0", "notes.txt"] {
        store.put(&Path::from(format!("guarded/data/{key}")), "x".into()).await.expect("put");
    }
    fence.claim(&token(34)).await.expect("a successor");
    let orphans = fence.orphans().await.expect("listed");
    assert_eq!(orphans.len(), 2, "{orphans:?}");
    assert!(orphans[0].as_ref().contains("0000000000000000032-0a-0"), "{orphans:?}");
    assert_eq!(fence.delete_orphans().await.expect("deleted"), 2);
    assert_eq!(fence.delete_orphans().await.expect("deleted"), 0);
    for name in ["kept", "replaced"] {
        assert!(fence.get(name).await.expect("it can be read").is_some(), "{name}");
    }
    assert!(
        store.head(&Path::from("guarded/data/0000000000000000034-0b-0")).await.is_ok(),
        "its holder may still list it"
    );
    assert!(store.head(&Path::from("guarded/data/notes.txt")).await.is_ok());
}

#[tokio::test]
async fn invalid_tokens_store_nothing() {
    let (store, fence) = armed().await;
    fence.claim(&token(40)).await.expect("claimed");
    for (text, code, reason) in mistakes() {
        for error in [
            fence.claim(&text).await.expect_err(reason),
            fence.write(&text, &[ObjectChange::Put("a", b"1")]).await.expect_err(reason),
        ] {
            assert_eq!((error.code(), error.refusal().expect(reason).reason()), (code, reason), "{text}");
        }
    }
    let stale = fence.write(&token(39), &[ObjectChange::Put("a", b"1")]).await.expect_err("stale");
    assert_eq!(stale.refusal(), Some(&FenceRefusal::Stale { presented: number(39), mark: number(40) }));
    for name in ["", "two\nlines"] {
        let error = fence.write(&token(40), &[ObjectChange::Put(name, b"1")]).await.expect_err("no name");
        assert_eq!(error.code(), "INVALID_ARGUMENT", "{name:?}");
    }
    let all = store.list_with_delimiter(Some(&Path::from("guarded"))).await.expect("listed");
    assert_eq!((all.objects.len(), all.common_prefixes.len()), (1, 0), "the manifest, and no data");
    assert_eq!(fence.counters().snapshot().stale, 1);
}

#[tokio::test]
async fn a_damaged_or_foreign_manifest_is_an_error() {
    let (store, fence) = armed().await;
    let other = Fence::new(store.clone(), "guarded", &id_of(Cluster(*b"another!"), RESOURCE)).expect("a prefix");
    assert_eq!(other.claim(&token(5)).await.expect_err("its token").code(), "WRONG_CLUSTER");
    let other = Fence::new(store.clone(), "guarded", &id_of(CLUSTER, "jobs/other")).expect("a prefix");
    assert_eq!(other.mark().await.expect_err("another's").code(), "CONFLICT");
    let manifest = Path::from("guarded/leasehold.manifest");
    for body in ["", "something else", "leasehold-mark 1\ncut"] {
        store.put(&manifest, body.into()).await.expect("put without the fence");
        assert_eq!(fence.claim(&token(5)).await.expect_err(body).refusal().expect(body).reason(), "unreadable");
    }
    store.put(&manifest, "leasehold-mark 3\n".into()).await.expect("put without the fence");
    assert!(matches!(fence.claim(&token(5)).await, Err(Error::Version { found: 3, supported: 2 })));
}

#[tokio::test]
async fn a_store_without_conditional_puts_is_an_error_that_suggests_generations() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Arc::new(LocalFileSystem::new_with_prefix(dir.path()).expect("a store"));
    let fence =
        Fence::new(store, "guarded", &fence_id()).expect("a prefix").with_claim_timeout(Duration::from_secs(60));
    let error = fence.arm().await.expect_err("no conditional updates");
    assert_eq!(error.code(), "CONFIG");
    assert!(error.to_string().contains("Generations"), "{error}");
    assert_eq!(fence.claim(&token(33)).await.expect_err("not armed").refusal().expect("refused").reason(), "missing");
}

#[tokio::test]
async fn an_update_of_an_object_that_was_deleted_past_the_fence_fails_and_changes_nothing() {
    let (store, fence) = armed().await;
    fence.write(&token(33), &[ObjectChange::Put("balance", b"1200")]).await.expect("current");
    let listed: Vec<_> =
        futures::TryStreamExt::try_collect(store.list(Some(&Path::from("guarded/data")))).await.expect("listed");
    let data: &object_store::ObjectMeta = &listed[0];
    store.delete(&data.location).await.expect("deleted past the fence");
    let manifest = Path::from("guarded/leasehold.manifest");
    let before = store.get(&manifest).await.expect("read").bytes().await.expect("read");
    let mut calls = 0;
    let failed = fence.update(token(33), "balance", |old| {
        calls += 1;
        old.unwrap_or(b"0").to_vec()
    });
    assert_eq!(failed.await.expect_err("the balance is gone").code(), "CORRUPT");
    assert_eq!(calls, 0, "a missing object is not an empty one");
    assert_eq!(store.get(&manifest).await.expect("read").bytes().await.expect("read"), before);
    fence.write(&token(33), &[ObjectChange::Put("balance", b"900")]).await.expect("it can be set again");
    fence.update(&token(33), "balance", |old| [old.expect("set"), b"0"].concat()).await.expect("updated");
    assert_eq!(fence.get("balance").await.expect("read").as_deref(), Some(&b"9000"[..]));
}

#[tokio::test]
async fn garbage_collection_keeps_objects_of_a_fence_below_its_own_folder() {
    let (store, outer) = armed().await;
    let inner = Fence::new(store, "guarded/data", &id_of(CLUSTER, "jobs/other")).expect("a prefix");
    inner.arm().await.expect("armed");
    let other = Token { resource: leasehold_core::name::resource_hash("jobs/other"), ..parts(7) }.to_string();
    inner.write(&other, &[ObjectChange::Put("balance", b"1200")]).await.expect("current");
    outer.claim(&token(33)).await.expect("claimed");
    assert_eq!(outer.orphans().await.expect("listed"), []);
    outer.delete_orphans().await.expect("deleted");
    assert_eq!(inner.get("balance").await.expect("it can be read").as_deref(), Some(&b"1200"[..]));
}

#[tokio::test]
async fn a_write_that_loses_many_rounds_against_other_writers_is_applied_once() {
    use futures::FutureExt;
    let (_store, fence) = armed().await;
    let mut rounds = 0;
    let applied = fence.update(token(33), "log", |old| {
        if rounds < 40 {
            rounds += 1;
            let content = rounds.to_string();
            let changes = [ObjectChange::Put("other", content.as_bytes())];
            let other = fence.write(token(33), &changes).now_or_never();
            other.expect("a store in memory does not wait").expect("the same holder");
        }
        [old.unwrap_or_default(), b"line\n"].concat()
    });
    applied.await.expect("no one else replaces the manifest any more");
    assert_eq!(fence.get("log").await.expect("it can be read").as_deref(), Some(&b"line\n"[..]));
}

#[tokio::test]
async fn a_damaged_manifest_is_not_re_armed_because_it_lists_the_objects() {
    let (store, fence) = armed().await;
    fence.write(&token(33), &[ObjectChange::Put("a", b"1")]).await.expect("current");
    let manifest = Path::from("guarded/leasehold.manifest");
    let whole = store.get(&manifest).await.expect("stored").bytes().await.expect("its bytes");
    store.put(&manifest, "leasehold-mark 1\ndamaged\n".into()).await.expect("put without the fence");
    let refused = fence.claim(&token(34)).await.expect_err("unreadable");
    assert_eq!(refused.refusal().expect("refused").reason(), "unreadable");
    let error = fence.rearm(number(40)).await.expect_err("it would lose the objects");
    assert_eq!(error.code(), "CORRUPT", "{error}");
    assert!(
        error.to_string().contains("guarded/leasehold.manifest") && error.to_string().contains("backup"),
        "{error}"
    );
    store.put(&manifest, whole.into()).await.expect("restored");
    fence.rearm(number(40)).await.expect("re-armed");
    assert_eq!(fence.get("a").await.expect("it can be read").as_deref(), Some(&b"1"[..]));
}
