//! A crowd that works while things go wrong, and looks after each of them whether everything is as it was told.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::task::{JoinHandle, spawn_blocking};

use crate::chance::Chance;
use crate::crowd::Crowd;
use crate::history::History;
use crate::trio::{Addresses, PATIENCE, Trio, is_ready};
use crate::way::Way;

/// Grants that count as work.
const SOME: usize = 12;
/// How long everybody has to come back before connections are cut again.
const CUT_EVERY: Duration = Duration::from_secs(8);

/// A crowd at work.
pub struct Ordeal {
    runtime: Runtime,
    crowd: Option<JoinHandle<Crowd>>,
    history: History,
    way: Arc<Way>,
    looked: Arc<AtomicUsize>,
    over: Arc<AtomicBool>,
}

impl Ordeal {
    pub fn begin(trio: &Trio, chance: &mut Chance) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let way = Arc::new(runtime.block_on(Way::to(&trio.server(trio.leader()).address)));
        let (looked, over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        runtime.spawn(lead_to_the_leader(trio.addresses.clone(), way.clone()));
        let crowd = Crowd::new(chance, false);
        let history = crowd.history.clone();
        let crowd = Some(runtime.spawn(live(crowd, way.address.clone(), looked.clone(), over.clone())));
        Self { runtime, crowd, history, way, looked, over }
    }

    /// Everybody works for a while.
    pub fn work(&mut self) {
        let before = self.history.count();
        let history = self.history.clone();
        self.until("nobody is granted anything", || history.count() >= before + SOME, false);
    }

    /// Everybody comes back and looks, and works again.
    pub fn look(&mut self) {
        let (looked, before) = (self.looked.clone(), self.looked.load(Ordering::SeqCst));
        self.until("not everybody came back", || looked.load(Ordering::SeqCst) > before, true);
        self.work();
    }

    /// For this long the clients hear nothing, though they are heard.
    pub fn deaf(&self, length: Duration) {
        self.way.deafen(true);
        std::thread::sleep(length);
        self.way.deafen(false);
    }

    /// Whoever connects while connections are cut is not cut, and works on alone: so it is done more than once.
    fn until(&mut self, not: &str, so: impl Fn() -> bool, cutting: bool) {
        let (began, mut cuts) = (Instant::now(), 0);
        while !so() {
            if cutting && began.elapsed() >= CUT_EVERY * cuts {
                self.way.cut();
                cuts += 1;
            }
            if self.crowd.as_ref().is_some_and(JoinHandle::is_finished) {
                self.join();
                panic!("it ends when it is told to");
            }
            assert!(began.elapsed() < PATIENCE, "{not}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Whoever found a broken promise says so here.
    fn join(&mut self) -> Crowd {
        let crowd = self.crowd.take().expect("it is joined once");
        self.runtime.block_on(crowd).unwrap_or_else(|broken| std::panic::resume_unwind(broken.into_panic()))
    }

    /// Everybody looks once more and goes home.
    pub fn end(mut self, faults: usize) {
        self.over.store(true, Ordering::SeqCst);
        let crowd = self.crowd.as_ref().expect("it is joined once").abort_handle();
        self.until("not everybody came back", move || crowd.is_finished(), true);
        self.join().has_done_something(faults);
    }
}

async fn live(mut crowd: Crowd, address: String, looked: Arc<AtomicUsize>, over: Arc<AtomicBool>) -> Crowd {
    loop {
        let last = over.load(Ordering::SeqCst);
        if let Ok(returned) = crowd.come_back(&address).await {
            looked.fetch_add(1, Ordering::SeqCst);
            if last {
                return crowd;
            }
            crowd.work(returned).await;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Leads the clients to whoever leads, and breaks their connections to whoever did.
async fn lead_to_the_leader(addresses: Addresses, way: Arc<Way>) {
    let mut led = String::new();
    loop {
        let known = addresses.lock().map_or_else(|e| e.into_inner().clone(), |known| known.clone());
        for address in known.into_iter().filter(|address| *address != led).collect::<Vec<_>>() {
            let asked = address.clone();
            if spawn_blocking(move || is_ready(&asked)).await.unwrap_or(false) {
                way.leads_to(&address);
                way.cut();
                led = address;
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
