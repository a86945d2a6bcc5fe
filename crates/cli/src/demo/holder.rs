//! Holder process of the demonstration.
//!
//! Its guard renews the lease and knows its local deadline. Between preparing a write and sending it, the holder does not check
//! the deadline again: the pause happens there.

use std::io::{BufRead, Write, stdin, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use futures::StreamExt;
use leasehold::{Client, Error, FencingToken, Guard, GuardState, LeaseHandle, RunError};
use leasehold_core::limits::WAIT_MAX;
use leasehold_fence::sqlite::Fence;
use leasehold_fence::{Error as FenceError, FenceRefusal};
use rusqlite::Connection;
use tokio::runtime::Runtime;

use super::ipc::{DemoTarget, DemoWriteOutcome, HolderCommand, HolderEvent};
use super::ledger::{self, RESOURCE};
use crate::output::CommandError;

/// Internal subcommand that starts a holder process.
pub const SUBCOMMAND: &str = "__demo-holder";

/// `SUBCOMMAND ADDR NAME TTL_MS AMOUNT DIRECTORY fenced|unfenced`
pub fn main(args: impl Iterator<Item = String>) -> ExitCode {
    match run(&args.collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            emit(&HolderEvent::Failed { message: message_of(&failure) });
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[String]) -> Result<(), CommandError> {
    let [addr, name, ttl, amount, directory, fenced] = args else { return Err(super::failed("a holder needs args")) };
    let (Ok(ttl), Ok(amount)) = (ttl.parse(), amount.parse()) else { return Err(super::failed("not a number")) };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(|error| super::failed(&format!("cannot start: {error}")))?;
    // A lease ends with its session, so the session must outlive it.
    let session_ttl = Duration::from_millis(ttl).max(Duration::from_secs(30));
    let client = Client::builder(addr)?.holder(name).session_ttl(session_ttl).build();
    let guard = runtime.block_on(granted(&client, Duration::from_millis(ttl)))?;
    emit(&HolderEvent::Granted { number: guard.token_number().to_string() });
    let token = guard.token();
    let (handle, targets) = (guard.handle().clone(), Vec::new());
    let mut holder =
        DemoHolder { runtime, guard: Some(guard), handle, token, prepared: 0, name: name.clone(), amount, targets };
    holder.report_loss();
    holder.claim_and_read(&PathBuf::from(directory), fenced == "fenced")?;
    for line in stdin().lock().lines().map_while(Result::ok) {
        let Some(command) = HolderCommand::from_name(&line) else {
            return Err(super::failed("unknown holder command"));
        };
        holder.execute(command)?;
    }
    Ok(())
}

struct DemoHolder {
    runtime: Runtime,
    /// `None` after the release.
    guard: Option<Guard>,
    handle: LeaseHandle,
    token: FencingToken,
    /// Number of prepared writes, reported as progress.
    prepared: u64,
    name: String,
    amount: i64,
    /// The databases, with the balance that was read from each.
    targets: Vec<(DemoTarget, Connection, i64)>,
}

impl DemoHolder {
    /// Claims the fence, and then reads the balances.
    fn claim_and_read(&mut self, directory: &std::path::Path, fenced: bool) -> Result<(), CommandError> {
        let which = if fenced { &[DemoTarget::Fenced, DemoTarget::Unfenced][..] } else { &[DemoTarget::Unfenced] };
        for target in which {
            let mut db = ledger::open(directory, *target)?;
            if *target == DemoTarget::Fenced && !fence_is_off() {
                self.fence().claim(&mut db, self.token()).map_err(ledger::failed)?;
                emit(&HolderEvent::Claimed);
            }
            let balance = ledger::balance(&db)?;
            self.targets.push((*target, db, balance));
        }
        emit(&HolderEvent::Read { balance: self.targets[0].2 });
        Ok(())
    }

    fn execute(&mut self, command: HolderCommand) -> Result<(), CommandError> {
        match command {
            HolderCommand::Prepare => {
                self.prepared += 1;
                match self.runtime.block_on(renewed(&self.handle, self.prepared)) {
                    Ok(()) => emit(&HolderEvent::Prepared { left_ms: super::millis(self.handle.remaining()) }),
                    Err(error) => emit(&HolderEvent::Lost { code: error.code_name().to_owned() }),
                }
            }
            HolderCommand::Write => self.write()?,
            HolderCommand::Confirm => match self.runtime.block_on(confirmed(&self.handle)) {
                Ok(()) => emit(&HolderEvent::Confirmed { number: self.handle.token_number().to_string() }),
                Err(error) => emit(&HolderEvent::Lost { code: error.code_name().to_owned() }),
            },
            HolderCommand::Release => {
                let guard = self.guard.take().ok_or_else(|| super::failed("the lease was released before"))?;
                match self.runtime.block_on(guard.release()) {
                    Ok(()) => emit(&HolderEvent::Released),
                    Err(failure) => emit(&HolderEvent::Lost { code: failure.into_error().code_name().to_owned() }),
                }
            }
        }
        Ok(())
    }

    fn write(&mut self) -> Result<(), CommandError> {
        let (fence, token) = (self.fence(), self.token());
        for (target, db, read) in &mut self.targets {
            let done = if *target == DemoTarget::Fenced && !fence_is_off() {
                fence.write(db, &token, |tx| ledger::pay(tx, &self.name, *read, self.amount))
            } else {
                ledger::pay(db, &self.name, *read, self.amount).map_err(FenceError::from)
            };
            let outcome = match done {
                Ok(()) => DemoWriteOutcome::Written,
                Err(FenceError::Refused(refusal)) => refused(&refusal),
                Err(error) => return Err(ledger::failed(error)),
            };
            emit(&HolderEvent::Wrote { target: *target, outcome });
        }
        Ok(())
    }

    /// Reports the loss of the lease when it happens.
    fn report_loss(&self) {
        let handle = self.handle.clone();
        self.runtime.spawn(async move {
            let error = Error::from(RunError::Lost(handle.wait_lost().await));
            emit(&HolderEvent::Lost { code: error.code_name().to_owned() });
        });
    }

    fn fence(&self) -> Fence {
        ledger::fence(self.token.parsed().cluster)
    }

    fn token(&self) -> String {
        self.token.to_string()
    }
}

/// Waits for the lease, and retries while no server replies.
async fn granted(client: &Client, ttl: Duration) -> Result<Guard, CommandError> {
    loop {
        let lock = client.lock(RESOURCE).ttl(ttl).wait(Duration::from_millis(WAIT_MAX));
        match lock.acquire().await.map_err(leasehold::RequestError::into_error) {
            Err(error) if ["UNAVAILABLE", "INDETERMINATE", "NOT_LEADER", "TIMEOUT"].contains(&error.code_name()) => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            result => return Ok(result?),
        }
    }
}

/// Reports progress, which renews the lease immediately, and waits for the renewal.
async fn renewed(handle: &LeaseHandle, progress: u64) -> Result<(), Error> {
    let before = handle.deadline().earliest;
    handle.progress(progress);
    let mut changes = handle.updates();
    loop {
        match changes.next().await {
            Some(status) if status.state == GuardState::Held && status.deadline.earliest > before => return Ok(()),
            Some(status) => {
                if let GuardState::Lost(loss) = status.state {
                    return Err(RunError::Lost(loss).into());
                }
            }
            None => return Err(RunError::Suspended.into()),
        }
    }
}

/// Retries a confirmation until it succeeds or the lease has ended.
async fn confirmed(handle: &LeaseHandle) -> Result<(), Error> {
    loop {
        match handle.check().await {
            Err(error) if !is_lease_end(&error) => tokio::time::sleep(Duration::from_millis(50)).await,
            result => return result,
        }
    }
}

fn is_lease_end(error: &Error) -> bool {
    ["LEASE_LOST", "NOT_CURRENT"].contains(&error.code_name())
}

fn refused(refusal: &FenceRefusal) -> DemoWriteOutcome {
    let mark = if let FenceRefusal::Stale { mark, .. } = refusal { Some(mark.to_string()) } else { None };
    let presented = refusal.presented().map(|number| number.to_string());
    DemoWriteOutcome::Refused { code: refusal.code().to_owned(), presented, mark }
}

fn emit(event: &HolderEvent) {
    let line = crate::output::json(event);
    let mut out = stdout().lock();
    // The reader is gone: the demonstration has ended, and this process ends too.
    if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}

fn message_of(error: &CommandError) -> String {
    match error {
        CommandError::Coded(error) | CommandError::WithExitCode(error, _) => error.to_string(),
        CommandError::Other(message) => message.clone(),
    }
}

/// A fault that tests enable to check that the demonstration detects it. Not part of release builds.
#[cfg(debug_assertions)]
fn fence_is_off() -> bool {
    std::env::var_os("LEASEHOLD_DEMO_MUTANT").is_some_and(|fault| fault == "fence-off")
}

#[cfg(not(debug_assertions))]
const fn fence_is_off() -> bool {
    false
}
