//! What `run` and `elect` have in common: what is held, and how a command ends with it.

use std::ffi::OsString;
use std::time::Duration;

use clap::ValueEnum;
use leasehold::duration::Lasting;
use leasehold::{Client, Error, Lock, Options};
use leasehold_core::command::Terms;
use leasehold_core::limits::{RENEW_GAP_MIN, TTL_MAX_EVER, TTL_MIN};
use leasehold_core::refusal::Refusal;

use crate::connection::Everywhere;

/// How long a renewal lasts for those who do not say.
const TTL: Lasting = Lasting::from_millis(10_000);
/// How long a command may take to end for those who do not say, unless half of the ttl is less.
const GRACE: u64 = 5_000;
/// A session outlives the leases that hang on it.
const SESSION: u64 = 30_000;
/// One of so many parts of what a renewal lasts is kept for killing: what was killed must be dead at the deadline, not dying.
pub const MARGIN: u64 = 20;

/// Nobody renews more often than so many times in a ttl.
const ATTEMPTS_MOST: u64 = 30;

/// What is held, and how a command ends with it
#[derive(clap::Args)]
pub struct Shape {
    /// How long a renewal lasts
    #[arg(long, value_name = "DURATION", default_value_t = TTL)]
    ttl: Lasting,
    /// One of N slots
    #[arg(long, value_name = "N")]
    slots: Option<u32>,
    /// Higher goes first, from 0 to 255
    #[arg(long, value_name = "P", default_value_t = Terms::PRIORITY)]
    priority: u8,
    /// Who holds it, for people to read [default: the process by its number]
    #[arg(long)]
    holder: Option<String>,
    /// What becomes of the command when its lease cannot be kept
    #[arg(long, value_enum, value_name = "HOW", default_value_t = OnLost::Term)]
    on_lost: OnLost,
    /// How long it has from TERM to KILL, at most half of the ttl [default: 5s, or half of the ttl]
    #[arg(long, value_name = "DURATION")]
    grace: Option<Lasting>,
    /// The lease ends unless the command reports progress this often (`leasehold progress`)
    #[arg(long, value_name = "WINDOW")]
    progress: Option<Lasting>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// What becomes of a command whose lease cannot be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnLost {
    /// TERM, and KILL after the grace; all of it is dead before a successor can start
    Term,
    /// KILL, before a successor can start
    Kill,
    /// A word on standard error: the command goes on, and only fences stop its writes
    Warn,
}

/// A command's times, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    pub on_lost: OnLost,
    pub ttl: u64,
    pub grace: u64,
}

impl Shape {
    /// The times, if they can work: those that cannot are refused before anybody is asked.
    pub fn times(&self) -> Result<Times, Error> {
        let ttl = self.ttl.millis();
        if !(TTL_MIN..=TTL_MAX_EVER).contains(&ttl) {
            return Err(wrong("ttl", "choose from 100ms to 7d"));
        }
        let grace = self.grace();
        if grace > ttl / 2 {
            let reason = "longer than half of the ttl, so that one late renewal would end the command; choose less";
            return Err(wrong("grace", reason));
        }
        Ok(Times { on_lost: self.on_lost, ttl: nanos(ttl), grace: nanos(grace) })
    }

    /// How long one renewal lasts.
    pub fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl.millis())
    }

    /// How often it is renewed: so that three attempts fit before the command is asked to end, as they do before a deadline.
    fn every(&self) -> Duration {
        let ttl = self.ttl.millis();
        let grace = if self.on_lost == OnLost::Term { self.grace() } else { 0 };
        let least = (ttl / ATTEMPTS_MOST).max(RENEW_GAP_MIN);
        Duration::from_millis((ttl.saturating_sub(ttl / 10 + grace) / 3).max(least))
    }

    /// In milliseconds.
    fn grace(&self) -> u64 {
        self.grace.map_or(GRACE.min(self.ttl.millis() / 2), Lasting::millis)
    }

    pub fn client(&self, ask: &Everywhere) -> Result<Client, Error> {
        let session = self.ttl().max(Duration::from_millis(SESSION));
        let options = Options { holder: self.holder.clone(), session, ..Options::default() };
        Ok(Client::with(ask.endpoints()?, options))
    }

    pub fn lock(&self, client: &Client, name: &str, wait: Duration) -> Lock {
        let mut lock = client.lock(name).ttl(self.ttl()).wait(wait).priority(self.priority).renew_every(self.every());
        if let Some(slots) = self.slots {
            lock = lock.slot_of(slots);
        }
        if let Some(window) = self.progress {
            lock = lock.progress(Duration::from_millis(window.millis()));
        }
        lock
    }
}

fn wrong(field: &'static str, reason: &'static str) -> Error {
    Error::from(&Refusal::Invalid { field, reason })
}

const fn nanos(ms: u64) -> u64 {
    ms.saturating_mul(1_000_000)
}

#[cfg(test)]
mod tests {
    use leasehold::RateError;
    use leasehold_core::holder::Timing;

    use super::*;

    #[test]
    fn every_ttl_is_renewed_often_enough_and_not_too_often() {
        for ttl in [TTL_MIN, 101, 999, 1_000, 10_000, 43_210, 300_000, TTL_MAX_EVER] {
            for grace in [Some(0), Some(1), Some(ttl / 2), None] {
                for on_lost in [OnLost::Term, OnLost::Kill, OnLost::Warn] {
                    let shape = Shape {
                        ttl: Lasting::from_millis(ttl),
                        slots: None,
                        priority: Terms::PRIORITY,
                        holder: None,
                        on_lost,
                        grace: grace.map(Lasting::from_millis),
                        progress: None,
                        command: Vec::new(),
                    };
                    assert!(shape.times().is_ok(), "{ttl}, {grace:?}");
                    let every = u64::try_from(shape.every().as_millis()).expect("less than a ttl");
                    let timing = Timing::new(ttl, RateError::default()).and_then(|timing| timing.every(every));
                    assert!(timing.is_ok(), "{ttl}, {grace:?}: {every}");
                    let asked = if on_lost == OnLost::Term { ttl - shape.grace() } else { ttl };
                    assert!(3 * every < asked, "{ttl}, {grace:?}: {every}");
                }
            }
        }
    }
}
