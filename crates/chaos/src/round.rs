//! One round: everything is started, strikes fall, everything is healed, work must go on, and then all is read and judged.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use leasehold_sim::chance::Chance;
use leasehold_sim::history::{Event, History};
use rustix::process::Signal;
use serde::Serialize;

use crate::holder::target::Kind;
use crate::nemesis::Nemesis;
use crate::process::PATIENCE;
use crate::read::ghost;
use crate::read::history::{Left, history};
use crate::read::tally::{Tally, tally};
use crate::said::{self, Said, What};
use crate::stage::{Plan, Stage};
use crate::verdict::{self, Found};

/// How often the run looks around.
const LOOK: Duration = Duration::from_millis(15);
/// How often a run without fences, and the marks, are looked at.
const GLANCE: Duration = Duration::from_millis(700);

/// What must have happened before a round counts. It goes on until it has.
#[derive(Clone, Copy, Debug, Default)]
pub struct Least {
    /// Pauses longer than the ttl.
    pub pauses: u64,
    /// Writes sent too late to a fenced target.
    pub late: u64,
}

/// What came of a round.
#[derive(Debug, Default, Serialize)]
pub struct Outcome {
    /// Its seed.
    pub seed: u64,
    /// How many servers it had.
    pub servers: usize,
    /// How long strikes fell, in seconds.
    pub seconds: f64,
    /// Pauses, and those that were longer than the ttl.
    pub pauses: u64,
    /// Those longer than the ttl.
    pub pauses_beyond_ttl: u64,
    /// What holders did.
    pub tally: Tally,
    /// What was done to them.
    pub strikes: BTreeMap<&'static str, u64>,
    /// The same, one after the other.
    #[serde(skip)]
    pub struck: Vec<String>,
    /// How many batches the journal has.
    pub batches: usize,
    /// What an operator should read.
    pub notes: Vec<String>,
    /// The broken promises, each with the events that lead to it.
    pub broken: Vec<Found>,
}

/// Plays a round below a directory.
pub fn play(plan: &Plan, above: &Path, lasting: Duration, least: Least, each: &dyn Fn(&str)) -> io::Result<Outcome> {
    let mut chance = Chance::new(plan.seed);
    each("starts");
    let mut stage = Stage::start(plan, above, &mut chance)?;
    let mut nemesis = Nemesis::new(Chance::new(chance.draw()));
    let began = Instant::now();
    let mut outcome = Outcome { seed: plan.seed, servers: plan.servers, ..Outcome::default() };
    outcome.notes.extend(stage.no_namespace.iter().map(|why| format!("no network of its own for a holder: {why}")));
    let mut marks = Marks::new(&stage);
    let mut glanced = Instant::now();
    loop {
        nemesis.turn(&mut stage, true)?;
        std::thread::sleep(LOOK);
        if glanced.elapsed() < GLANCE {
            continue;
        }
        glanced = Instant::now();
        each(&format!("{:.0} s, {} pauses beyond the ttl", began.elapsed().as_secs_f64(), nemesis.beyond));
        if !plan.fenced {
            let left =
                Left { said: heard(&stage)?, ghosts: ghost::files(&stage.files(), Kind::Twin)?, ..Left::default() };
            outcome.broken = verdict::without_fence(&history(&left));
            if !outcome.broken.is_empty() || began.elapsed() > lasting + 10 * PATIENCE {
                break;
            }
            continue;
        }
        outcome.broken.extend(marks.look(&stage));
        if began.elapsed() >= lasting && enough(&stage, &nemesis, least)? {
            break;
        }
        if began.elapsed() > lasting + 10 * PATIENCE {
            outcome.notes.push("too little happened: the run proves nothing".to_owned());
            outcome.broken.push(Found::plain("X1", "too few pauses and late writes, however long it went on"));
            break;
        }
    }
    outcome.seconds = began.elapsed().as_secs_f64();
    if plan.fenced {
        each("is healed");
        outcome.broken.extend(calm(&mut stage, &mut nemesis)?);
    }
    outcome.notes.append(&mut nemesis.ended);
    let mut left = end(&mut stage, &mut nemesis, plan.fenced)?;
    each("is judged");
    left.said.sort_by_key(|said| said.at);
    outcome.tally = tally(&left);
    outcome.batches = left.batches.len();
    (outcome.pauses, outcome.pauses_beyond_ttl) = (nemesis.pauses, nemesis.beyond);
    if plan.fenced {
        let told = |left: &Left| struck(history(left), &nemesis);
        outcome.broken.extend(verdict::all(&left, told, &outcome.tally));
        if let Some(postgres) = &stage.postgres {
            let (files, cluster) = (stage.files(), stage.cluster);
            let kept =
                stage.runtime.block_on(async { ghost::marks(&files, cluster, &postgres.connect().await?).await });
            outcome.broken.extend(verdict::marks_cover(&left, &kept));
        }
    }
    if !outcome.broken.is_empty() && plan.fenced {
        std::fs::write(above.join("trace"), leasehold_sim::trace::lines(&struck(history(&left), &nemesis)))?;
    }
    outcome.strikes = nemesis.counts;
    let line = |(at, _, what): &(u64, _, String)| format!("{:>6}.{:03}  {what}", at / 1_000, at % 1_000);
    outcome.struck = nemesis.struck.iter().map(line).collect();
    Ok(outcome)
}

