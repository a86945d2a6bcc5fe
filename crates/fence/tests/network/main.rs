//! Tests with holders in separate processes, stopped while their write to a server is in flight. A child is this program
//! itself, started with a role.

#[path = "../processes/child.rs"]
#[allow(dead_code, reason = "no child is killed here")]
mod child;
mod child_main;
#[path = "../etcd/server.rs"]
#[allow(dead_code, reason = "the target's own tests use more of it")]
mod etcd;
#[path = "../nats/server.rs"]
#[allow(dead_code, reason = "the target's own tests use more of it")]
mod nats;
#[path = "../redis/server.rs"]
#[allow(dead_code, reason = "the target's own tests use more of it")]
mod redis_server;

use std::panic::{AssertUnwindSafe, catch_unwind};

use leasehold_fence::conformance::{FenceWriter, Subject, token};
use leasehold_testkit::tcp_proxy::{Flow, ProxyUpstream, TcpProxy};

use child::Child;

const ALL: [(&str, fn()); 3] = [
    ("redis_rejects_a_write_in_flight_of_a_stopped_holder", || run(redis())),
    ("etcd_rejects_a_write_in_flight_of_a_stopped_holder", || run(etcd())),
    ("nats_rejects_a_write_in_flight_of_a_stopped_holder", || run(nats())),
];

/// Runs the tests with the output of the standard test runner, so that they can be listed and filtered.
fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|arg| arg == child_main::CHILD_ARG) {
        return run(child_main::run(&args[1..]));
    }
    if args.iter().any(|arg| arg == "--list") {
        return ALL.iter().for_each(|(name, _)| println!("{name}: test"));
    }
    let filter = args.iter().find(|arg| !arg.starts_with('-'));
    let selected: Vec<_> =
        ALL.iter().filter(|(name, _)| filter.is_none_or(|word| name.contains(word.as_str()))).collect();
    println!("\nrunning {} tests", selected.len());
    let mut failed = 0;
    for (name, test) in &selected {
        let ok = catch_unwind(AssertUnwindSafe(test)).is_ok();
        println!("test {name} ... {}", if ok { "ok" } else { "FAILED" });
        failed += usize::from(!ok);
    }
    let result = if failed == 0 { "ok" } else { "FAILED" };
    let (passed, filtered) = (selected.len() - failed, ALL.len() - selected.len());
    println!(
        "\ntest result: {result}. {passed} passed; {failed} failed; 0 ignored; 0 measured; {filtered} filtered out\n"
    );
    if failed > 0 {
        std::process::exit(101);
    }
}

fn run(test: impl Future<Output = ()>) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(test);
}

async fn redis() {
    let redis = redis_server::Redis::start(&[]).await;
    let upstream = ProxyUpstream::Socket(redis.socket().into());
    stopped_with_a_write_in_flight("redis", &redis, upstream).await;
}

async fn etcd() {
    let etcd = etcd::EtcdServer::start().await;
    let upstream = ProxyUpstream::from(etcd.at().trim_start_matches("http://"));
    stopped_with_a_write_in_flight("etcd", &etcd, upstream).await;
}

async fn nats() {
    let nats = nats::NatsServer::start().await;
    let upstream = ProxyUpstream::from(nats.at());
    stopped_with_a_write_in_flight("nats", &nats, upstream).await;
}

async fn stopped_with_a_write_in_flight(kind: &str, target: &impl Subject, upstream: ProxyUpstream) {
    target.fresh().await;
    let proxy = TcpProxy::start(upstream);
    let mut old = Child::start("on_command", kind, proxy.address().to_string().as_ref(), 33);
    assert_eq!(old.next_line().as_deref(), Some("written"), "{kind}: the claim");
    old.send("first");
    assert_eq!(old.next_line().as_deref(), Some("written"));
    proxy.set_flow(Flow::Hold, Flow::Pass);
    old.send("in-flight");
    proxy.wait_until_held(b"in-flight").await;
    old.stop();

    let mut new = target.writer().await;
    new.claim(&token(34)).await.expect("the successor's claim");
    new.write(&token(34), "second").await.expect("its write");
    proxy.set_both(Flow::Pass);
    old.resume();
    let result = old.next_line().expect("a result");
    assert!(result.starts_with("STALE_TOKEN") && result.contains("33") && result.contains("34"), "{kind}: {result}");
    let applied: Vec<_> = target.applied().await.into_iter().map(|entry| (entry.number.get(), entry.value)).collect();
    assert_eq!(applied, [(33, "first".to_owned()), (34, "second".to_owned())], "{kind}");
}
