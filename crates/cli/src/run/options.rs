//! Options that `run` and `elect` share: the lease to acquire, and how to end the command when the lease is lost.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use leasehold::duration::HumanDuration;
use leasehold::{Client, ClockDrift, Error, Lock};
use leasehold_core::command::AcquireOptions;
use leasehold_core::limits::{RENEW_GAP_MIN, TTL_MAX_EVER, TTL_MIN};
use leasehold_core::refusal::Refusal;

use super::connection_messages::ConnectionMessages;
use super::fences::RunFence;
use crate::global_args::{GlobalArgs, client_builder};
use crate::target::AddressParser;

/// Default of `--ttl`.
const TTL: HumanDuration = HumanDuration::from_millis(10_000);
/// Default of `--grace` in milliseconds, unless half of the ttl is less.
const GRACE: u64 = 5_000;
/// Minimum ttl of the session in milliseconds: a session outlives the leases it holds.
const SESSION: u64 = 30_000;
/// Fraction (1/20) of a renewal's duration that is reserved for killing: at the deadline all processes must be dead, not dying.
pub const MARGIN: u64 = 20;

/// Maximum number of renewals in one ttl.
const MAX_RENEWALS_PER_TTL: u64 = 30;

/// Options of `run` and `elect`
#[derive(clap::Args)]
pub struct RunOptions {
    /// Time until the lease expires unless renewed
    #[arg(long, value_name = "DURATION", default_value_t = TTL)]
    ttl: HumanDuration,
    /// Acquire one of N numbered slots
    #[arg(long, value_name = "N")]
    slots: Option<u32>,
    /// Waiters with a higher priority are served first
    #[arg(long, value_name = "0-255", default_value_t = AcquireOptions::DEFAULT_PRIORITY)]
    priority: u8,
    /// Name shown to others as the holder [default: process-PID]
    #[arg(long, value_name = "NAME")]
    holder: Option<String>,
    /// Action on the command when its lease cannot be renewed
    #[arg(long, value_enum, value_name = "ACTION", default_value_t = OnLost::Term)]
    on_lost: OnLost,
    /// Time from SIGTERM to SIGKILL, at most half of the ttl [default: 5s, or half of the ttl]
    #[arg(long, value_name = "DURATION")]
    grace: Option<HumanDuration>,
    /// Terminate the command unless it reports progress at least this often (see `leasehold progress`)
    #[arg(long, value_name = "DURATION")]
    progress: Option<HumanDuration>,
    /// Claim this target first, and let the command's writes carry the token: postgres://USER@HOST/DATABASE or http://HOST:PORT.
    /// NAME is that of a sealed target in its charter. May be repeated
    #[arg(long = "fence", value_name = "[NAME=]ADDRESS", value_parser = AddressParser::new(RunFence::parse))]
    pub fences: Vec<RunFence>,
    /// Command to run, with its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Action on a command whose lease cannot be renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnLost {
    /// Send SIGTERM, and SIGKILL after the grace period; all processes are dead before another holder can start
    Term,
    /// Send SIGKILL before another holder can start
    Kill,
    /// Print a warning; the command continues, and only fences reject its writes
    Warn,
}

/// Validated durations of a command, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct CommandTimes {
    pub on_lost: OnLost,
    pub ttl: u64,
    pub grace: u64,
    /// Longest time between two reports of progress.
    pub progress: Option<u64>,
}

impl RunOptions {
    /// Validates the durations, before any server is contacted.
    pub fn times(&self) -> Result<CommandTimes, Error> {
        let ttl = self.ttl.millis();
        if !(TTL_MIN..=TTL_MAX_EVER).contains(&ttl) {
            return Err(invalid("ttl", "must be between 100ms and 7d"));
        }
        let grace = self.grace();
        if grace > ttl / 2 {
            let reason = "longer than half of the ttl, so one late renewal would end the command; use a shorter grace";
            return Err(invalid("grace", reason));
        }
        let progress = self.progress.map(HumanDuration::millis);
        if progress.is_some_and(|every| !(TTL_MIN..=TTL_MAX_EVER).contains(&every)) {
            return Err(invalid("progress", "must be between 100ms and 7d"));
        }
        Ok(CommandTimes { on_lost: self.on_lost, ttl: nanos(ttl), grace: nanos(grace), progress: progress.map(nanos) })
    }

