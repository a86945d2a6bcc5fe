//! kill −9 at any moment, under load: every promise that was acked is kept by the next life.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::{JoinHandle, spawn_blocking};

use crate::chance::Chance;
use crate::crowd::Crowd;
use crate::link::within;
use crate::server::{Server, Start, alone, depth};

pub const SEED: u64 = 0x1ea5_e401_d000_0003;

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
    let mut crowd = Crowd::new(&mut chance, true);
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
}

fn kill(mut server: Server, after: u64, doomed: &Arc<AtomicBool>) -> JoinHandle<()> {
    let doomed = doomed.clone();
    spawn_blocking(move || {
        std::thread::sleep(Duration::from_millis(after));
        doomed.store(true, Ordering::SeqCst);
        server.kill();
    })
}
