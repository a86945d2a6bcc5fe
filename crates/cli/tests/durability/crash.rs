//! kill −9 at any moment under load: the restarted server keeps every acknowledged promise.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold_testkit::depth::depth;
use leasehold_testkit::rng::SplitMix64;
use tokio::task::{JoinHandle, spawn_blocking};

use crate::clients::Clients;
use crate::server::{Server, Start, exclusive_run};
use crate::transport::within;

pub const SEED: u64 = 0x1ea5_e401_d000_0003;

#[test]
fn everything_acknowledged_survives_kill_9_at_any_moment() {
    let _exclusive = exclusive_run();
    let seed = std::env::var("LEASEHOLD_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(SEED);
    println!("seed {seed}; LEASEHOLD_SEED sets another");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let data = tempfile::tempdir().expect("a directory");
    runtime.expect("a runtime").block_on(run_and_crash(&data.path().join("data"), SplitMix64::new(seed)));
}

async fn run_and_crash(data: &Path, mut rng: SplitMix64) {
    let mut clients = Clients::new(&mut rng, true);
    let kills = depth(20, 200, 4_000);
    // Delays every write, so that a reply sent before its write is caught by a kill in between.
    let slow = Start {
        under: "strace -D -f --seccomp-bpf -qq -o /dev/null -e trace=pwrite64 -e inject=pwrite64:delay_enter=2000",
        args: "",
    };
    for kill in 0..kills {
        println!("kill {kill}");
        match rng.below(10) {
            0 => Server::start_and_kill(data, "", Duration::from_millis(rng.below(90))),
            1 | 2 => clients.run_server(data, &Start::default(), Some(CrashPoint::Reconnecting(rng.below(40)))).await,
            3..6 => clients.run_server(data, &slow, Some(CrashPoint::Working(rng.below(100)))).await,
            _ => {
                clients
                    .run_server(data, &Start::default(), Some(CrashPoint::Working(rng.below(60) * rng.below(6))))
                    .await
            }
        }
    }
    // The last two runs end with SIGTERM.
    clients.run_server(data, &Start::default(), None).await;
    clients.run_server(data, &Start::default(), None).await;
    clients.assert_progress(kills);
}

/// When a run of the server ends.
pub enum CrashPoint {
    /// Killed this many milliseconds after the clients began to reconnect.
    Reconnecting(u64),
    /// Killed this many milliseconds after the clients began to work.
    Working(u64),
    /// The server stops by itself with an error that contains this text.
    OwnFailure(&'static str),
}

impl Clients {
    /// One run of the server: the clients reconnect, check the state, and work until the server ends.
    pub async fn run_server(&mut self, data: &Path, start: &Start, crash_point: Option<CrashPoint>) {
        let mut server = start.at(data).unwrap_or_else(|log| panic!("not started: {log}"));
        let address = server.address.clone();
        let crash_expected = Arc::new(AtomicBool::new(false));
        match crash_point {
            None => {
                self.reconnect(&address).await.expect("this server is not killed");
                server.stop();
            }
            Some(CrashPoint::OwnFailure(message)) => {
                let recovered = self.reconnect(&address).await;
                if let Ok(recovered) = recovered {
                    within(self.work(recovered)).await;
                }
                let status = server.wait();
                assert!(!status.success(), "{status}");
                assert!(server.log_text().contains(message), "{}", server.log_text());
            }
            Some(CrashPoint::Reconnecting(after)) => {
                let killing = kill(server, after, &crash_expected);
                if self.reconnect(&address).await.is_err() {
                    assert!(crash_expected.load(Ordering::SeqCst), "a connection broke before the server was killed");
                }
                killing.await.expect("the server was killed");
            }
            Some(CrashPoint::Working(after)) => {
                let recovered = self.reconnect(&address).await.expect("the server is not killed yet");
                let killing = kill(server, after, &crash_expected);
                self.work(recovered).await;
                assert!(crash_expected.load(Ordering::SeqCst), "a connection broke before the server was killed");
                killing.await.expect("the server was killed");
            }
        }
    }
}

fn kill(mut server: Server, after: u64, crash_expected: &Arc<AtomicBool>) -> JoinHandle<()> {
    let crash_expected = crash_expected.clone();
    spawn_blocking(move || {
        std::thread::sleep(Duration::from_millis(after));
        crash_expected.store(true, Ordering::SeqCst);
        server.kill();
    })
}
