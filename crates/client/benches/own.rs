//! What the client itself costs: everything but the network, with the grantor's own step inside the figures.
//!
//! `cargo bench -p leasehold --features testing`

use divan::Bencher;
use divan::counter::ItemsCount;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use leasehold::blocking::block_on;
use leasehold::testing::Grantor;

/// Requests in flight where many tasks ask.
const TASKS: usize = 256;

fn main() {
    // Under `cargo test` a bench binary is only asked whether it starts.
    if std::env::args().any(|arg| arg == "--bench") {
        divan::main();
    }
}

#[divan::bench]
fn one_after_the_other(bencher: Bencher<'_, '_>) {
    let client = Grantor::new().client("w1");
    let guard = block_on(client.lock("a").acquire()).expect("it is free");
    bencher.bench_local(|| block_on(guard.confirm()).expect("it is current"));
}

/// What the one above cannot go below: two threads wake each other, and nothing else is done.
#[divan::bench]
fn another_thread_and_back(bencher: Bencher<'_, '_>) {
    let (ask, mut asked) = tokio::sync::mpsc::unbounded_channel::<()>();
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel::<()>();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let echo = async move { while asked.recv().await.is_some() && tell.send(()).is_ok() {} };
    let thread = std::thread::spawn(move || runtime.block_on(echo));
    bencher.bench_local(|| {
        ask.send(()).expect("it listens");
        block_on(told.recv())
    });
    drop(ask);
    thread.join().expect("it ended");
}

#[divan::bench]
fn many_tasks_confirm(bencher: Bencher<'_, '_>) {
    let client = Grantor::new().client("w1");
    let guard = block_on(client.lock("a").acquire()).expect("it is free");
    bencher.counter(ItemsCount::new(TASKS)).bench_local(|| {
        let mut asked: FuturesUnordered<_> = (0..TASKS).map(|_| guard.confirm()).collect();
        while let Some(told) = block_on(asked.next()) {
            told.expect("it is current");
        }
    });
}

#[divan::bench]
fn many_tasks_acquire_and_release(bencher: Bencher<'_, '_>) {
    let client = Grantor::new().client("w1");
    let locks: Vec<_> = (0..TASKS).map(|at| client.lock(format!("a/{at}"))).collect();
    bencher.counter(ItemsCount::new(2 * TASKS)).bench_local(|| {
        let pair = |lock: &leasehold::Lock| {
            let lock = lock.clone();
            async move { lock.acquire().await.expect("it is free").release().await.expect("it is held") }
        };
        let mut asked: FuturesUnordered<_> = locks.iter().map(pair).collect();
        while block_on(asked.next()).is_some() {}
    });
}

#[divan::bench]
fn a_look_at_the_state(bencher: Bencher<'_, '_>) {
    let client = Grantor::new().client("w1");
    let guard = block_on(client.lock("a").acquire()).expect("it is free");
    bencher.bench_local(|| divan::black_box(guard.state()));
}
