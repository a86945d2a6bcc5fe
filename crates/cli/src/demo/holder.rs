//! A holder of the demonstration, in a process of its own. Its guard renews and knows by its own clock until when it holds;
//! between the moment its write is ready and the write it never looks again: that is where a pause lands.

use std::io::{BufRead, Write, stdin, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use leasehold::{Client, Endpoints, Error, Guard, Hold, Options, State, Stopped};
use leasehold_core::limits::WAIT_MAX;
use leasehold_core::token::Token;
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
    // A lease ends with its session.
    let session = Options::default().session.max(Duration::from_millis(ttl));
    let options = Options { holder: Some(name.clone()), session, ..Options::default() };
    let client = Client::with(Endpoints::parse(addr)?, options);
    let guard = runtime.block_on(granted(&client, Duration::from_millis(ttl)))?;
    say(&Said::Granted { number: guard.token_number().to_string() });
    let token = guard.token().parse().map_err(|_| super::failed("a token that cannot be read"))?;
    let (hold, targets) = (guard.hold().clone(), Vec::new());
    let mut holder =
        Holder { runtime, guard: Some(guard), hold, token, prepared: 0, name: name.clone(), amount, targets };
    holder.watches();
    holder.comes_in(&PathBuf::from(directory), fenced == "fenced")?;
    for line in stdin().lock().lines().map_while(Result::ok) {
        let Some(order) = Order::from_word(&line) else { return Err(super::failed("an order that nobody knows")) };
        holder.does(order)?;
    }
    Ok(())
}

struct Holder {
    runtime: Runtime,
    /// Until it is given back.
    guard: Option<Guard>,
    hold: Hold,
    token: Token,
    /// How often it got ready.
    prepared: u64,
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
                self.prepared += 1;
                match self.runtime.block_on(renewed(&self.hold, self.prepared)) {
                    Ok(()) => say(&Said::Prepared { left_ms: super::millis(self.hold.left()) }),
                    Err(error) => say(&Said::Lost { code: error.word().to_owned() }),
                }
            }
            Order::Write => self.writes()?,
            Order::Confirm => match self.runtime.block_on(confirmed(&self.hold)) {
                Ok(()) => say(&Said::Kept { number: self.hold.token_number().to_string() }),
                Err(error) => say(&Said::Lost { code: error.word().to_owned() }),
            },
            Order::Release => {
                let guard = self.guard.take().ok_or_else(|| super::failed("it was given back before"))?;
                match self.runtime.block_on(guard.release()) {
                    Ok(()) => say(&Said::Released),
                    Err(failure) => say(&Said::Lost { code: failure.into_error().word().to_owned() }),
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

    /// Says when the grantor says that the lease is over.
    fn watches(&self) {
        let hold = self.hold.clone();
        self.runtime.spawn(async move {
            let over = Error::from(Stopped::Lost(hold.lost().await));
            say(&Said::Lost { code: over.word().to_owned() });
        });
    }

    fn fence(&self) -> Fence {
        Fence::new(self.token.cluster, ledger::name(), 0)
    }

    fn token(&self) -> String {
        self.token.to_string()
    }
}

/// Waits for the lease, over servers that do not answer for a while.
async fn granted(client: &Client, ttl: Duration) -> Result<Guard, Failure> {
    loop {
        let lock = client.lock(RESOURCE).ttl(ttl).wait(Duration::from_millis(WAIT_MAX));
        match lock.acquire().await.map_err(leasehold::Failure::into_error) {
            Err(error) if ["UNAVAILABLE", "INDETERMINATE", "NOT_LEADER", "TIMEOUT"].contains(&error.word()) => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            answer => return Ok(answer?),
        }
    }
}

/// Tells how far it is, which renews at once, and waits until that was heard.
async fn renewed(hold: &Hold, at: u64) -> Result<(), Error> {
    let before = hold.deadline().earliest;
    hold.progress(at);
    let mut watching = hold.watch();
    loop {
        match watching.next().await {
            Some(sight) if sight.state == State::Held && sight.deadline.earliest > before => return Ok(()),
            Some(sight) => {
                if let State::Lost(loss) = sight.state {
                    return Err(Stopped::Lost(loss).into());
                }
            }
            None => return Err(Stopped::Suspended.into()),
        }
    }
}

/// Asks until somebody decided.
async fn confirmed(hold: &Hold) -> Result<(), Error> {
    loop {
        match hold.confirm().await {
            Err(error) if !is_over(&error) => tokio::time::sleep(Duration::from_millis(50)).await,
            told => return told,
        }
    }
}

fn is_over(error: &Error) -> bool {
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
