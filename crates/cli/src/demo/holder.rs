//! A holder of the demonstration, in a process of its own. It renews, believes in its own clock, and never looks again
//! between the moment its write is ready and the write: that is where a pause lands.

use std::io::{BufRead, Write, stdin, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use leasehold::{Client, Endpoints, Granted, Held};
use leasehold_core::command::{Acquire, Terms};
use leasehold_core::limits::WAIT_MAX;
use leasehold_fence::sqlite::Fence;
use leasehold_fence::{Error as Refused, Refusal};
use rusqlite::Connection;
use tokio::runtime::Runtime;

use super::ledger::{self, RESOURCE};
use super::talk::{Order, Outcome, Said, Target};
use crate::told::Failure;

/// The word by which the binary knows that it is a holder.
pub const WORD: &str = "__demo-holder";

/// `WORD ADDR NAME TTL_MS AMOUNT DIRECTORY fenced|unfenced`
pub fn main(words: impl Iterator<Item = String>) -> ExitCode {
    match play(&words.collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            say(&Said::Failed { why: told(&failure) });
            ExitCode::FAILURE
        }
    }
}

fn play(words: &[String]) -> Result<(), Failure> {
    let [addr, name, ttl, amount, directory, fenced] = words else { return Err(super::failed("a holder needs words")) };
    let (Ok(ttl), Ok(amount)) = (ttl.parse(), amount.parse()) else { return Err(super::failed("not a number")) };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(|error| super::failed(&format!("cannot start: {error}")))?;
    let client = Client::connect(Endpoints::parse(addr)?);
    let granted = runtime.block_on(granted(&client, name, ttl))?;
    say(&Said::Granted { number: granted.token().number.to_string() });
    let mut holder = Holder { runtime, client, granted, ttl, name: name.clone(), amount, targets: Vec::new() };
    holder.renews();
    holder.comes_in(&PathBuf::from(directory), fenced == "fenced")?;
    for line in stdin().lock().lines().map_while(Result::ok) {
        let Some(order) = Order::from_word(&line) else { return Err(super::failed("an order that nobody knows")) };
        holder.does(order)?;
    }
    Ok(())
}

struct Holder {
    runtime: Runtime,
    client: Client,
    granted: Granted,
    ttl: u64,
    name: String,
    amount: i64,
    /// What it writes to, and what it read there.
    targets: Vec<(Target, Connection, i64)>,
}

impl Holder {
    /// Claims, and then reads.
    fn comes_in(&mut self, directory: &std::path::Path, fenced: bool) -> Result<(), Failure> {
        let which = if fenced { &[Target::Fenced, Target::Unfenced][..] } else { &[Target::Unfenced] };
        for target in which {
            let mut db = ledger::open(directory, *target)?;
            if *target == Target::Fenced && !fence_is_off() {
                self.fence().claim(&mut db, &self.token()).map_err(ledger::broken)?;
                say(&Said::Claimed);
            }
            let balance = ledger::balance(&db)?;
            self.targets.push((*target, db, balance));
        }
        say(&Said::Read { balance: self.targets[0].2 });
        Ok(())
    }

    fn does(&mut self, order: Order) -> Result<(), Failure> {
        match order {
            Order::Prepare => {
                let asked = Instant::now();
                match self.runtime.block_on(renewed(&self.client, &self.granted)) {
                    // Counted from before it asked, as a holder must.
                    Ok(_) => say(&Said::Prepared { left_ms: self.ttl.saturating_sub(super::millis(asked.elapsed())) }),
                    Err(error) => say(&Said::Lost { code: error.word().to_owned() }),
                }
            }
            Order::Write => self.writes()?,
            Order::Confirm => match self.runtime.block_on(renewed(&self.client, &self.granted)) {
                Ok(number) => say(&Said::Kept { number }),
                Err(error) => say(&Said::Lost { code: error.word().to_owned() }),
            },
            Order::Release => {
                let held = Held::of(RESOURCE, self.granted.token());
                match self.runtime.block_on(self.client.release(&held)) {
                    Ok(()) => say(&Said::Released),
                    Err(error) => say(&Said::Lost { code: error.word().to_owned() }),
                }
            }
        }
        Ok(())
    }

