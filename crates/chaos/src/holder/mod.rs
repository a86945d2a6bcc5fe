//! A holder as a process of its own: it takes leases, claims, writes, and never polices itself. What it kept back it sends
//! whenever it likes, under the token it had.

mod lease;
pub mod target;

use std::io::{BufRead, stdin};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold_core::ids::LeaseId;
use leasehold_core::token::Number;
use leasehold_sim::ask::EXCLUSIVE;
use leasehold_sim::chance::Chance;
use rustix::process::{Signal, getpid, kill_process};
use serde::{Deserialize, Serialize};

use crate::said::Voice;
use lease::Leases;
pub use lease::holder_name;
use target::Targets;

/// What a holder is told before it begins, on its first line of input.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are named by the vocabulary")]
pub struct Part {
    pub who: u32,
    /// How often it was started before.
    pub life: u32,
    pub seed: u64,
    /// When the run began, on the clock that all processes share.
    pub origin: u64,
    pub servers: String,
    pub postgres: (String, u16),
    /// The directory of the fenced logs and of their unfenced twins.
    pub files: PathBuf,
    pub cluster: String,
    pub ttl: u64,
    /// Holds by the client's own guard; otherwise by single calls.
    pub guards: bool,
    /// Writes to the fenced targets; otherwise only to the twins.
    pub fenced: bool,
    pub history: PathBuf,
}

/// The order to stand still at the next write that is ready.
pub const PAUSE: &str = "pause";
/// The order to come to an end.
pub const OVER: &str = "over";

/// Something that was ready to be written, with the token of then.
struct Ready {
    resource: usize,
    number: Number,
    token: String,
}

/// A lease that was granted, as far as writes need it.
pub(crate) struct Taken {
    resource: usize,
    number: Number,
    lease: LeaseId,
    token: String,
}

struct Orders {
    pause: AtomicBool,
    over: AtomicBool,
}

struct Holder {
    chance: Chance,
    leases: Leases,
    targets: Targets,
    orders: Arc<Orders>,
    kept_back: Vec<Ready>,
}

/// Plays the part that comes on the first line.
pub fn play() {
    let mut line = String::new();
    stdin().lock().read_line(&mut line).expect("the run tells its holders their part");
    let part: Part = serde_json::from_str(&line).expect("the run writes parts that can be read");
    let orders = Arc::new(Orders { pause: AtomicBool::new(false), over: AtomicBool::new(false) });
    let heard = orders.clone();
    std::thread::spawn(move || {
        for line in stdin().lock().lines().map_while(Result::ok) {
            match line.as_str() {
                PAUSE => heard.pause.store(true, Ordering::Release),
                _ => heard.over.store(true, Ordering::Release),
            }
        }
        // Nobody drives the run any more.
        std::process::exit(0);
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(Holder::new(&part, orders).live());
}

impl Holder {
    fn new(part: &Part, orders: Arc<Orders>) -> Self {
        let voice = Voice::open(&part.history, part.origin, part.who).expect("the run's own directory");
        let voice = std::rc::Rc::new(std::cell::RefCell::new(voice));
        let chance = Chance::new(part.seed);
        // Operations are numbered by holder and life, so that no two of a run are the same.
        let op = (u64::from(part.who) * 1_000 + u64::from(part.life)) * 1_000_000;
        let op = std::rc::Rc::new(std::cell::Cell::new(op));
        let leases = Leases::new(part, voice.clone(), op.clone());
        Self { chance, leases, targets: Targets::new(part, voice, op), orders, kept_back: Vec::new() }
    }

    async fn live(mut self) {
        while !self.orders.over.load(Ordering::Acquire) {
            let resource = self.chance.below(EXCLUSIVE.len() as u64) as usize;
            let wait = *self.chance.pick(&[0, 500, 1_500, 3_000]);
            match self.leases.take(resource, wait).await {
                Some(taken) => self.work(&taken).await,
                None => self.rest(20).await,
            }
            if self.chance.one_in(3) {
                self.send_late().await;
            }
        }
    }

    async fn work(&mut self, taken: &Taken) {
        self.targets.claim(taken.resource, taken.number, &taken.token).await;
        for _ in 0..self.chance.between(2, 8) {
            self.rest(30).await;
            let ready = Ready { resource: taken.resource, number: taken.number, token: taken.token.clone() };
            self.leases.believe(taken);
            // Between the check and the act: whatever is ordered here is what leases cannot see.
            if self.orders.pause.swap(false, Ordering::AcqRel) {
                kill_process(getpid(), Signal::STOP).expect("this process");
            }
            match self.chance.below(8) {
                0 => self.kept_back.push(ready),
                1 | 2 => {
                    self.leases.renew(taken).await;
                    self.write(&ready).await;
                }
                3 => self.leases.confirm(taken).await,
                _ => self.write(&ready).await,
            }
        }
        if self.chance.one_in(3) {
            let ready = Ready { resource: taken.resource, number: taken.number, token: taken.token.clone() };
            self.kept_back.push(ready);
        }
        // Some give back, some fall silent, some are dropped without a word.
        let politely = self.chance.below(3) > 0;
        self.leases.leave(taken, politely).await;
    }

    async fn write(&mut self, ready: &Ready) {
        self.targets.write(ready.resource, ready.number, &ready.token).await;
    }

    /// Sends what was kept back, long after its time or not.
    async fn send_late(&mut self) {
        let most = self.kept_back.len().min(3);
        for ready in self.kept_back.drain(..most).collect::<Vec<_>>() {
            self.write(&ready).await;
        }
    }

    async fn rest(&mut self, most: u64) {
        tokio::time::sleep(Duration::from_millis(self.chance.between(1, most))).await;
    }
}
