//! What must hold in stores of the cloud.

use std::future::Future;
use std::sync::OnceLock;
use std::time::Instant;

use leasehold_fence::conformance::{self, Subject, check, race, token};
use leasehold_fence::objects;
use tokio::runtime::Runtime;

use crate::target::{KINDS, Target};
use crate::world::World;
use crate::{killed, late};

pub const ALL: [(&str, fn()); 9] = [
    ("s3_and_dynamodb_pass_the_conformance_suite", conforms),
    ("racing_holders_never_write_below_the_mark", races),
    ("without_the_fence_the_same_race_corrupts", corrupts),
    ("a_writer_killed_between_any_two_requests_leaves_mark_and_effect_together", killed::between_requests),
    ("a_stopped_holder_whose_write_is_on_the_way_is_refused_when_it_arrives", late::in_flight),
    ("a_write_whose_answer_is_lost_is_applied_once_and_told", late::answers_lost),
    ("a_request_that_is_lost_is_asked_again", late::requests_lost),
    ("a_write_that_was_overtaken_before_its_answer_came_is_told_as_applied", late::overtaken),
    ("a_table_or_prefix_that_was_restored_elsewhere_refuses_until_it_is_armed_again", restored),
];

/// How many operations race: what the slow server bears in the inner loop and in all of `./test`, and the whole number in
/// the deep one.
fn operations(kind: &str) -> u64 {
    match std::env::var("LEASEHOLD_DEPTH").as_deref() {
        Ok("quick") => 400,
        Ok("deep") => 10_000,
        _ if kind == "s3" => 4_000,
        _ => 1_000,
    }
}

pub fn block_on<T>(what: impl Future<Output = T>) -> T {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| Runtime::new().expect("a runtime")).block_on(what)
}

fn conforms() {
    for kind in KINDS {
        let held = block_on(check(&World::new(kind))).unwrap_or_else(|broken| panic!("{kind}: {broken}"));
        for obligation in [
            conformance::RISING,
            conformance::STALE,
            conformance::TOLD,
            conformance::MISTAKES,
            conformance::MISSING,
            conformance::LOST,
            conformance::SURVEY,
            conformance::STRICT,
            conformance::SEQUENCES,
            conformance::RACE,
        ] {
            assert!(held.contains(&obligation), "{kind}: {obligation}");
        }
    }
}

fn races() {
    for kind in KINDS {
        let began = Instant::now();
        let raced = block_on(race(&World::new(kind), 6, operations(kind), 4))
            .unwrap_or_else(|broken| panic!("{kind}: {broken}"));
        println!("{kind}: {raced:?} in {:?}", began.elapsed());
        assert!(raced.refused > 0, "{kind}: nobody was overtaken");
    }
}

fn corrupts() {
    for kind in KINDS {
        let broken = block_on(race(&World::unfenced(kind), 6, 300, 4)).expect_err("no fence, no order");
        assert_eq!(broken.obligation, conformance::RACE, "{kind}: {broken}");
    }
}

fn restored() {
    let world = World::new("s3");
    block_on(world.fresh());
    let Target::Objects(fence) = block_on(world.open()) else { unreachable!("it is S3's world") };
    block_on(fence.write(&token(33), &[objects::Change::Put("kept", b"1")])).expect("written");
    let store = std::sync::Arc::new(world.place().store());
    block_on(copy_all(&store, "guarded", "elsewhere"));
    let copy = objects::Fence::new(store, "elsewhere", conformance::CLUSTER, conformance::name(), 0).expect("a prefix");
    assert_eq!(block_on(copy.claim(&token(34))).expect_err("a copy").refusal().expect("refused").why(), "moved");
    assert_eq!(block_on(copy.rearm(conformance::number(32))).expect_err("below").code(), "CONFLICT");
    block_on(copy.rearm(conformance::number(40))).expect("armed");
    assert_eq!(block_on(copy.claim(&token(39))).expect_err("a holder of before").code(), "STALE_TOKEN");
    block_on(copy.claim(&token(41))).expect("a holder of after");
    assert_eq!(block_on(copy.get("kept")).expect("readable").as_deref(), Some(&b"1"[..]));

    let world = World::new("dynamodb");
    block_on(world.fresh());
    block_on(async {
        world.open().await.claim(&token(33)).await.expect("claimed");
        let (client, table) = (world.place().client(), world.place().name);
        let item = client.scan().table_name(&table).send().await.expect("scanned").items.expect("one").remove(0);
        client.delete_table().table_name(&table).send().await.expect("deleted");
        leasehold_fence::dynamodb::install(&client, &table).await.expect("made anew");
        client.put_item().table_name(&table).set_item(Some(item)).send().await.expect("put back");
        let Target::Dynamo(copy, _) = world.open().await else { unreachable!("it is DynamoDB's world") };
        assert_eq!(copy.claim(&token(34)).await.expect_err("a copy").refusal().expect("refused").why(), "moved");
        copy.rearm(conformance::number(40)).await.expect("armed");
        assert_eq!(copy.claim(&token(39)).await.expect_err("a holder of before").code(), "STALE_TOKEN");
        copy.claim(&token(41)).await.expect("a holder of after");
    });
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
