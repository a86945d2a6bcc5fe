//! The environment of a story: a manual clock, a journal, the serving grantor and replaced ones.

use std::collections::{BTreeMap, VecDeque};

use leasehold_core::access::{AccessGrant, Caller, IdentityLimits, Rights, Role};
use leasehold_core::command::{Answer, Input, Notice, Request};
use leasehold_core::grantor::{
    Grantor, OpenTenureError, Output, RecoveredGrantor, RestoreSpec, TenureOptions, recover,
};
use leasehold_core::lease::Validity;
use leasehold_core::limits;
use leasehold_core::time::{Instant, Now, WallClock};
use leasehold_core::token::Incarnation;

use super::checks::Checks;
use super::commands::{self, CLUSTER, CommandLists, Context};
use super::labels::Labels;
use super::target::Target;

/// State of a story.
pub struct Scenario {
    /// Milliseconds since the story began.
    pub ms: u64,
    /// Offset of the wall clock.
    pub wall_ms: u64,
    pub max_ttl: u64,
    pub labels: Labels,
    pub targets: BTreeMap<String, Target>,
    pub copies: BTreeMap<String, Vec<Vec<u8>>>,
    pub journal: Journal,
    pub driver: Option<Driver>,
    /// Replaced grantors that do not know it yet.
    pub zombies: Vec<Driver>,
    pub checks: Checks,
    /// Answers that the story has not checked yet, by request.
    pub answers: BTreeMap<u64, VecDeque<Answer>>,
    pub contexts: BTreeMap<u64, Context>,
    /// Requests with a label.
    pub called: BTreeMap<String, u64>,
    pub notices: VecDeque<Notice>,
    pub access: AccessRules,
    pub incarnation: Incarnation,
    /// Counters for new incarnations and hash seeds.
    last_drawn: u32,
    tag: u64,
}

/// The grants of each identity. The epoch changes with every change.
#[derive(Default)]
pub struct AccessRules {
    epoch: u32,
    grants: BTreeMap<String, Vec<AccessGrant>>,
    limits: BTreeMap<String, IdentityLimits>,
}

impl AccessRules {
    pub fn grant(&mut self, principal: &str, role: Role, prefix: &str) {
        self.epoch += 1;
        self.grants.entry(principal.to_owned()).or_default().push(AccessGrant { role, prefix: prefix.into() });
    }

    pub fn withdraw(&mut self, principal: &str) {
        self.epoch += 1;
        self.grants.remove(principal);
    }

    /// Limits what an identity may have.
    pub fn limit(&mut self, principal: &str, change: impl FnOnce(&mut IdentityLimits)) {
        self.epoch += 1;
        change(self.limits.entry(principal.to_owned()).or_insert(IdentityLimits::UNLIMITED));
    }

    fn rights_of(&self, principal: &str) -> Rights {
        let limits = self.limits.get(principal).copied().unwrap_or(IdentityLimits::UNLIMITED);
        Rights::new(self.epoch, self.grants.get(principal).cloned().unwrap_or_default()).with_limits(limits)
    }
}

/// The journal and its writer.
#[derive(Default)]
pub struct Journal {
    pub batches: Vec<Vec<u8>>,
    generation: u64,
}

/// A grantor and its driver.
pub struct Driver {
    pub grantor: Grantor,
    generation: u64,
    out: Output,
}

/// The point up to which a turn runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Until {
    Delivered,
    /// The process dies before anything is durable.
    Stepped,
    /// The process dies after the record and before the answer.
    Durable,
}

impl Journal {
    /// Opening for writing fences every earlier writer.
    fn open(&mut self) -> u64 {
        self.generation += 1;
        self.generation
    }

    fn is_fenced(&self, generation: u64) -> bool {
        self.generation != generation
    }
}

