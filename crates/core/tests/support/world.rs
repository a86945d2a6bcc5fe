//! The world that a story is played in: a clock moved by hand, a journal, the grantor that serves and those that only think so.

use std::collections::{BTreeMap, VecDeque};

use leasehold_core::command::{Answer, Input, Notice};
use leasehold_core::grantor::{Grantor, NotOpened, Opening, Output, Recovered, Restoring, recover};
use leasehold_core::lease::Rung;
use leasehold_core::limits;
use leasehold_core::time::{Instant, Now, Wall};
use leasehold_core::token::Incarnation;

use super::ask::{self, CLUSTER, Context, Room};
use super::checks::Checks;
use super::labels::Labels;
use super::target::Target;

/// Everything there is in a story.
pub struct World {
    /// Milliseconds since the story began.
    pub ms: u64,
    /// What the wall clock shows beyond that.
    pub wall_ms: u64,
    pub max_ttl: u64,
    pub labels: Labels,
    pub targets: BTreeMap<String, Target>,
    pub copies: BTreeMap<String, Vec<Vec<u8>>>,
    pub journal: Journal,
    pub driver: Option<Driver>,
    /// Grantors that were replaced and do not know.
    pub zombies: Vec<Driver>,
    pub checks: Checks,
    /// Answers that came and were not looked at yet, by request.
    pub mail: BTreeMap<u64, VecDeque<Answer>>,
    pub contexts: BTreeMap<u64, Context>,
    /// Requests that the story gave a name.
    pub called: BTreeMap<String, u64>,
    pub notices: VecDeque<Notice>,
    pub incarnation: Incarnation,
    /// How many incarnations were drawn, and how often a table was seeded.
    drawn: u32,
    tag: u64,
}

/// Where facts are kept, and whose they are.
#[derive(Default)]
pub struct Journal {
    pub batches: Vec<Vec<u8>>,
    generation: u64,
}

/// A grantor and whoever takes its turns.
pub struct Driver {
    pub grantor: Grantor,
    generation: u64,
    out: Output,
}

/// How far a turn comes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Until {
    Told,
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

