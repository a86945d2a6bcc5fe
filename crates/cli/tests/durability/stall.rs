//! A server that stalls for longer than a ttl: holders that renew keep their leases, silent ones lose them (L12).

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use leasehold_testkit::depth::depth;
use leasehold_wire::v1;
use rustix::process::Signal;
use tokio::task::JoinHandle;

use crate::server::{Server, Start, TEST_TIMEOUT, exclusive_run};
use crate::transport::{GrpcClient, Reply, connect, held, reply, within};

const TTL: u64 = 500;
const HOLDERS: usize = 40;

/// The reply to a call. These servers always respond in the end.
fn reply_of<T>(result: Result<tonic::Response<T>, tonic::Status>, of: impl FnOnce(T) -> Reply) -> Reply {
    let status = result.as_ref().err().map(|status| format!("{status:?}"));
    reply(result, of).unwrap_or_else(|_| panic!("no reply: {status:?}"))
}

async fn acquire(calls: &mut GrpcClient, resource: &str, ttl_ms: u64) -> Reply {
    let request =
        v1::Acquire { resource: resource.into(), holder: "holder".into(), ttl_ms: Some(ttl_ms), ..Default::default() };
    reply_of(within(calls.acquire(request)).await, |grant| Reply::Granted(Box::new(grant)))
}

async fn acquire_granted(calls: &mut GrpcClient, resource: &str, ttl_ms: u64) -> v1::Grant {
    match acquire(calls, resource, ttl_ms).await {
        Reply::Granted(grant) => v1::Grant { resource: resource.into(), ..*grant },
        reply => panic!("{resource} is free: {reply:?}"),
    }
}

async fn renew(calls: &mut GrpcClient, grant: &v1::Grant) -> Reply {
    let renew = v1::Renew { lease: Some(held(&grant.resource, &grant.token)), ..Default::default() };
    reply_of(within(calls.renew(renew)).await, |current| Reply::Current(current.token_number))
}

/// Holders that renew every quarter of their ttl until they are stopped.
struct Holders {
    stop: Arc<AtomicBool>,
    each: Vec<(JoinHandle<()>, Arc<AtomicUsize>)>,
}

impl Holders {
    /// Starts the holders, each with its own resource.
    fn start(calls: &GrpcClient, prefix: &str) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let start = |i| {
            let renewed = Arc::new(AtomicUsize::new(0));
            let hold = hold(calls.clone(), format!("{prefix}/{i}"), stop.clone(), renewed.clone());
            (tokio::spawn(hold), renewed)
        };
        let each = (0..HOLDERS).map(start).collect();
        Self { stop, each }
    }

    /// Number of renewals of each holder.
    fn renewed(&self) -> Vec<usize> {
        self.each.iter().map(|(_, renewed)| renewed.load(Ordering::Relaxed)).collect()
    }

    /// Whether each holder has renewed `times` times since `before`. Fails if a holder lost its lease.
    async fn have_renewed(&mut self, times: usize, before: &[usize]) -> bool {
        for (holder, _) in &mut self.each {
            if holder.is_finished() {
                holder.await.expect("no holder lost its lease");
            }
        }
        self.renewed().iter().zip(before).all(|(now, before)| *now >= before + times)
    }

    /// Waits until each holder has renewed `times` more times.
    async fn wait_for_renewals(&mut self, times: usize) {
        let (before, deadline) = (self.renewed(), Instant::now() + TEST_TIMEOUT);
        while !self.have_renewed(times, &before).await {
            assert!(Instant::now() < deadline, "from {before:?} to {:?}", self.renewed());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn release_all(self) {
        self.stop.store(true, Ordering::Relaxed);
        for (holder, _) in self.each {
            holder.await.expect("no holder lost its lease");
        }
    }
}

async fn hold(mut calls: GrpcClient, resource: String, stop: Arc<AtomicBool>, renewed: Arc<AtomicUsize>) {
    let grant = acquire_granted(&mut calls, &resource, TTL).await;
    while !stop.load(Ordering::Relaxed) {
        let next = tokio::time::Instant::now() + Duration::from_millis(TTL / 4);
        assert_eq!(renew(&mut calls, &grant).await, Reply::Current(grant.token_number), "after {renewed:?} (L12)");
        renewed.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep_until(next).await;
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

/// Checks that a silent holder loses its lease despite stalls (L9).
async fn assert_silent_lease_ends(calls: &mut GrpcClient, silent: &v1::Grant) {
    let deadline = Instant::now() + TEST_TIMEOUT;
    loop {
        if let Reply::Granted(grant) = acquire(calls, &silent.resource, 60_000).await {
            assert!(grant.token_number > silent.token_number);
            assert_eq!(renew(calls, silent).await, Reply::refused("LEASE_LOST", "ttl"));
            return;
        }
        assert!(Instant::now() < deadline, "the lease of a silent holder does not end");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[test]
fn holders_that_renew_survive_a_stopped_server() {
    let _exclusive = exclusive_run();
    let dir = tempfile::tempdir().expect("a directory");
    runtime().block_on(stop_and_continue(&dir.path().join("data")));
}

async fn stop_and_continue(data: &Path) {
    let server = Server::start(data);
    let mut calls = connect(&server.address).await.expect("the server responds");
    for round in 0..depth(1, 3, 40) {
        let mut holders = Holders::start(&calls, &format!("stop/{round}"));
        let silent = acquire_granted(&mut calls, &format!("silent/{round}"), TTL).await;
        holders.wait_for_renewals(2).await;
        server.signal(Signal::STOP);
        // Longer than a ttl and the maximum credit for a stall.
        tokio::time::sleep(Duration::from_millis(3 * TTL)).await;
        server.signal(Signal::CONT);
        // One renewal may have completed before the stop; the others did not.
        holders.wait_for_renewals(3).await;
        holders.release_all().await;
        assert_silent_lease_ends(&mut calls, &silent).await;
    }
    server.stop();
}

/// Every turn that writes takes longer than the ttl.
#[test]
fn holders_that_renew_survive_a_slow_disk() {
    let _exclusive = exclusive_run();
    let dir = tempfile::tempdir().expect("a directory");
    runtime().block_on(slow_syncs(&dir.path().join("data")));
}

async fn slow_syncs(data: &Path) {
    // The first start creates the files; only then the disk becomes slow.
    Server::start(data).stop();
    let under =
        "strace -D -f --seccomp-bpf -qq -o /dev/null -e trace=fdatasync -e inject=fdatasync:delay_enter=1300000";
    let server = Start { under, ..Start::default() }.at(data).expect("the server starts slowly");
    let mut calls = connect(&server.address).await.expect("the server responds");
    let mut holders = Holders::start(&calls, "slow");
    let silent = acquire_granted(&mut calls, "silent", TTL).await;
    // The number of renewals per turn varies: continue with slow turns until each holder has renewed twice.
    let (before, deadline, mut turns) = (holders.renewed(), Instant::now() + TEST_TIMEOUT, 0);
    while turns < depth(2, 6, 100) || !holders.have_renewed(2, &before).await {
        assert!(Instant::now() < deadline || turns < depth(2, 6, 100), "after {turns} turns: {:?}", holders.renewed());
        acquire_granted(&mut calls, &format!("other/{turns}"), 60_000).await;
        turns += 1;
    }
    holders.release_all().await;
    assert_silent_lease_ends(&mut calls, &silent).await;
    server.stop();
}
