//! Holders of servers' targets that are real processes, stopped while their write is on its way. A child is this program
//! itself, started with its part.

#[path = "../processes/child.rs"]
#[allow(dead_code, reason = "nobody is killed here")]
mod child;
#[path = "../support/daemon.rs"]
#[allow(dead_code, reason = "every target uses another part of it")]
mod daemon;
#[path = "../etcd/server.rs"]
#[allow(dead_code, reason = "the target's own tests use more of it")]
mod etcd;
mod gate;
#[path = "../nats/server.rs"]
#[allow(dead_code, reason = "the target's own tests use more of it")]
mod nats;
mod part;
#[path = "../redis/server.rs"]
#[allow(dead_code, reason = "the target's own tests use more of it")]
mod redis_server;

use std::panic::{AssertUnwindSafe, catch_unwind};

use leasehold_fence::conformance::{Subject, Writer, token};

use child::Child;
use gate::{Gate, Upstream};

const ALL: [(&str, fn()); 3] = [
    ("redis_refuses_the_write_in_flight_of_a_holder_that_was_stopped", || run(redis())),
    ("etcd_refuses_the_write_in_flight_of_a_holder_that_was_stopped", || run(etcd())),
    ("nats_refuses_the_write_in_flight_of_a_holder_that_was_stopped", || run(nats())),
];

/// What is run, by name, in the words of the test runner, so that it can be counted and chosen like any other test.
fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.first().is_some_and(|word| word == part::PLAY) {
        return run(part::play(&words[1..]));
    }
    if words.iter().any(|word| word == "--list") {
        return ALL.iter().for_each(|(name, _)| println!("{name}: test"));
    }
    let wanted = words.iter().find(|word| !word.starts_with('-'));
    let chosen: Vec<_> =
        ALL.iter().filter(|(name, _)| wanted.is_none_or(|word| name.contains(word.as_str()))).collect();
    println!("\nrunning {} tests", chosen.len());
    let mut failed = 0;
    for (name, story) in &chosen {
        let held = catch_unwind(AssertUnwindSafe(story)).is_ok();
        println!("test {name} ... {}", if held { "ok" } else { "FAILED" });
        failed += usize::from(!held);
    }
    let result = if failed == 0 { "ok" } else { "FAILED" };
    let (passed, left) = (chosen.len() - failed, ALL.len() - chosen.len());
    println!("\ntest result: {result}. {passed} passed; {failed} failed; 0 ignored; 0 measured; {left} filtered out\n");
    if failed > 0 {
        std::process::exit(101);
    }
}

fn run(story: impl Future<Output = ()>) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(story);
}

async fn redis() {
    let redis = redis_server::Redis::start(&[]).await;
    let upstream = Upstream::Socket(redis.socket().into());
    stopped_with_a_write_in_flight("redis", &redis, upstream).await;
}

async fn etcd() {
    let etcd = etcd::Etcd::start().await;
    let upstream = Upstream::Address(etcd.at().trim_start_matches("http://").parse().expect("an address"));
    stopped_with_a_write_in_flight("etcd", &etcd, upstream).await;
}

async fn nats() {
    let nats = nats::Nats::start().await;
    let upstream = Upstream::Address(nats.at().parse().expect("an address"));
    stopped_with_a_write_in_flight("nats", &nats, upstream).await;
}

async fn stopped_with_a_write_in_flight(kind: &str, target: &impl Subject, upstream: Upstream) {
    target.fresh().await;
    let gate = Gate::open(upstream).await;
    let mut old = Child::start("late", kind, gate.at().as_ref(), 33);
    assert_eq!(old.says().as_deref(), Some("written"), "{kind}: it claimed");
    old.order("first");
    assert_eq!(old.says().as_deref(), Some("written"));
    gate.hold();
    old.order("in-flight");
    gate.holds("in-flight").await;
    old.stop();

    let mut new = target.writer().await;
    new.claim(&token(34)).await.expect("the successor claims");
    new.write(&token(34), "second").await.expect("and writes");
    gate.release();
    old.go_on();
    let answer = old.says().expect("it tells what came of it");
    assert!(answer.starts_with("STALE_TOKEN") && answer.contains("33") && answer.contains("34"), "{kind}: {answer}");
    let applied: Vec<_> = target.applied().await.into_iter().map(|one| (one.number.get(), one.value)).collect();
    assert_eq!(applied, [(33, "first".to_owned()), (34, "second".to_owned())], "{kind}");
}
