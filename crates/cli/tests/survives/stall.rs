//! A server that stands still for longer than a ttl: whoever asks keeps its lease, whoever is silent loses it (L12).

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use leasehold_wire::v1;
use tokio::task::JoinHandle;

use crate::link::{Calls, Told, connect, held, told, within};
use crate::server::{PATIENCE, Server, Start, alone, depth};

const TTL: u64 = 500;
const HOLDERS: usize = 40;

/// Nobody stops these servers for good: every request has its answer.
fn answered<T>(result: Result<tonic::Response<T>, tonic::Status>, of: impl FnOnce(T) -> Told) -> Told {
    let said = result.as_ref().err().map(|status| format!("{status:?}"));
    told(result, of).unwrap_or_else(|_| panic!("no answer: {said:?}"))
}

async fn acquire(calls: &mut Calls, resource: &str, ttl_ms: u64) -> Told {
    let ask =
        v1::Acquire { resource: resource.into(), holder: "holder".into(), ttl_ms: Some(ttl_ms), ..Default::default() };
    answered(within(calls.acquire(ask)).await, |grant| Told::Granted(Box::new(grant)))
}

async fn take(calls: &mut Calls, resource: &str, ttl_ms: u64) -> v1::Grant {
    match acquire(calls, resource, ttl_ms).await {
        Told::Granted(grant) => v1::Grant { resource: resource.into(), ..*grant },
        told => panic!("{resource} is free: {told:?}"),
    }
}

async fn renew(calls: &mut Calls, grant: &v1::Grant) -> Told {
    let renew = v1::Renew { held: Some(held(&grant.resource, &grant.token)), ..Default::default() };
    answered(within(calls.renew(renew)).await, |current| Told::Current(current.token_number))
}

/// Holders that renew as often as their ttl asks for, until they are let go.
struct Holders {
    stop: Arc<AtomicBool>,
    each: Vec<(JoinHandle<()>, Arc<AtomicUsize>)>,
}

impl Holders {
    /// Takes a name for each. What they take is told when they renew for the first time.
    fn begin(calls: &Calls, prefix: &str) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let begin = |i| {
            let renewed = Arc::new(AtomicUsize::new(0));
            let hold = hold(calls.clone(), format!("{prefix}/{i}"), stop.clone(), renewed.clone());
            (tokio::spawn(hold), renewed)
        };
        let each = (0..HOLDERS).map(begin).collect();
        Self { stop, each }
    }

    /// How often each has renewed by now.
    fn renewed(&self) -> Vec<usize> {
        self.each.iter().map(|(_, renewed)| renewed.load(Ordering::Relaxed)).collect()
    }

    /// Whether each has renewed so many times more than it had. Whoever lost its lease fails here.
    async fn have_renewed(&mut self, times: usize, before: &[usize]) -> bool {
        for (holder, _) in &mut self.each {
            if holder.is_finished() {
                holder.await.expect("no holder lost its lease");
            }
        }
        self.renewed().iter().zip(before).all(|(now, before)| *now >= before + times)
    }

    /// Waits for that.
    async fn renew_again(&mut self, times: usize) {
        let (before, until) = (self.renewed(), Instant::now() + PATIENCE);
        while !self.have_renewed(times, &before).await {
            assert!(Instant::now() < until, "from {before:?} to {:?}", self.renewed());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn let_go(self) {
        self.stop.store(true, Ordering::Relaxed);
        for (holder, _) in self.each {
            holder.await.expect("no holder lost its lease");
        }
    }
}

async fn hold(mut calls: Calls, resource: String, stop: Arc<AtomicBool>, renewed: Arc<AtomicUsize>) {
    let grant = take(&mut calls, &resource, TTL).await;
    while !stop.load(Ordering::Relaxed) {
        let next = tokio::time::Instant::now() + Duration::from_millis(TTL / 4);
        assert_eq!(renew(&mut calls, &grant).await, Told::Current(grant.token_number), "after {renewed:?} (L12)");
        renewed.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep_until(next).await;
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

/// Whoever is silent loses its lease, stalls or not (L9).
async fn silence_ends(calls: &mut Calls, silent: &v1::Grant) {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Told::Granted(grant) = acquire(calls, &silent.resource, 60_000).await {
            assert!(grant.token_number > silent.token_number);
            assert_eq!(renew(calls, silent).await, Told::refused("LEASE_LOST", "ttl"));
            return;
        }
        assert!(Instant::now() < until, "a silent holder's lease is endless");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[test]
fn a_stopped_server_punishes_nobody_who_renews() {
    let _alone = alone();
    let above = tempfile::tempdir().expect("a directory");
    runtime().block_on(stop_and_go(&above.path().join("data")));
}

async fn stop_and_go(data: &Path) {
    let server = Server::start(data);
    let mut calls = connect(&server.address).await.expect("it serves");
    for round in 0..depth(1, 3, 40) {
        let mut holders = Holders::begin(&calls, &format!("stop/{round}"));
        let silent = take(&mut calls, &format!("silent/{round}"), TTL).await;
        holders.renew_again(2).await;
        server.signal("STOP");
        // Longer than a ttl and all the credit that a stall gives.
        tokio::time::sleep(Duration::from_millis(3 * TTL)).await;
        server.signal("CONT");
        // One renewal may have been answered before; the others were not.
        holders.renew_again(3).await;
        holders.let_go().await;
        silence_ends(&mut calls, &silent).await;
    }
    server.stop();
}

/// Every turn that puts something on record takes longer than the ttl.
#[test]
fn a_slow_disk_punishes_nobody_who_renews() {
    let _alone = alone();
    let above = tempfile::tempdir().expect("a directory");
    runtime().block_on(slow_syncs(&above.path().join("data")));
}

async fn slow_syncs(data: &Path) {
    // The first start makes the files ready; only then the disk becomes slow.
    Server::start(data).stop();
    let under = "strace -D -f -qq -o /dev/null -e trace=fdatasync -e inject=fdatasync:delay_enter=1300000";
    let server = Start { under, ..Start::default() }.at(data).expect("it starts, slowly");
    let mut calls = connect(&server.address).await.expect("it serves");
    let mut holders = Holders::begin(&calls, "slow");
    let silent = take(&mut calls, "silent", TTL).await;
    // How many of them share a turn is the machine's affair: slow turns go on until each has renewed over several.
    let (before, until, mut turns) = (holders.renewed(), Instant::now() + PATIENCE, 0);
    while turns < depth(2, 6, 100) || !holders.have_renewed(2, &before).await {
        assert!(Instant::now() < until || turns < depth(2, 6, 100), "after {turns} turns: {:?}", holders.renewed());
        take(&mut calls, &format!("other/{turns}"), 60_000).await;
        turns += 1;
    }
    holders.let_go().await;
    silence_ends(&mut calls, &silent).await;
    server.stop();
}
