//! A server that stands still for longer than a ttl: whoever asks keeps its lease, whoever is silent loses it (L12).

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use leasehold_wire::v1;
use tokio::task::JoinHandle;

use crate::link::{Calls, Told, connect, held, told, within};
use crate::server::{PATIENCE, Server, Start, alone, depth};

const TTL: u64 = 500;
const HOLDERS: usize = 40;

async fn acquire(calls: &mut Calls, resource: &str, ttl_ms: u64) -> Told {
    let ask =
        v1::Acquire { resource: resource.into(), holder: "holder".into(), ttl_ms: Some(ttl_ms), ..Default::default() };
    told(within(calls.acquire(ask)).await, |grant| Told::Granted(Box::new(grant))).expect("it serves")
}

async fn take(calls: &mut Calls, resource: &str, ttl_ms: u64) -> v1::Grant {
    match acquire(calls, resource, ttl_ms).await {
        Told::Granted(grant) => v1::Grant { resource: resource.into(), ..*grant },
        told => panic!("{resource} is free: {told:?}"),
    }
}

async fn renew(calls: &mut Calls, grant: &v1::Grant) -> Told {
    let renew = v1::Renew { held: Some(held(&grant.resource, &grant.token)), ..Default::default() };
    told(within(calls.renew(renew)).await, |current| Told::Current(current.token_number)).expect("it serves")
}

/// A holder that takes a name and renews it as often as its ttl asks for, until told to stop. It says how often.
async fn hold(mut calls: Calls, resource: String, stop: Arc<AtomicBool>) -> usize {
    let grant = take(&mut calls, &resource, TTL).await;
    let mut renewals = 0;
    while !stop.load(Ordering::Relaxed) {
        let next = tokio::time::Instant::now() + Duration::from_millis(TTL / 4);
        assert_eq!(renew(&mut calls, &grant).await, Told::Current(grant.token_number), "after {renewals} (L12)");
        renewals += 1;
        tokio::time::sleep_until(next).await;
    }
    renewals
}

fn hold_all(calls: &Calls, prefix: &str, stop: &Arc<AtomicBool>) -> Vec<JoinHandle<usize>> {
    (0..HOLDERS).map(|i| tokio::spawn(hold(calls.clone(), format!("{prefix}/{i}"), stop.clone()))).collect()
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
        let stop = Arc::new(AtomicBool::new(false));
        let holders = hold_all(&calls, &format!("stop/{round}"), &stop);
        let silent = take(&mut calls, &format!("silent/{round}"), TTL).await;
        tokio::time::sleep(Duration::from_millis(TTL)).await;
        server.signal("STOP");
        // Longer than a ttl and all the credit that a stall gives.
        tokio::time::sleep(Duration::from_millis(3 * TTL)).await;
        server.signal("CONT");
        tokio::time::sleep(Duration::from_millis(2 * TTL)).await;
        stop.store(true, Ordering::Relaxed);
        for holder in holders {
            assert!(holder.await.expect("no holder lost its lease") > 2, "they renewed before and after");
        }
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
    let server = Start { under }.at(data).expect("it starts, slowly");
    let mut calls = connect(&server.address).await.expect("it serves");
    let stop = Arc::new(AtomicBool::new(false));
    let holders = hold_all(&calls, "slow", &stop);
    let silent = take(&mut calls, "silent", TTL).await;
    for name in 0..depth(2, 6, 100) {
        take(&mut calls, &format!("other/{name}"), 60_000).await;
    }
    stop.store(true, Ordering::Relaxed);
    for holder in holders {
        assert!(holder.await.expect("no holder lost its lease") > 1);
    }
    silence_ends(&mut calls, &silent).await;
    server.stop();
}
