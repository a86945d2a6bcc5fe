//! The list of tests of the S3 and DynamoDB fences, and those of conformance, races, restored stores and stores without conditions.

use std::future::Future;
use std::sync::OnceLock;
use std::time::Instant;

use leasehold_fence::conformance::{self, Subject, check, race, token};
use leasehold_fence::objects;
use tokio::runtime::Runtime;

use crate::moto::server;
use crate::proxy::{FaultyProxy, ProxyAction};
use crate::subject::CloudSubject;
use crate::target::{KINDS, Target, TargetAddress};
use crate::{delayed_writes, dynamodb_marks, dynamodb_replies, kill};

pub const ALL: [(&str, fn()); 27] = [
    ("s3_and_dynamodb_pass_the_conformance_suite", conforms),
    ("concurrent_holders_never_write_below_the_mark", concurrent_holders),
    ("without_the_fence_the_race_breaks_the_order", without_fence),
    ("a_writer_killed_between_any_two_requests_leaves_mark_and_effect_together", kill::between_requests),
    ("a_write_in_flight_of_a_stopped_holder_is_rejected", delayed_writes::in_flight),
    ("a_write_with_a_lost_response_is_applied_once_and_succeeds", delayed_writes::lost_responses),
    ("a_lost_request_is_retried", delayed_writes::lost_requests),
    ("an_applied_write_succeeds_even_if_a_successor_claims_before_its_response", delayed_writes::overtaken),
    ("a_restored_table_or_prefix_rejects_tokens_until_re_armed", restored),
    ("a_store_that_ignores_conditions_cannot_be_armed", without_conditions),
    ("a_claim_ends_although_the_store_never_replies", delayed_writes::silent_store),
    ("a_throttled_transaction_is_retried", dynamodb_replies::throttled),
    ("a_transaction_throttled_for_the_whole_timeout_says_so", dynamodb_replies::throttled_for_long),
    ("an_applied_write_succeeds_although_its_response_is_an_error", dynamodb_replies::server_errors),
    ("a_lost_response_is_resolved_although_reads_fail_for_a_while", dynamodb_replies::reads_fail),
    ("an_unknown_outcome_is_never_reported_as_one_without_effect", dynamodb_replies::unknown_until_timeout),
    ("a_claim_ends_although_the_server_never_replies", dynamodb_replies::silent_server),
    ("a_rejection_of_dynamodb_has_a_code_and_names_the_next_step", dynamodb_replies::rejections),
    ("a_failed_condition_of_the_caller_is_returned_with_the_error_inside", dynamodb_replies::own_conditions),
    ("an_operator_whose_response_is_lost_succeeds", dynamodb_replies::operators),
    ("a_damaged_mark_refuses_and_can_be_re_armed", dynamodb_marks::damaged),
    ("a_deleted_mark_refuses_and_can_be_re_armed", dynamodb_marks::deleted),
    ("the_mark_of_another_fence_is_refused", dynamodb_marks::copied),
    ("a_fence_opened_before_a_restore_arms_nothing", dynamodb_marks::opened_before_a_restore),
    ("a_write_changes_no_mark_and_has_at_most_99_items", dynamodb_marks::too_many_items),
    ("a_table_that_cannot_hold_marks_is_refused", dynamodb_marks::foreign_tables),
    ("installing_waits_for_a_new_table_and_for_no_other", dynamodb_marks::installing),
];

/// Number of operations of the race, by the depth of the test run. The server is slow.
fn operations(kind: &str) -> u64 {
    match std::env::var("LEASEHOLD_DEPTH").as_deref() {
        Ok("quick") => 400,
        Ok("deep") => 10_000,
        _ if kind == "s3" => 4_000,
        _ => 1_000,
    }
}

pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| Runtime::new().expect("a runtime")).block_on(future)
}

fn conforms() {
    for kind in KINDS {
        let obligations = block_on(check(&CloudSubject::new(kind))).unwrap_or_else(|error| panic!("{kind}: {error}"));
        for obligation in [
            conformance::RISING,
            conformance::STALE,
            conformance::STALE_DETAIL,
            conformance::INVALID_TOKENS,
            conformance::SEALED_TEXTS,
            conformance::SEALED,
            conformance::SEAL_STAYS,
            conformance::UNARMED,
            conformance::LOST_MARK,
            conformance::LIST_MARKS,
            conformance::STRICT,
            conformance::SEQUENCES,
            conformance::RACE,
        ] {
            assert!(obligations.contains(&obligation), "{kind}: {obligation}");
        }
    }
}

