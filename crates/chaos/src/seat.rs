//! A holder as the run sees it: a process with an order book, its own ways to everything, and perhaps a clock of its own.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::holder::{OVER, PAUSE, Part};
use crate::machine::namespace::Link;
use crate::process::{Process, bound};
use crate::proxy::Way;

/// What a holder does, as far as signals go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It runs.
    Runs,
    /// It was told to stand still at its next write, for so long.
    Ordered(Duration),
    /// It stands still since then, until then.
    Stands(Instant, Instant),
    /// It is not there.
    Gone,
}

/// How a holder's clock is wrong: ahead by jumps, and faster than it should be.
#[derive(Clone, Debug)]
pub struct Clock {
    file: PathBuf,
    began: Instant,
    /// How much faster than real time, in percent.
    pub faster: u32,
    jumped: u64,
}

/// A holder's place in the run.
pub struct Seat {
    /// What it plays.
    pub part: Part,
    process: Option<Process>,
    orders: Option<ChildStdin>,
    /// What it does.
    pub state: State,
    /// Its ways to the servers.
    pub servers: Vec<Way>,
    /// Its way to PostgreSQL, if there is one.
    pub postgres: Option<Way>,
    /// The network of its own, if it has one.
    pub link: Option<Link>,
    /// Its clock, if it is wrong.
    pub clock: Option<Clock>,
}

impl Seat {
    /// An empty place.
    pub fn new(part: Part, clock: Option<(&Path, u32)>) -> Self {
        let clock = clock.map(|(above, faster)| Clock {
            file: above.join(format!("slept-{}", part.who)),
            began: Instant::now(),
            faster,
            jumped: 0,
        });
        let (servers, postgres, link) = (Vec::new(), None, None);
        Self { part, process: None, orders: None, state: State::Gone, servers, postgres, link, clock }
    }

    /// Starts the process; it does nothing before [`Seat::begin`].
    pub fn start(&mut self, under: &[&str]) -> io::Result<u32> {
        let this = std::env::current_exe()?;
        let mut command = bound("KILL", under);
        // By this the processes of one run can be told from those of another.
        command.arg(this).arg("holder").stdin(Stdio::piped()).env("LEASEHOLD_CHAOS", &self.part.history);
        if let Some(clock) = &self.clock {
            command.env(leasehold::testing::SLEPT, &clock.file);
        }
        let mut process = Process::start(&mut command)?;
        self.orders = process.stdin();
        let id = process.id();
        self.process = Some(process);
        Ok(id)
    }

    /// Tells it its part.
    pub fn begin(&mut self) -> io::Result<()> {
        let addresses: Vec<String> = self.servers.iter().map(|way| way.at.to_string()).collect();
        self.part.servers = addresses.join(",");
        if let Some(way) = &self.postgres {
            self.part.postgres = (way.at.ip().to_string(), way.at.port());
        }
        let part = serde_json::to_string(&self.part)?;
        self.order(&part);
        self.state = State::Runs;
        Ok(())
    }

    fn order(&mut self, what: &str) {
        if let Some(orders) = &mut self.orders {
            // Whoever was killed hears nothing.
            let _ = writeln!(orders, "{what}");
        }
    }

    /// Orders it to stand still with its next write ready.
    pub fn order_pause(&mut self, lasting: Duration) {
        self.order(PAUSE);
        self.state = State::Ordered(lasting);
    }

    /// Stops it wherever it is.
    pub fn freeze(&mut self, lasting: Duration) {
        if let Some(process) = &mut self.process {
            process.stop();
            self.state = State::Stands(Instant::now(), Instant::now() + lasting);
        }
    }

    /// Looks whether it has come to stand still, or has stood long enough. Returns how long it stood when it goes on.
    pub fn look(&mut self, now: Instant) -> Option<Duration> {
        match self.state {
            State::Ordered(lasting) if self.process.as_ref().is_some_and(Process::has_stopped) => {
                self.state = State::Stands(now, now + lasting);
                None
            }
            State::Stands(since, until) if now >= until => {
                self.go_on();
                Some(now - since)
            }
            _ => None,
        }
    }

    /// Lets it go on.
    pub fn go_on(&mut self) {
        if let Some(process) = &self.process {
            process.signal(Signal::CONT);
            self.state = State::Runs;
        }
    }

    /// kill −9.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill();
        }
        self.orders = None;
        self.state = State::Gone;
    }

    /// Another process takes the place.
    pub fn again(&mut self) -> io::Result<()> {
        self.part.life += 1;
        self.part.seed = self.part.seed.wrapping_add(1);
        self.start(&[])?;
        self.begin()
    }

    /// Whether the process ended although nobody killed it.
    pub fn has_ended(&mut self) -> bool {
        self.process.as_mut().is_some_and(|process| process.ended().is_some())
    }

    /// Tells it to come to an end.
    pub fn order_over(&mut self) {
        self.order(OVER);
    }

    /// Its clock jumps ahead, as that of a machine that slept.
    pub fn jump(&mut self, by: Duration) {
        if let Some(clock) = &mut self.clock {
            clock.jumped += by.as_millis() as u64;
        }
    }

    /// Sets its clock to where it should be by now.
    pub fn tick(&self) -> io::Result<()> {
        let Some(clock) = &self.clock else { return Ok(()) };
        let ahead = clock.began.elapsed().as_millis() as u64 * u64::from(clock.faster) / 100 + clock.jumped;
        // In one step: a holder that reads nothing would see its clock go back.
        let draft = clock.file.with_extension("draft");
        std::fs::write(&draft, ahead.to_string())?;
        std::fs::rename(draft, &clock.file)
    }
}
