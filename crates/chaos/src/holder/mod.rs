//! A holder process: acquires leases, claims and writes, without checking its own leases. It sends delayed writes at any time,
//! under their old tokens.

mod lease;
pub mod target;

use std::io::{BufRead, stdin};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold_core::ids::LeaseId;
use leasehold_core::token::Number;
use leasehold_sim::rng::SimRng;
use leasehold_sim::run_constants::EXCLUSIVE;
use rustix::process::{Signal, getpid, kill_process};
use serde::{Deserialize, Serialize};

use crate::holder_log::EventLog;
use lease::HolderLeases;
pub use lease::holder_name;
use target::Targets;

/// Parameters of a holder, sent on the first line of its standard input.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the glossary defines these names")]
pub struct HolderArgs {
    pub holder: u32,
    /// Number of earlier starts.
    pub restarts: u32,
    pub seed: u64,
    /// Start of the run, on the clock that all processes share.
    pub origin: u64,
    pub servers: String,
    pub postgres: (String, u16),
    /// Directory of the fenced logs and their unfenced twins.
    pub files: PathBuf,
    pub cluster: String,
    pub ttl: u64,
    /// Whether the holder uses the client's guard; otherwise single calls.
    pub guards: bool,
    /// Whether it writes to the fenced targets; otherwise only to the twins.
    pub fenced: bool,
    pub history: PathBuf,
}

/// Command: pause before the next write.
pub const PAUSE: &str = "pause";
/// Command: exit.
pub const EXIT: &str = "exit";

/// A write that is ready to be sent, with the token of that time.
struct PreparedWrite {
    resource: usize,
    number: Number,
    token: String,
}

/// The fields of a granted lease that writes need.
pub(crate) struct AcquiredLease {
    resource: usize,
    number: Number,
    lease: LeaseId,
    token: String,
}

struct HolderCommands {
    pause: AtomicBool,
    exit: AtomicBool,
}

struct ChaosHolder {
    rng: SimRng,
    leases: HolderLeases,
    targets: Targets,
    commands: Arc<HolderCommands>,
    delayed_writes: Vec<PreparedWrite>,
}

/// Runs a holder with the parameters from the first input line.
pub fn run() {
    let mut line = String::new();
    stdin().lock().read_line(&mut line).expect("the run sends the parameters");
    let args: HolderArgs = serde_json::from_str(&line).expect("the run sends valid parameters");
    let commands = Arc::new(HolderCommands { pause: AtomicBool::new(false), exit: AtomicBool::new(false) });
    let received = commands.clone();
    std::thread::spawn(move || {
        for line in stdin().lock().lines().map_while(Result::ok) {
            match line.as_str() {
                PAUSE => received.pause.store(true, Ordering::Release),
                _ => received.exit.store(true, Ordering::Release),
            }
        }
        // The run's process has ended.
        std::process::exit(0);
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(ChaosHolder::new(&args, commands).run());
}

impl ChaosHolder {
    fn new(args: &HolderArgs, commands: Arc<HolderCommands>) -> Self {
        let events = EventLog::open(&args.history, args.origin, args.holder).expect("the run's directory is writable");
        let events = std::rc::Rc::new(std::cell::RefCell::new(events));
        let rng = SimRng::new(args.seed);
        // Operation numbers contain the holder and its restarts, so that they are unique in a run.
        let op = (u64::from(args.holder) * 1_000 + u64::from(args.restarts)) * 1_000_000;
        let op = std::rc::Rc::new(std::cell::Cell::new(op));
        let leases = HolderLeases::new(args, events.clone(), op.clone());
        Self { rng, leases, targets: Targets::new(args, events, op), commands, delayed_writes: Vec::new() }
    }

    async fn run(mut self) {
        while !self.commands.exit.load(Ordering::Acquire) {
            let resource = self.rng.below(EXCLUSIVE.len() as u64) as usize;
            let wait = *self.rng.pick(&[0, 500, 1_500, 3_000]);
            match self.leases.acquire(resource, wait).await {
                Some(acquired) => self.work(&acquired).await,
                None => self.sleep(20).await,
            }
            if self.rng.one_in(3) {
                self.send_late().await;
            }
        }
    }

    async fn work(&mut self, acquired: &AcquiredLease) {
        self.targets.claim(acquired.resource, acquired.number, &acquired.token).await;
        for _ in 0..self.rng.between(2, 8) {
            self.sleep(30).await;
            let prepared =
                PreparedWrite { resource: acquired.resource, number: acquired.number, token: acquired.token.clone() };
            self.leases.log_belief(acquired);
            // A pause here lies between check and act, where a lease alone cannot protect.
            if self.commands.pause.swap(false, Ordering::AcqRel) {
                kill_process(getpid(), Signal::STOP).expect("this process");
            }
            match self.rng.below(8) {
                0 => self.delayed_writes.push(prepared),
                1 | 2 => {
                    self.leases.renew(acquired).await;
                    self.write(&prepared).await;
                }
                3 => self.leases.confirm(acquired).await,
                _ => self.write(&prepared).await,
            }
        }
        if self.rng.one_in(3) {
            let prepared =
                PreparedWrite { resource: acquired.resource, number: acquired.number, token: acquired.token.clone() };
            self.delayed_writes.push(prepared);
        }
        // Some leases are released, some expire, some guards are dropped.
        let release = self.rng.below(3) > 0;
        self.leases.finish(acquired, release).await;
    }

    async fn write(&mut self, prepared: &PreparedWrite) {
        self.targets.write(prepared.resource, prepared.number, &prepared.token).await;
    }

    /// Sends delayed writes, however late.
    async fn send_late(&mut self) {
        let max = self.delayed_writes.len().min(3);
        for prepared in self.delayed_writes.drain(..max).collect::<Vec<_>>() {
            self.write(&prepared).await;
        }
    }

    async fn sleep(&mut self, max: u64) {
        tokio::time::sleep(Duration::from_millis(self.rng.between(1, max))).await;
    }
}