fn concurrent_holders() {
    for kind in KINDS {
        let began = Instant::now();
        let report = block_on(race(&CloudSubject::new(kind), 6, operations(kind), 4))
            .unwrap_or_else(|error| panic!("{kind}: {error}"));
        println!("{kind}: {report:?} in {:?}", began.elapsed());
        assert!(report.refused > 0, "{kind}: no token was stale");
    }
}

fn without_fence() {
    for kind in KINDS {
        let error = block_on(race(&CloudSubject::unfenced(kind), 6, 300, 4)).expect_err("there is no fence");
        assert_eq!(error.obligation, conformance::RACE, "{kind}: {error}");
    }
}

fn restored() {
    let subject = CloudSubject::new("s3");
    block_on(subject.fresh());
    let Target::Objects(fence) = block_on(subject.open()) else { unreachable!("the subject is S3") };
    block_on(fence.write(&token(33), &[objects::ObjectChange::Put("kept", b"1")])).expect("written");
    let store = std::sync::Arc::new(subject.address().store());
    block_on(copy_all(&store, "guarded", "elsewhere"));
    let copy = objects::Fence::new(store, "elsewhere", &conformance::fence_id()).expect("a prefix");
    assert_eq!(block_on(copy.claim(&token(34))).expect_err("a copy").refusal().expect("refused").reason(), "moved");
    assert_eq!(block_on(copy.rearm(conformance::number(32))).expect_err("below").code(), "CONFLICT");
    block_on(copy.rearm(conformance::number(40))).expect("armed");
    assert_eq!(block_on(copy.claim(&token(39))).expect_err("an earlier holder").code(), "STALE_TOKEN");
    block_on(copy.claim(&token(41))).expect("a later holder");
    assert_eq!(block_on(copy.get("kept")).expect("it can be read").as_deref(), Some(&b"1"[..]));

    let subject = CloudSubject::new("dynamodb");
    block_on(subject.fresh());
    block_on(async {
        let before = subject.open().await;
        before.claim(&token(33)).await.expect("claimed");
        let (client, table) = (subject.address().client(), subject.address().name);
        let item = client.scan().table_name(&table).send().await.expect("scanned").items.expect("one").remove(0);
        client.delete_table().table_name(&table).send().await.expect("deleted");
        leasehold_fence::dynamodb::install(&client, &table).await.expect("created again");
        client.put_item().table_name(&table).set_item(Some(item)).send().await.expect("restored");
        let refused = before.claim(&token(34)).await.expect_err("opened before the restore");
        assert_eq!(refused.refusal().expect("refused").reason(), "moved");
        let Target::Dynamo(copy, _) = subject.open().await else { unreachable!("the subject is DynamoDB") };
        assert_eq!(copy.claim(&token(34)).await.expect_err("a copy").refusal().expect("refused").reason(), "moved");
        copy.rearm(conformance::number(40)).await.expect("armed");
        assert_eq!(copy.claim(&token(39)).await.expect_err("an earlier holder").code(), "STALE_TOKEN");
        copy.claim(&token(41)).await.expect("a later holder");
    });
}

fn without_conditions() {
    let subject = CloudSubject::new("s3");
    block_on(subject.unarmed());
    let proxy = FaultyProxy::start(server().address, |_| ProxyAction::ForwardUnconditionally);
    let store = std::sync::Arc::new(TargetAddress { url: proxy.url(), ..subject.address() }.store());
    let fence = objects::Fence::new(store, "guarded", &conformance::fence_id()).expect("a prefix");
    let error = block_on(fence.arm()).expect_err("the store refuses no write");
    assert_eq!(error.code(), "CONFIG", "{error}");
    assert!(error.to_string().contains("Generations"), "{error}");
    let refused = block_on(fence.claim(&token(33))).expect_err("not armed");
    assert_eq!(refused.refusal().expect("refused").reason(), "missing");
    let listed = block_on(objects::list_marks(&subject.address().store(), None)).expect("listed");
    assert!(listed.is_empty(), "{listed:?}");
}

async fn copy_all(store: &object_store::aws::AmazonS3, from: &str, to: &str) {
    use futures::TryStreamExt;
    use object_store::{ObjectStore, ObjectStoreExt, path::Path};
    let all: Vec<_> = store.list(Some(&Path::from(from))).try_collect().await.expect("listed");
    for object in all {
        let target = object.location.as_ref().replacen(from, to, 1);
        store.copy(&object.location, &Path::from(target)).await.expect("copied");
    }
}