impl Scenario {
    pub fn new() -> Self {
        Self {
            ms: 0,
            wall_ms: 1_000_000_000,
            max_ttl: limits::TTL_MAX_DEFAULT,
            labels: Labels::default(),
            targets: BTreeMap::new(),
            copies: BTreeMap::new(),
            journal: Journal::default(),
            driver: None,
            zombies: Vec::new(),
            checks: Checks::new(RecoveredGrantor::empty(0)),
            answers: BTreeMap::new(),
            contexts: BTreeMap::new(),
            called: BTreeMap::new(),
            notices: VecDeque::new(),
            access: AccessRules::default(),
            incarnation: Incarnation(1),
            last_drawn: 1,
            tag: 0,
        }
    }

    pub fn wall(&self) -> WallClock {
        WallClock::after_era(self.wall_ms)
    }

    fn now(&self) -> Now {
        Now { instant: Instant::from_millis(1_000 + self.ms), wall: self.wall() }
    }

    pub fn grantor(&self) -> Result<&Grantor, String> {
        self.driver.as_ref().map(|driver| &driver.grantor).ok_or_else(|| "unavailable".to_owned())
    }

    /// Lets time pass, with turns of the driver.
    pub fn advance(&mut self, ms: u64) -> Result<(), String> {
        let end = self.ms + ms;
        while self.ms < end {
            let next = (self.ms + limits::TURN_EVERY).min(end);
            let due = self.driver.as_ref().and_then(|driver| driver.grantor.next_deadline());
            let due = due.map_or(next, |due| due.millis_since(Instant::from_millis(1_000)).max(self.ms + 1));
            self.stall(next.min(due) - self.ms);
            if self.driver.is_some() {
                self.turn(Until::Delivered)?;
            }
        }
        Ok(())
    }

    /// Lets time pass without a turn.
    pub fn stall(&mut self, ms: u64) {
        self.ms += ms;
        self.wall_ms += ms;
    }

    /// Sends a command to the serving grantor, or to the grantor replaced last. Returns the tag of the request.
    pub fn send(&mut self, words: &[String], of_zombie: bool) -> Result<Option<u64>, String> {
        let tag = self.tag + 1;
        let (principal, words) = match words {
            [first, principal, command @ ..] if first == "as" => (Some(principal.as_str()), command),
            _ => (None, words),
        };
        let rights = principal.map(|principal| self.access.rights_of(principal));
        let caller = match (principal, &rights) {
            (Some(principal), Some(rights)) => Caller { principal, rights },
            _ => Caller::LOCAL,
        };
        let mut lists = CommandLists::default();
        let Some(parsed) = commands::parse(&self.labels, words, tag, &mut lists)? else {
            return Ok(None);
        };
        self.tag = tag;
        let now = self.now();
        let driver = if of_zombie { self.zombies.last_mut() } else { self.driver.as_mut() };
        let driver = driver.ok_or_else(|| "unavailable".to_owned())?;
        driver.grantor.step(now, &Input::Request(Request { caller, ..parsed.request }, parsed.command));
        if let Some(called) = parsed.called {
            self.called.insert(called.to_owned(), tag);
        }
        self.contexts.insert(tag, parsed.context);
        Ok(Some(tag))
    }

    /// Ends a turn of the serving grantor: makes it durable, then delivers the answers. Returns whether the grantor
    /// may still serve.
    pub fn turn(&mut self, until: Until) -> Result<bool, String> {
        let now = self.now();
        let mut driver = self.driver.take().ok_or_else(|| "unavailable".to_owned())?;
        driver.grantor.step(now, &Input::Tick);
        driver.grantor.take_output(&mut driver.out);
        if self.journal.is_fenced(driver.generation) {
            self.zombies.push(driver);
            return Ok(false);
        }
        if until == Until::Stepped {
            return Ok(true);
        }
        if !driver.out.batch.is_empty() {
            self.journal.batches.push(driver.out.batch.clone());
            self.checks.check_batch(&driver.out.batch, &driver.grantor)?;
        }
        if until == Until::Durable {
            return Ok(true);
        }
        for reply in driver.out.replies.drain(..) {
            self.checks.record_answer(&reply.answer, &driver.grantor);
            self.answers.entry(reply.tag).or_default().push_back(reply.answer);
        }
        self.notices.extend(driver.out.notices.drain(..));
        self.driver = Some(driver);
        Ok(true)
    }

