//! Marks in etcd: where a remembered one misleads, and what a change may not touch.

use leasehold_fence::conformance::{Subject, Writer, token};
use leasehold_fence::etcd::Change;
use leasehold_fence::{Error, Lost, Refusal};

use crate::server::{Etcd, Way};

#[tokio::test(flavor = "multi_thread")]
async fn who_remembers_an_old_mark_is_refused_by_the_comparison_and_who_remembers_a_stale_one_looks_again() {
    let etcd = Etcd::start().await;
    etcd.fresh().await;
    let (Way(old), Way(new)) = (etcd.writer().await, etcd.writer().await);
    old.claim(&token(33)).await.expect("claimed");
    old.write(&token(33), &[Change::put("paid", "old")]).await.expect("written");
    new.claim(&token(34)).await.expect("claimed");
    let refused = old.write(&token(33), &[Change::put("paid", "late")]).await.expect_err("it remembers 33");
    assert!(matches!(refused, Error::Refused(Refusal::Stale { .. })), "{refused}");
    assert_eq!(etcd.ctl(&["get", "paid", "--print-value-only"]).await.trim(), "old");
    // It remembers 33 still; a higher token of its own passes by what is there.
    old.write(&token(35), &[Change::delete("paid")]).await.expect("it is a later holder now");
    assert_eq!(etcd.ctl(&["get", "paid", "--print-value-only"]).await.trim(), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_the_mark_itself_is_refused_and_a_mark_that_makes_no_sense_refuses() {
    let etcd = Etcd::start().await;
    etcd.fresh().await;
    let mut way = etcd.writer().await;
    way.claim(&token(5)).await.expect("claimed");
    let refused =
        way.0.write(&token(5), &[Change::delete(way.0.key())]).await.expect_err("only the fence writes there");
    assert_eq!(refused.code(), "INVALID_ARGUMENT");
    etcd.ctl(&["put", &way.0.key(), "lh1-something"]).await;
    let refused = way.write(&token(6), "x").await.expect_err("unreadable");
    assert!(matches!(refused, Error::Refused(Refusal::Lost(Lost::Unreadable))), "{refused}");
    etcd.ctl(&["del", &way.0.key()]).await;
    let refused = way.write(&token(6), "x").await.expect_err("gone");
    assert!(matches!(refused, Error::Refused(Refusal::Lost(Lost::Missing))), "{refused}");
    assert!(etcd.applied().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mark_of_another_etcd_cluster_refuses_until_it_is_armed_here() {
    let (one, other) = (Etcd::start().await, Etcd::start().await);
    one.fresh().await;
    let mut way = one.writer().await;
    way.claim(&token(5)).await.expect("claimed");
    let mark = one.ctl(&["get", &way.0.key(), "--print-value-only"]).await;
    other.ctl(&["put", &way.0.key(), mark.trim_end_matches('\n')]).await;
    let mut there = other.writer().await;
    let refused = there.claim(&token(6)).await.expect_err("it was kept elsewhere");
    assert!(matches!(refused, Error::Refused(Refusal::Lost(Lost::Moved))), "{refused}");
    there.0.rearm(leasehold_fence::conformance::number(7)).await.expect("armed");
    there.write(&token(7), "here").await.expect("it goes on");
}
