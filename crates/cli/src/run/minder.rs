//! The minder: a process between the wrapper and its command, which ends the command when its time is over or the wrapper is
//! gone.
//!
//! It is this binary once more, in a process group of its own, so that nothing that ends or stops the wrapper's group stops
//! it. It knows the command's deadline and looks at its own clock, so that a wrapper which stands still changes nothing.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use leasehold::{Client, Endpoints, Held};
use rustix::process::{Pid, Signal, WaitStatus, kill_process};
use rustix::time::{ClockId, clock_gettime};
use tokio::net::UnixStream;
use tokio::signal::unix::{SignalKind, signal};

use super::below;
use super::course::{Act, Course};
use super::place;
use super::starter;
use super::talk::{Ended, Order, Report, Talk, Unstarted};
use super::will::Will;
use super::{ADDR, RESOURCE, TOKEN};

/// The word by which the binary knows that it is a minder.
pub const WORD: &str = "__mind";

/// Timers stop while the machine sleeps and the boot clock does not: it is looked at this often.
pub const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long a server may take to take back what a dead wrapper held.
const PATIENCE: Duration = Duration::from_secs(10);

/// `WORD DIRECTORY GROUP COMMAND…`
pub fn main(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let (Some(directory), Some(group)) = (args.next(), args.next()) else {
        return ExitCode::FAILURE;
    };
    let Some(group) = group.to_str().and_then(|text| text.parse().ok()) else {
        return ExitCode::FAILURE;
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let minded = runtime.and_then(|runtime| runtime.block_on(mind(Path::new(&directory), group, args.collect())));
    if minded.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn mind(directory: &Path, group: i32, command: Vec<OsString>) -> io::Result<()> {
    below::gather()?;
    let (mut children, mut asked) = (signal(SignalKind::child())?, signal(SignalKind::terminate())?);
    let Ok(socket) = UnixStream::connect(place::control(directory)).await else {
        place::remove(directory);
        return Ok(());
    };
    let mut talk = Talk::over(socket);
    let mut will = None;
    let (env, until) = loop {
        match talk.hear().await {
            Some(Order::Start { env, until }) => break (env, until),
            Some(Order::Session(session)) => will = Some(session),
            Some(Order::Leave) => return Ok(()),
            Some(_) => {}
            None => {
                place::remove(directory);
                take_back(will).await;
                return Ok(());
            }
        }
    };
    let mut course = Course::new(until);
    if course.act(now()) == Act::Kill {
        // Its time was over before it began: a wrapper that stood still in between does not know.
        let ended = Ended::Signal(Signal::KILL.as_raw());
        return minded_nothing(&mut talk, directory, &env, Report::Over { ended, stopped: true, beyond: Vec::new() })
            .await;
    }
    let started = Command::new("/proc/self/exe")
        .arg0("leasehold")
        .arg(starter::WORD)
        .arg(std::process::id().to_string())
        .arg(directory)
        .args(command)
        .envs(env.iter().map(|(name, value)| (name, value)))
        .process_group(group)
        .spawn();
    let child = match started {
        Ok(child) => Pid::from_child(&child),
        Err(error) => {
            let why = format!("the command cannot be started: {error}");
            let report = Report::NotStarted(Unstarted { exit: starter::NOT_RUN, why });
            return minded_nothing(&mut talk, directory, &env, report).await;
        }
    };
    let mut minded = Minded { child, ended: None, course };
    let gone = loop {
        minded.look();
        if minded.ended.is_some() {
            break false;
        }
        tokio::select! {
            order = talk.hear() => match order {
                Some(order) => minded.take(order),
                None => break true,
            },
            _ = children.recv() => {}
            // Nobody sends this but to be rid of the command.
            _ = asked.recv() => minded.course.stop(now(), 0),
            () = tokio::time::sleep(minded.pause()) => {}
        }
    };
    let stopped = gone || minded.course.stopping();
    let beyond = minded.end();
    let ended = minded.ended.unwrap_or(Ended::Signal(Signal::KILL.as_raw()));
    let reached = beyond.is_empty();
    let report = match starter::unstarted(directory) {
        Some(unstarted) => Report::NotStarted(unstarted),
        None => Report::Over { ended, stopped, beyond },
    };
    let gone = gone || talk.say(&report).await.is_err() || !told_to_leave(&mut talk).await;
    if gone {
        place::remove(directory);
    }
    if gone && reached {
        give_back(&env).await;
    }
    Ok(())
}

/// Reports of a command that there never was, and waits until the wrapper has given the lease back.
async fn minded_nothing(talk: &mut Talk, directory: &Path, env: &[(String, String)], report: Report) -> io::Result<()> {
    if talk.say(&report).await.is_err() || !told_to_leave(talk).await {
        place::remove(directory);
        give_back(env).await;
    }
    Ok(())
}

/// Waits until the wrapper has given the lease back; false if it died before.
async fn told_to_leave(talk: &mut Talk) -> bool {
    loop {
        match talk.hear().await {
            Some(Order::Leave) => return true,
            Some(_) => {}
            None => return false,
        }
    }
}

/// Gives back what a dead wrapper holds, so that nobody waits for its ttl. Whoever cannot be reached finds out by the ttl.
async fn give_back(env: &[(String, String)]) {
    let token = env.iter().find(|(name, _)| name == TOKEN).and_then(|(_, token)| token.parse().ok());
    if let (Some(token), Some(endpoints), Ok(resource)) = (token, endpoints(), std::env::var(RESOURCE)) {
        let held = Held::of(&resource, token);
        let _ = tokio::time::timeout(PATIENCE, Client::connect(endpoints).release(&held)).await;
    }
}

/// Takes back what a wrapper waits for that died before it had a command: it would be granted to nobody.
async fn take_back(will: Option<Will>) {
    if let (Some(will), Some(endpoints)) = (will, endpoints()) {
        will.carry_out(endpoints, PATIENCE).await;
    }
}

/// The servers of the wrapper.
fn endpoints() -> Option<Endpoints> {
    std::env::var(ADDR).ok().and_then(|addr| Endpoints::parse(&addr).ok())
}

/// A command under way.
struct Minded {
    child: Pid,
    ended: Option<Ended>,
    course: Course,
}

impl Minded {
    fn take(&mut self, order: Order) {
        match order {
            Order::Until(until) => self.course.renewed(until),
            Order::Stop { within } => self.course.stop(now(), within),
            Order::Pass(number) => {
                if let Some(signal) = Signal::from_named_raw(number) {
                    // It may have ended meanwhile, and will be taken in next.
                    let _ = kill_process(self.child, signal);
                }
            }
            // There is one command for each minder, minded until it is dead; its lease is then given back by its token.
            Order::Start { .. } | Order::Session(_) | Order::Leave => {}
        }
    }

    /// Takes in who ended, and does what is due.
    fn look(&mut self) {
        self.reap();
        match self.course.act(now()) {
            Act::Wait => {}
            Act::Ask => drop(below::signal(Signal::TERM)),
            Act::Kill => {
                self.end();
                // One that cannot be killed is told of at the end, and counts as killed.
                self.ended.get_or_insert(Ended::Signal(Signal::KILL.as_raw()));
            }
        }
    }

    fn reap(&mut self) {
        let (child, ended) = (self.child, &mut self.ended);
        below::reap(|pid, status| note(child, ended, pid, status));
    }

    /// Ends whatever is left. Nobody who was below outlives the command.
    fn end(&mut self) -> Vec<i32> {
        let (child, ended) = (self.child, &mut self.ended);
        below::end(|pid, status| note(child, ended, pid, status))
    }

    fn pause(&self) -> Duration {
        let left = self.course.next().map_or(LOOK_EVERY, |at| Duration::from_nanos(at.saturating_sub(now())));
        left.min(LOOK_EVERY)
    }
}

fn note(child: Pid, ended: &mut Option<Ended>, pid: Pid, status: WaitStatus) {
    if pid == child {
        let code = status.exit_status().map(|code| Ended::Code(u8::try_from(code).unwrap_or(u8::MAX)));
        *ended = code.or(status.terminating_signal().map(Ended::Signal)).or(*ended);
    }
}

/// The boot clock goes on while the machine sleeps.
pub fn now() -> u64 {
    let read = clock_gettime(ClockId::Boottime);
    u64::try_from(read.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(read.tv_nsec).unwrap_or(0)
}
