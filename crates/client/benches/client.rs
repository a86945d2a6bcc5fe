//! Cost of the client without the network. The numbers include the step of the in-memory grantor.
//!
//! `cargo bench -p leasehold --features testing`

use divan::Bencher;
use divan::counter::ItemsCount;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use leasehold::blocking::block_on;
use leasehold::testing::TestServer;

/// Concurrent tasks.
const TASKS: usize = 256;

fn main() {
    // `cargo test` only starts the binary.
    if std::env::args().any(|arg| arg == "--bench") {
        divan::main();
    }
}

#[divan::bench]
fn sequential_checks(bencher: Bencher<'_, '_>) {
    let client = TestServer::new().client("w1");
    let guard = block_on(client.lock("a").acquire()).expect("the resource is free");
    bencher.bench_local(|| block_on(guard.check()).expect("the lease is current"));
}

/// Lower bound of the benchmark above: two threads that only wake each other.
#[divan::bench]
fn thread_round_trip(bencher: Bencher<'_, '_>) {
    let (request, mut requests) = tokio::sync::mpsc::unbounded_channel::<()>();
    let (reply, mut replies) = tokio::sync::mpsc::unbounded_channel::<()>();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let echo = async move { while requests.recv().await.is_some() && reply.send(()).is_ok() {} };
    let thread = std::thread::spawn(move || runtime.block_on(echo));
    bencher.bench_local(|| {
        request.send(()).expect("the receiver exists");
        block_on(replies.recv())
    });
    drop(request);
    thread.join().expect("the thread did not panic");
}

#[divan::bench]
fn concurrent_checks(bencher: Bencher<'_, '_>) {
    let client = TestServer::new().client("w1");
    let guard = block_on(client.lock("a").acquire()).expect("the resource is free");
    bencher.counter(ItemsCount::new(TASKS)).bench_local(|| {
        let mut requests: FuturesUnordered<_> = (0..TASKS).map(|_| guard.check()).collect();
        while let Some(reply) = block_on(requests.next()) {
            reply.expect("the lease is current");
        }
    });
}

#[divan::bench]
fn concurrent_acquire_and_release(bencher: Bencher<'_, '_>) {
    let client = TestServer::new().client("w1");
    let locks: Vec<_> = (0..TASKS).map(|index| client.lock(format!("a/{index}"))).collect();
    bencher.counter(ItemsCount::new(2 * TASKS)).bench_local(|| {
        let pair = |lock: &leasehold::Lock| {
            let lock = lock.clone();
            async move { lock.acquire().await.expect("the resource is free").release().await.expect("the lease is held") }
        };
        let mut requests: FuturesUnordered<_> = locks.iter().map(pair).collect();
        while block_on(requests.next()).is_some() {}
    });
}

#[divan::bench]
fn read_state(bencher: Bencher<'_, '_>) {
    let client = TestServer::new().client("w1");
    let guard = block_on(client.lock("a").acquire()).expect("the resource is free");
    bencher.bench_local(|| divan::black_box(guard.state()));
}