    /// Ends a turn of a replaced grantor. The journal refuses its records and its confirmation, so it delivers
    /// nothing.
    pub fn zombie_turn(&mut self) -> Result<(), String> {
        let now = self.now();
        let driver = self.zombies.last_mut().ok_or_else(|| "no grantor was replaced".to_owned())?;
        driver.grantor.step(now, &Input::Tick);
        driver.grantor.take_output(&mut driver.out);
        if self.journal.is_fenced(driver.generation) { Ok(()) } else { Err("the old grantor is not fenced".to_owned()) }
    }

    /// Opens a new grantor from the journal. With `served` it starts to serve.
    pub fn open(&mut self, restore: Option<RestoreSpec>, served: bool) -> Result<Result<(), OpenTenureError>, String> {
        self.last_drawn += 1;
        let state = self.replay()?;
        let generation = self.journal.open();
        let opening = TenureOptions {
            cluster: CLUSTER,
            incarnation: self.incarnation,
            generation,
            validity: Validity::Session,
            max_ttl: self.max_ttl,
            restore,
        };
        let now = self.now();
        let mut grantor = match state.open(now, &opening) {
            Ok(grantor) => grantor,
            Err(refused) => return Ok(Err(refused)),
        };
        let mut out = Output::default();
        grantor.take_output(&mut out);
        self.journal.batches.push(out.batch.clone());
        self.checks.check_batch(&out.batch, &grantor)?;
        self.incarnation = grantor.status().incarnation;
        if served {
            grantor.serve(now);
            self.driver = Some(Driver { grantor, generation, out });
            self.turn(Until::Delivered)?;
        }
        Ok(Ok(()))
    }

    /// Recovers the state from all batches, and checks that a snapshot with the later batches gives the same (V1).
    fn replay(&self) -> Result<RecoveredGrantor, String> {
        let batches = || self.journal.batches.iter().map(Vec::as_slice);
        let half = self.journal.batches.len() / 2;
        let corrupt = |corrupt| format!("the journal does not replay: {corrupt}");
        let all = recover(u64::from(self.last_drawn), None, batches()).map_err(corrupt)?;
        let first = recover(7, None, batches().take(half)).map_err(corrupt)?.snapshot();
        let rest = recover(8, Some(&first), batches().skip(half)).map_err(corrupt)?;
        if all.state_hash() != rest.state_hash() {
            return Err("V1: a snapshot and what follows give another state than all records".to_owned());
        }
        if all.state_hash() != self.checks.standby().state_hash() {
            return Err("V1: replay gives another state than the standby has".to_owned());
        }
        Ok(all)
    }

    /// Replaces the journal by a copy; later batches are lost.
    pub fn roll_back_to(&mut self, batches: Vec<Vec<u8>>, clock_is_behind: bool) -> Result<(), String> {
        self.driver = None;
        self.journal.batches = batches;
        let standby = recover(9, None, self.journal.batches.iter().map(Vec::as_slice));
        let standby = standby.map_err(|corrupt| format!("the copy does not replay: {corrupt}"))?;
        self.checks.follow(standby, clock_is_behind);
        Ok(())
    }

    /// A new incarnation, never repeated.
    pub fn new_incarnation(&mut self) -> Incarnation {
        self.last_drawn += 1;
        Incarnation(0x1_0000 + self.last_drawn)
    }
}

impl Scenario {
    /// Resumes a copy of a whole machine, memory and disk. Everything else has moved on.
    pub fn resume(&mut self, copy: Self) -> Result<(), String> {
        self.roll_back_to(copy.journal.batches, false)?;
        self.journal.generation = copy.journal.generation;
        self.driver = copy.driver;
        Ok(())
    }
}