    fn writes(&mut self) -> Result<(), Failure> {
        let (fence, token) = (self.fence(), self.token());
        for (target, db, read) in &mut self.targets {
            let done = if *target == Target::Fenced && !fence_is_off() {
                fence.write(db, &token, |tx| ledger::pay(tx, &self.name, *read, self.amount))
            } else {
                ledger::pay(db, &self.name, *read, self.amount).map_err(Refused::from)
            };
            let outcome = match done {
                Ok(()) => Outcome::Written,
                Err(Refused::Refused(refusal)) => refused(&refusal),
                Err(error) => return Err(ledger::broken(error)),
            };
            say(&Said::Wrote { target: *target, outcome });
        }
        Ok(())
    }

    /// Renews in the background, three times in a ttl, until it is told that the lease is over.
    fn renews(&self) {
        let (client, granted, every) = (self.client.clone(), self.granted.clone(), Duration::from_millis(self.ttl / 3));
        self.runtime.spawn(async move {
            loop {
                tokio::time::sleep(every).await;
                let held = Held::of(RESOURCE, granted.token());
                match client.renew(&held, None, None).await {
                    Err(error) if is_over(&error) => return say(&Said::Lost { code: error.word().to_owned() }),
                    // Whether it was renewed or nobody answered: it is tried again in time.
                    Ok(_) | Err(_) => {}
                }
            }
        });
    }

    fn fence(&self) -> Fence {
        Fence::new(self.granted.token().cluster, ledger::name(), 0)
    }

    fn token(&self) -> String {
        self.granted.token().to_string()
    }
}

/// Waits for the lease, over servers that do not answer for a while.
async fn granted(client: &Client, name: &str, ttl: u64) -> Result<Granted, Failure> {
    loop {
        let terms = Terms { wait_ms: WAIT_MAX, ..Terms::DEFAULT };
        match client.acquire(&Acquire { terms, ..Acquire::exclusive(RESOURCE, name, ttl) }).await {
            Err(error) if ["UNAVAILABLE", "INDETERMINATE", "TIMEOUT"].contains(&error.word()) => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            answer => return Ok(answer?),
        }
    }
}

/// Renews until somebody decided.
async fn renewed(client: &Client, granted: &Granted) -> Result<String, leasehold::Error> {
    loop {
        match client.renew(&Held::of(RESOURCE, granted.token()), None, None).await {
            Ok(renewed) => return Ok(renewed.token().number.to_string()),
            Err(error) if is_over(&error) => return Err(error),
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

fn is_over(error: &leasehold::Error) -> bool {
    ["LEASE_LOST", "NOT_CURRENT"].contains(&error.word())
}

fn refused(refusal: &Refusal) -> Outcome {
    let mark = if let Refusal::Stale { mark, .. } = refusal { Some(mark.to_string()) } else { None };
    let presented = refusal.presented().map(|number| number.to_string());
    Outcome::Refused { code: refusal.code().to_owned(), presented, mark }
}

fn say(said: &Said) {
    let line = crate::told::json(said);
    let mut out = stdout().lock();
    // Nobody listens any more: the demonstration is over, and so is this holder.
    if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}

fn told(failure: &Failure) -> String {
    match failure {
        Failure::Coded(error) | Failure::Ending(error, _) => error.to_string(),
        Failure::Other(why) => why.clone(),
    }
}

/// A fault that the tests switch on to see the demonstration fail. It is in no release build.
#[cfg(debug_assertions)]
fn fence_is_off() -> bool {
    std::env::var_os("LEASEHOLD_DEMO_MUTANT").is_some_and(|fault| fault == "fence-off")
}

#[cfg(not(debug_assertions))]
const fn fence_is_off() -> bool {
    false
}