/// The marks of the logs, read again and again from a thread that may wait for a stopped holder's lock.
struct Marks {
    known: BTreeMap<u32, u64>,
    reading: tokio::task::JoinHandle<io::Result<Vec<(u32, u64)>>>,
}

impl Marks {
    fn new(stage: &Stage) -> Self {
        Self { known: BTreeMap::new(), reading: Self::read(stage) }
    }

    fn read(stage: &Stage) -> tokio::task::JoinHandle<io::Result<Vec<(u32, u64)>>> {
        let (files, cluster) = (stage.files(), stage.cluster);
        stage.runtime.spawn_blocking(move || ghost::file_marks(&files, cluster))
    }

    fn look(&mut self, stage: &Stage) -> Vec<Found> {
        if !self.reading.is_finished() {
            return Vec::new();
        }
        let reading = std::mem::replace(&mut self.reading, Self::read(stage));
        let read = stage.runtime.block_on(reading).unwrap_or_else(|panicked| Err(io::Error::other(panicked)));
        verdict::marks_rise(&mut self.known, &read)
    }
}

/// The strikes among the events, for who reads the trace.
fn struck(mut history: History, nemesis: &Nemesis) -> History {
    for (at, fault, what) in &nemesis.struck {
        history.add(*at, Event::Struck { fault: *fault, what: what.clone() });
    }
    history.events.sort_by_key(|(at, _)| *at);
    history
}

/// What all holders said until now.
fn heard(stage: &Stage) -> io::Result<Vec<Said>> {
    let mut all = Vec::new();
    for seat in &stage.seats {
        // One that was never heard has no file.
        all.extend(said::read(&seat.part.history).unwrap_or_default());
    }
    all.sort_by_key(|said| said.at);
    Ok(all)
}

fn enough(stage: &Stage, nemesis: &Nemesis, least: Least) -> io::Result<bool> {
    if nemesis.beyond < least.pauses {
        return Ok(false);
    }
    let left = Left { said: heard(stage)?, ghosts: ghost::files(&stage.files(), Kind::Twin)?, ..Left::default() };
    let tally = tally(&left);
    Ok(tally.late >= least.late.max(1) && tally.corrupted > 0)
}

/// Everything is healed: then every holder comes to write at both targets again.
fn calm(stage: &mut Stage, nemesis: &mut Nemesis) -> io::Result<Vec<Found>> {
    nemesis.heal(stage)?;
    let healed = said::clock().saturating_sub(stage.origin) / 1_000;
    let until = Instant::now() + PATIENCE;
    loop {
        nemesis.turn(stage, false)?;
        std::thread::sleep(GLANCE / 4);
        let heard = heard(stage)?;
        let idle: Vec<u32> = (0..stage.seats.len() as u32).filter(|who| !writes(&heard, *who, healed)).collect();
        if idle.is_empty() {
            return Ok(Vec::new());
        }
        if Instant::now() > until {
            let why = format!("holders {idle:?} write nothing in a healed world within {} s", PATIENCE.as_secs());
            return Ok(vec![Found::plain("X1", &why)]);
        }
    }
}

/// Whether a holder has written to a log and to a table since then.
fn writes(heard: &[Said], who: u32, since: u64) -> bool {
    let own = heard.iter().filter(|said| said.who == who && said.at > since);
    let mut kinds = BTreeMap::new();
    let mut done = [false; 2];
    for said in own {
        match said.what {
            What::Sends { op, target, value: true, .. } => drop(kinds.insert(op, Kind::of(target))),
            What::Written { op } => match kinds.get(&op) {
                Some(Kind::File) => done[0] = true,
                Some(Kind::Postgres) => done[1] = true,
                _ => {}
            },
            _ => {}
        }
    }
    done == [true; 2]
}

/// Ends the holders, kills the servers, and reads what is left.
fn end(stage: &mut Stage, nemesis: &mut Nemesis, fenced: bool) -> io::Result<Left> {
    if fenced {
        stage.seats.iter_mut().for_each(crate::seat::Seat::order_over);
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until && !stage.seats.iter_mut().all(crate::seat::Seat::has_ended) {
            nemesis.turn(stage, false)?;
            std::thread::sleep(LOOK);
        }
    }
    stage.seats.iter_mut().for_each(crate::seat::Seat::kill);
    for server in &mut stage.servers {
        server.process.iter().for_each(|process| process.signal(Signal::CONT));
        server.process.iter_mut().for_each(crate::process::Process::kill);
        server.gone();
    }
    let mut left = Left { said: heard(stage)?, ..Left::default() };
    if fenced {
        left.batches = stage.batches()?;
        left.ghosts = ghost::files(&stage.files(), Kind::File)?;
        if let Some(postgres) = &stage.postgres {
            left.ghosts.extend(stage.runtime.block_on(async { ghost::table(&postgres.connect().await?).await })?);
        }
    }
    left.ghosts.extend(ghost::files(&stage.files(), Kind::Twin)?);
    Ok(left)
}
