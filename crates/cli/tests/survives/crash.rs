//! kill −9 at any moment, under load: every promise that was acked is kept by the next life.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold_wire::v1;
use tokio::task::{JoinHandle, spawn_blocking};

use crate::chance::Chance;
use crate::history::History;
use crate::line::Line;
use crate::link::{Gone, connect, within};
use crate::server::{Server, Start, alone, depth};
use crate::sleeper::Sleeper;
use crate::worker::{PREFIX, Worker};

pub const SEED: u64 = 0x1ea5_e401_d000_0003;
const WORKERS: usize = 6;
const SLEEPERS: usize = 3;

/// Everybody who talks to the server, over all its lives.
pub struct Crowd {
    workers: Vec<Worker>,
    sleepers: Vec<Sleeper>,
    line: Line,
    /// What all of them were told.
    pub history: History,
}

#[test]
fn everything_acked_survives_kill_9_at_any_moment() {
    let _alone = alone();
    let seed = std::env::var("LEASEHOLD_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(SEED);
    println!("seed {seed}; LEASEHOLD_SEED sets another");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let data = tempfile::tempdir().expect("a directory");
    runtime.expect("a runtime").block_on(live_and_die(&data.path().join("data"), Chance::new(seed)));
}

async fn live_and_die(data: &Path, mut chance: Chance) {
    let mut crowd = Crowd::new(&mut chance);
    let kills = depth(20, 200, 4_000);
    // Each write waits a moment: whoever is told before it is caught by the kill in between.
    let slow = Start {
        under: "strace -D -f -qq -o /dev/null -e trace=pwrite64 -e inject=pwrite64:delay_enter=2000",
        args: "",
    };
    for kill in 0..kills {
        println!("kill {kill}");
        match chance.below(10) {
            0 => Server::start_and_kill(data, "", Duration::from_millis(chance.below(90))),
            1 | 2 => crowd.live(data, &Start::default(), Some(Doom::Returning(chance.below(40)))).await,
            3..6 => crowd.live(data, &slow, Some(Doom::Working(chance.below(100)))).await,
            _ => crowd.live(data, &Start::default(), Some(Doom::Working(chance.below(60) * chance.below(6)))).await,
        }
    }
    // The last two lives end politely, and so does the story.
    crowd.live(data, &Start::default(), None).await;
    crowd.live(data, &Start::default(), None).await;
    crowd.has_done_something(kills);
}

/// When a life is ended.
pub enum Doom {
    /// So many milliseconds after everybody began to come back.
    Returning(u64),
    /// So many milliseconds after they went to work.
    Working(u64),
    /// By itself, and not well: this is what it says then.
    Itself(&'static str),
}

impl Crowd {
    /// Nobody has asked for anything yet.
    pub fn new(chance: &mut Chance) -> Self {
        let history = History::default();
        let worker = |i| Worker::new(format!("worker-{i}"), i % 2 == 0, chance.fork(), history.clone());
        let workers = (0..WORKERS).map(worker).collect();
        let sleeper = |i| Sleeper::new(format!("sleep/{i}"), chance.fork(), history.clone());
        let sleepers = (0..SLEEPERS).map(sleeper).collect();
        Self { workers, sleepers, line: Line::new(chance.fork(), history.clone()), history }
    }

    /// One life of the server: everybody comes back and looks, then works until it is killed.
    pub async fn live(&mut self, data: &Path, start: &Start, doom: Option<Doom>) {
        let mut server = start.at(data).unwrap_or_else(|said| panic!("not started: {said}"));
        let address = server.address.clone();
        let doomed = Arc::new(AtomicBool::new(false));
        match doom {
            None => {
                self.come_back(&address).await.expect("nobody kills this one");
                server.stop();
            }
            Some(Doom::Itself(says)) => {
                let returned = self.come_back(&address).await;
                if let Ok(returned) = returned {
                    within(self.work(returned)).await;
                }
                let status = server.wait();
                assert!(!status.success(), "{status}");
                assert!(server.said().contains(says), "{}", server.said());
            }
            Some(Doom::Returning(after)) => {
                let killing = kill(server, after, &doomed);
                if self.come_back(&address).await.is_err() {
                    assert!(doomed.load(Ordering::SeqCst), "a connection broke, and nobody had killed the server");
                }
                killing.await.expect("it is dead");
            }
            Some(Doom::Working(after)) => {
                let returned = self.come_back(&address).await.expect("nobody has killed it yet");
                let killing = kill(server, after, &doomed);
                self.work(returned).await;
                assert!(doomed.load(Ordering::SeqCst), "a connection broke, and nobody had killed the server");
                killing.await.expect("it is dead");
            }
        }
    }

    /// Everybody finds what it was told. When nothing is open any more, the whole state is what everybody holds.
    async fn come_back(&mut self, address: &str) -> Result<Returned, Gone> {
        let workers = futures::future::join_all(self.workers.iter_mut().map(|worker| worker.recover(address)));
        let sleepers = futures::future::join_all(self.sleepers.iter_mut().map(|sleeper| sleeper.recover(address)));
        let (workers, sleepers, line) = tokio::join!(workers, sleepers, self.line.recover(address));
        line?;
        let returned = Returned {
            workers: workers.into_iter().collect::<Result<_, _>>()?,
            sleepers: sleepers.into_iter().collect::<Result<_, _>>()?,
        };
        assert_eq!(listed(address).await?, self.history.live(PREFIX), "everything acked, and nothing else (L3)");
        Ok(returned)
    }

    async fn work(&mut self, returned: Returned) {
        let workers = self.workers.iter_mut().zip(returned.workers).map(|(worker, link)| worker.load(link));
        let sleepers = self.sleepers.iter_mut().zip(returned.sleepers).map(|(sleeper, calls)| sleeper.load(calls));
        let (workers, sleepers) = (futures::future::join_all(workers), futures::future::join_all(sleepers));
        tokio::join!(workers, sleepers, self.line.load());
    }

    /// Nothing was proved if nothing happened.
    pub fn has_done_something(&self, kills: usize) {
        let grants = self.history.count();
        let again: usize = self.workers.iter().map(|worker| worker.asked_again).sum();
        let expired: usize = self.sleepers.iter().map(|sleeper| sleeper.expired).sum();
        let (turns, passed) = (self.line.turns, self.line.passed);
        println!("{kills} kills: {grants} grants acked, {again} requests asked again, {expired} leases ran out,");
        println!("{turns} turns in line, {passed} past somebody silent");
        assert!(grants > kills && again > 0 && expired > 0 && turns > 0, "too little to prove anything");
        assert!(passed > 0 || kills < 200, "nobody was passed");
    }
}

/// The connections of those who came back.
struct Returned {
    workers: Vec<crate::link::Link>,
    sleepers: Vec<crate::link::Calls>,
}

fn kill(mut server: Server, after: u64, doomed: &Arc<AtomicBool>) -> JoinHandle<()> {
    let doomed = doomed.clone();
    spawn_blocking(move || {
        std::thread::sleep(Duration::from_millis(after));
        doomed.store(true, Ordering::SeqCst);
        server.kill();
    })
}

/// Everything that is held under the workers' prefix, by number.
async fn listed(address: &str) -> Result<BTreeMap<String, u64>, Gone> {
    let mut calls = connect(address).await?;
    let ask = v1::ListRequest { prefix: PREFIX.trim_end_matches('/').into(), ..Default::default() };
    let list = within(calls.list(ask)).await.map_err(|_| Gone)?.into_inner();
    assert_eq!(list.next, None, "one page holds them all");
    let leases = list.resources.into_iter().flat_map(|resource| resource.leases);
    Ok(leases.map(|lease| (lease.resource, lease.token_number)).collect())
}
