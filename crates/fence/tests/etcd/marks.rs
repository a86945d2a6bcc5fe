//! Marks in etcd: outdated cached marks, damaged marks, and marks of another etcd cluster.

use leasehold_core::token::Cluster;
use leasehold_fence::conformance::{FenceWriter, Subject, fence_id, number, token};
use leasehold_fence::etcd::{Fence, KvChange, list_marks};
use leasehold_fence::{Error, FenceId, FenceRefusal, MarkLoss};

use crate::server::{EtcdServer, EtcdWriter};

#[tokio::test(flavor = "multi_thread")]
async fn an_outdated_cached_mark_neither_admits_a_stale_token_nor_rejects_a_higher_one() {
    let etcd = EtcdServer::start().await;
    etcd.fresh().await;
    let (EtcdWriter(old), EtcdWriter(new)) = (etcd.writer().await, etcd.writer().await);
    old.claim(&token(33)).await.expect("claimed");
    old.write(&token(33), &[KvChange::put("paid", "old")]).await.expect("written");
    new.claim(&token(34)).await.expect("claimed");
    let refused = old.write(&token(33), &[KvChange::put("paid", "late")]).await.expect_err("its cached mark is 33");
    assert!(matches!(refused, Error::Refused(FenceRefusal::Stale { .. })), "{refused}");
    assert_eq!(etcd.ctl(&["get", "paid", "--print-value-only"]).await.trim(), "old");
    // The cached mark is still 33; a higher token is checked against the stored mark.
    old.write(&token(35), &[KvChange::delete("paid")]).await.expect("a later holder");
    assert_eq!(etcd.ctl(&["get", "paid", "--print-value-only"]).await.trim(), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_the_mark_key_is_rejected_and_a_damaged_mark_rejects_tokens() {
    let etcd = EtcdServer::start().await;
    etcd.fresh().await;
    let mut writer = etcd.writer().await;
    writer.claim(&token(5)).await.expect("claimed");
    let refused = writer
        .0
        .write(&token(5), &[KvChange::delete(writer.0.key())])
        .await
        .expect_err("only the fence writes this key");
    assert_eq!(refused.code(), "INVALID_ARGUMENT");
    etcd.ctl(&["put", &writer.0.key(), "lh1-something"]).await;
    let refused = writer.write(&token(6), "x").await.expect_err("unreadable");
    assert!(matches!(refused, Error::Refused(FenceRefusal::MarkLost(MarkLoss::Unreadable))), "{refused}");
    etcd.ctl(&["del", &writer.0.key()]).await;
    let refused = writer.write(&token(6), "x").await.expect_err("missing");
    assert!(matches!(refused, Error::Refused(FenceRefusal::MarkLost(MarkLoss::Missing))), "{refused}");
    assert!(etcd.applied().await.is_empty());
    writer.0.rearm(number(10)).await.expect("a mark at the floor is created");
    assert_eq!(writer.claim(&token(9)).await.expect_err("an earlier holder").code(), "STALE_TOKEN");
    writer.claim(&token(11)).await.expect("a later holder");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mark_of_another_etcd_cluster_is_lost_until_re_armed() {
    let (one, other) = (EtcdServer::start().await, EtcdServer::start().await);
    one.fresh().await;
    let mut writer = one.writer().await;
    writer.claim(&token(5)).await.expect("claimed");
    let mark = one.ctl(&["get", &writer.0.key(), "--print-value-only"]).await;
    other.ctl(&["put", &writer.0.key(), mark.trim_end_matches('\n')]).await;
    let mut other_writer = other.writer().await;
    let refused = other_writer.claim(&token(6)).await.expect_err("stored in another cluster");
    assert!(matches!(refused, Error::Refused(FenceRefusal::MarkLost(MarkLoss::Moved))), "{refused}");
    other_writer.0.rearm(leasehold_fence::conformance::number(7)).await.expect("armed");
    other_writer.write(&token(7), "here").await.expect("a write after re-arming");
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_others_under_the_prefix_are_not_marks_and_a_foreign_mark_is_not_changed() {
    let etcd = EtcdServer::start().await;
    etcd.fresh().await;
    let EtcdWriter(fence) = etcd.writer().await;
    fence.claim(&token(33)).await.expect("claimed");
    for key in
        ["leasehold/", "leasehold/notes", "leasehold/0123456789abcdef", "leasehold/0123456789abcdef/00000000/more"]
    {
        etcd.ctl(&["put", key, "something else"]).await;
    }
    assert_eq!(list_marks(etcd.channel(), None).await.expect("listed").len(), 1);
    let other = FenceId::new(Cluster(*b"another!"), fence_id().resource()).expect("a name");
    let other = Fence::new(etcd.channel(), &other);
    for result in [other.rearm(number(50)).await, other.declare_lost().await, other.strict(true).await] {
        assert_eq!(result.expect_err("the mark of another cluster").code(), "WRONG_CLUSTER");
    }
    fence.write(&token(33), &[KvChange::put("paid", "current")]).await.expect("still admitted");
    // A damaged mark is not skipped: a restore would choose a floor without it.
    etcd.ctl(&["put", "leasehold/0123456789abcdef/00000000", "something else"]).await;
    assert_eq!(list_marks(etcd.channel(), None).await.expect_err("damaged").code(), "STORAGE_FAILED");
}