impl World {
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
            checks: Checks::new(Recovered::empty(0)),
            mail: BTreeMap::new(),
            contexts: BTreeMap::new(),
            called: BTreeMap::new(),
            notices: VecDeque::new(),
            incarnation: Incarnation(1),
            drawn: 1,
            tag: 0,
        }
    }

    pub fn wall(&self) -> Wall {
        Wall::after_era(self.wall_ms)
    }

    fn now(&self) -> Now {
        Now { instant: Instant::from_millis(1_000 + self.ms), wall: self.wall() }
    }

    pub fn grantor(&self) -> Result<&Grantor, String> {
        self.driver.as_ref().map(|driver| &driver.grantor).ok_or_else(|| "unavailable".to_owned())
    }

    /// Time passes, and the driver takes its turns.
    pub fn pass(&mut self, ms: u64) -> Result<(), String> {
        let end = self.ms + ms;
        while self.ms < end {
            let next = (self.ms + limits::TURN_EVERY).min(end);
            let due = self.driver.as_ref().and_then(|driver| driver.grantor.next_deadline());
            let due = due.map_or(next, |due| due.millis_since(Instant::from_millis(1_000)).max(self.ms + 1));
            self.stand(next.min(due) - self.ms);
            if self.driver.is_some() {
                self.turn(Until::Told)?;
            }
        }
        Ok(())
    }

    /// Time passes and nobody takes a turn.
    pub fn stand(&mut self, ms: u64) {
        self.ms += ms;
        self.wall_ms += ms;
    }

    /// Asks the grantor that serves, or the latest one that was replaced. Returns the request's mark.
    pub fn ask(&mut self, words: &[String], of_zombie: bool) -> Result<Option<u64>, String> {
        let tag = self.tag + 1;
        let mut room = Room::default();
        let Some(asked) = ask::asked(&self.labels, words, tag, &mut room)? else {
            return Ok(None);
        };
        self.tag = tag;
        let now = self.now();
        let driver = if of_zombie { self.zombies.last_mut() } else { self.driver.as_mut() };
        let driver = driver.ok_or_else(|| "unavailable".to_owned())?;
        driver.grantor.step(now, &Input::Asked(asked.request, asked.command));
        if let Some(called) = asked.called {
            self.called.insert(called.to_owned(), tag);
        }
        self.contexts.insert(tag, asked.context);
        Ok(Some(tag))
    }

    /// Ends the turn of the grantor that serves: durable, then told. Returns whether it still may serve.
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
            self.checks.recorded(&driver.out.batch, &driver.grantor)?;
        }
        if until == Until::Durable {
            return Ok(true);
        }
        for reply in driver.out.replies.drain(..) {
            self.checks.answered(&reply.answer, &driver.grantor);
            self.mail.entry(reply.to).or_default().push_back(reply.answer);
        }
        self.notices.extend(driver.out.notices.drain(..));
        self.driver = Some(driver);
        Ok(true)
    }

    /// A replaced grantor's turn: its record is refused, and so is its confirmation. It may tell nobody anything.
    pub fn zombie_turn(&mut self) -> Result<(), String> {
        let now = self.now();
        let driver = self.zombies.last_mut().ok_or_else(|| "nobody was replaced".to_owned())?;
        driver.grantor.step(now, &Input::Tick);
        driver.grantor.take_output(&mut driver.out);
        if self.journal.is_fenced(driver.generation) { Ok(()) } else { Err("the old grantor is not fenced".to_owned()) }
    }

    /// A grantor takes over what is on record. With `served` it lives to serve.
    pub fn open(&mut self, restore: Option<Restoring>, served: bool) -> Result<Result<(), NotOpened>, String> {
        self.drawn += 1;
        let state = self.replay()?;
        let generation = self.journal.open();
        let opening = Opening {
            cluster: CLUSTER,
            incarnation: self.incarnation,
            generation,
            rung: Rung::Session,
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
        self.checks.recorded(&out.batch, &grantor)?;
        self.incarnation = grantor.status().incarnation;
        if served {
            grantor.serve(now);
            self.driver = Some(Driver { grantor, generation, out });
            self.turn(Until::Told)?;
        }
        Ok(Ok(()))
    }

    /// The state on record: from all batches, and the same from a snapshot and the batches after it (V1).
    fn replay(&self) -> Result<Recovered, String> {
        let batches = || self.journal.batches.iter().map(Vec::as_slice);
        let half = self.journal.batches.len() / 2;
        let corrupt = |corrupt| format!("the journal does not replay: {corrupt}");
        let all = recover(u64::from(self.drawn), None, batches()).map_err(corrupt)?;
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

    /// Another journal takes the place of this one: what was written after the copy is gone.
    pub fn put_back(&mut self, batches: Vec<Vec<u8>>, clock_is_behind: bool) -> Result<(), String> {
        self.driver = None;
        self.journal.batches = batches;
        let standby = recover(9, None, self.journal.batches.iter().map(Vec::as_slice));
        let standby = standby.map_err(|corrupt| format!("the copy does not replay: {corrupt}"))?;
        self.checks.follow(standby, clock_is_behind);
        Ok(())
    }

    /// Drawn by the story, never twice.
    pub fn new_incarnation(&mut self) -> Incarnation {
        self.drawn += 1;
        Incarnation(0x1_0000 + self.drawn)
    }
}

impl World {
    /// A whole machine comes back as it was when it was copied, memory and disk; the rest of the world went on.
    pub fn resume(&mut self, copy: Self) -> Result<(), String> {
        self.put_back(copy.journal.batches, false)?;
        self.journal.generation = copy.journal.generation;
        self.driver = copy.driver;
        Ok(())
    }
}