    /// Progress window of the lease in milliseconds. The command is terminated after `--progress` and killed after the grace
    /// period; the lease ends as stalled afterwards, on any clock within the drift bound.
    fn progress_window(&self) -> Option<u64> {
        let every = self.progress?.millis();
        let needed = match self.on_lost {
            OnLost::Warn => return Some(every),
            OnLost::Kill => every,
            OnLost::Term => every.saturating_add(self.grace()),
        };
        let drift = ClockDrift::default();
        Some(drift.stretch(needed.saturating_add(self.ttl.millis() / MARGIN)).min(TTL_MAX_EVER))
    }

    pub fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl.millis())
    }

    /// Interval between renewals: three attempts must fit before the command receives SIGTERM.
    fn renew_interval(&self) -> Duration {
        let ttl = self.ttl.millis();
        let grace = if self.on_lost == OnLost::Term { self.grace() } else { 0 };
        let min = (ttl / MAX_RENEWALS_PER_TTL).max(RENEW_GAP_MIN);
        Duration::from_millis((ttl.saturating_sub(ttl / 10 + grace) / 3).max(min))
    }

    /// The grace period in milliseconds.
    fn grace(&self) -> u64 {
        self.grace.map_or(GRACE.min(self.ttl.millis() / 2), HumanDuration::millis)
    }

    pub fn client(&self, global: &GlobalArgs, messages: Option<Arc<ConnectionMessages>>) -> Result<Client, Error> {
        let session = self.ttl().max(Duration::from_millis(SESSION));
        let mut client = client_builder(global.endpoints()?).session_ttl(session);
        if let Some(messages) = messages {
            client = client.metrics(messages);
        }
        if let Some(holder) = &self.holder {
            client = client.holder(holder);
        }
        Ok(client.build())
    }

    pub fn lock(&self, client: &Client, name: &str, wait: Duration) -> Lock {
        let mut lock =
            client.lock(name).ttl(self.ttl()).wait(wait).priority(self.priority).renew_every(self.renew_interval());
        if let Some(slots) = self.slots {
            lock = lock.slots(slots);
        }
        if let Some(window) = self.progress_window() {
            lock = lock.require_progress(Duration::from_millis(window));
        }
        lock
    }
}

fn invalid(field: &'static str, reason: &'static str) -> Error {
    Error::from(&Refusal::Invalid { field, reason })
}

const fn nanos(ms: u64) -> u64 {
    ms.saturating_mul(1_000_000)
}

#[cfg(test)]
mod tests {
    use leasehold_core::holder::Timing;

    use super::*;

    #[test]
    fn three_renewals_fit_before_sigterm_for_every_valid_ttl_and_grace() {
        for ttl in [TTL_MIN, 101, 999, 1_000, 10_000, 43_210, 300_000, TTL_MAX_EVER] {
            for grace in [Some(0), Some(1), Some(ttl / 2), None] {
                for on_lost in [OnLost::Term, OnLost::Kill, OnLost::Warn] {
                    let options = RunOptions {
                        ttl: HumanDuration::from_millis(ttl),
                        slots: None,
                        priority: AcquireOptions::DEFAULT_PRIORITY,
                        holder: None,
                        on_lost,
                        grace: grace.map(HumanDuration::from_millis),
                        progress: None,
                        fences: Vec::new(),
                        command: Vec::new(),
                    };
                    assert!(options.times().is_ok(), "{ttl}, {grace:?}");
                    let every = u64::try_from(options.renew_interval().as_millis()).expect("less than a ttl");
                    let timing = Timing::new(ttl, ClockDrift::default()).and_then(|timing| timing.with_interval(every));
                    assert!(timing.is_ok(), "{ttl}, {grace:?}: {every}");
                    let terminate_at = if on_lost == OnLost::Term { ttl - options.grace() } else { ttl };
                    assert!(3 * every < terminate_at, "{ttl}, {grace:?}: {every}");
                }
            }
        }
    }
}
