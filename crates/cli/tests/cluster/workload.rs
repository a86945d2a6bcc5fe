//! Clients that run during faults, and check the state after each fault.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use leasehold_testkit::rng::SplitMix64;
use leasehold_testkit::tcp_proxy::{Flow, TcpProxy};
use tokio::runtime::Runtime;
use tokio::task::{JoinHandle, spawn_blocking};

use crate::clients::Clients;
use crate::harness::{Addresses, TEST_TIMEOUT, ThreeServers, is_ready};
use crate::history::History;

/// Number of grants that count as progress.
const MIN_GRANTS: usize = 12;
/// Interval at which connections are closed until all clients have reconnected.
const DISCONNECT_INTERVAL: Duration = Duration::from_secs(8);

/// Clients at work.
pub struct Workload {
    runtime: Runtime,
    clients: Option<JoinHandle<Clients>>,
    history: History,
    proxy: TcpProxy,
    checks: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
}

impl Workload {
    pub fn start(cluster: &ThreeServers, rng: &mut SplitMix64) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let proxy = TcpProxy::start(&cluster.server(cluster.leader()).address);
        let (checks, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        runtime.spawn(follow_leader(cluster.addresses.clone(), proxy.clone()));
        let clients = Clients::new(rng, false);
        let history = clients.history.clone();
        let clients =
            Some(runtime.spawn(run_clients(clients, proxy.address().to_string(), checks.clone(), stop.clone())));
        Self { runtime, clients, history, proxy, checks, stop }
    }

    /// Waits until the clients make progress.
    pub fn work(&mut self) {
        let before = self.history.count();
        let history = self.history.clone();
        self.wait_until("no grants", || history.count() >= before + MIN_GRANTS, false);
    }

    /// Waits until all clients have reconnected and checked the state, and work again.
    pub fn check(&mut self) {
        let (checks, before) = (self.checks.clone(), self.checks.load(Ordering::SeqCst));
        self.wait_until("not all clients reconnected", || checks.load(Ordering::SeqCst) > before, true);
        self.work();
    }

    /// Drops all replies to the clients for this long; their requests still arrive.
    pub fn drop_replies_for(&self, length: Duration) {
        self.proxy.set_flow(Flow::Pass, Flow::Drop);
        std::thread::sleep(length);
        self.proxy.set_both(Flow::Pass);
    }

    /// Polls a condition. With `disconnect`, closes connections repeatedly: a client that connects during a close is missed.
    fn wait_until(&mut self, failure: &str, condition: impl Fn() -> bool, disconnect: bool) {
        let (start, mut rounds) = (Instant::now(), 0);
        while !condition() {
            if disconnect && start.elapsed() >= DISCONNECT_INTERVAL * rounds {
                self.proxy.disconnect_all();
                rounds += 1;
            }
            if self.clients.as_ref().is_some_and(JoinHandle::is_finished) {
                self.join();
                panic!("the clients stopped early");
            }
            assert!(start.elapsed() < TEST_TIMEOUT, "{failure}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Joins the clients. A client that found a broken promise panics here.
    fn join(&mut self) -> Clients {
        let clients = self.clients.take().expect("joined once");
        self.runtime.block_on(clients).unwrap_or_else(|broken| std::panic::resume_unwind(broken.into_panic()))
    }

    /// Stops the clients after a last check.
    pub fn finish(mut self, faults: usize) {
        self.stop.store(true, Ordering::SeqCst);
        let clients = self.clients.as_ref().expect("joined once").abort_handle();
        self.wait_until("not all clients reconnected", move || clients.is_finished(), true);
        self.join().assert_progress(faults);
    }
}

async fn run_clients(
    mut clients: Clients,
    address: String,
    checks: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
) -> Clients {
    loop {
        let last = stop.load(Ordering::SeqCst);
        if let Ok(recovered) = clients.reconnect(&address).await {
            checks.fetch_add(1, Ordering::SeqCst);
            if last {
                return clients;
            }
            clients.work(recovered).await;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Points the proxy to the current leader, and closes connections to the previous one.
async fn follow_leader(addresses: Addresses, proxy: TcpProxy) {
    let mut leader = String::new();
    loop {
        let known = addresses.lock().map_or_else(|e| e.into_inner().clone(), |known| known.clone());
        for address in known.into_iter().filter(|address| *address != leader).collect::<Vec<_>>() {
            let candidate = address.clone();
            if spawn_blocking(move || is_ready(&candidate)).await.unwrap_or(false) {
                proxy.set_upstream(&address);
                proxy.disconnect_all();
                leader = address;
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
