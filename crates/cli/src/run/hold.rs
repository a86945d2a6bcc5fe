//! One hold and the command that runs under it: renewals move its deadline, and a loss ends it.

use std::time::Duration;

use futures::FutureExt;
use leasehold::{Guard, Loss, Sight, State};
use rustix::process::Signal;

use super::TOKEN;
use super::course::{Act, Course};
use super::mind::Minder;
use super::minder::{LOOK_EVERY, now};
use super::notice::Notices;
use super::shape::{MARGIN, OnLost, Times};
use super::signals::{Came, Signals};
use super::talk::{Ended, Order, Report, Unstarted, Until};
use super::voice::Voice;

/// How a hold was used up.
#[derive(Debug)]
pub enum Over {
    /// The command ended by itself, or by somebody else's hand.
    Ended(Ended),
    /// The lease was lost, by the grantor's word or by the holder's own clock.
    Lost(Option<Loss>),
    /// A signal asked this holder to resign.
    Resigned(Came),
    /// The command was never there.
    Unstarted(Unstarted),
    /// Its minder died; all that was there is dead.
    Failed(String),
}

/// A hold that is over, and the lease still there to be given back.
pub struct Finished {
    pub over: Over,
    /// Processes that live and may not be ended by this user.
    pub beyond: Vec<i32>,
}

/// What a command's time depends on.
pub struct Holding<'a> {
    pub guard: &'a Guard,
    pub signals: &'a mut Signals,
    pub notices: &'a Notices,
    pub voice: &'a Voice,
    pub times: Times,
    /// Whether a polite signal ends the hold, or is only passed on.
    pub resigns: bool,
}

impl Holding<'_> {
    /// Runs the command until nothing of it is left, but for those told.
    pub async fn run(self, minder: &mut Minder) -> Finished {
        let env = [
            (TOKEN, self.guard.token()),
            ("LEASEHOLD_TOKEN_NUMBER", self.guard.token_number().get().to_string()),
            ("LEASEHOLD_LEASE", self.guard.lease().to_string()),
        ];
        let env = env.map(|(name, value)| (name.to_owned(), value)).to_vec();
        let deadline = self.guard.deadline();
        let until = self.times.until(now(), deadline);
        let mut told = Told::new(until.map(|until| until.at_last(deadline)));
        minder.order(&Order::Start { env, until });
        let mut watching = self.guard.watch();
        let report = loop {
            tokio::select! {
                // A report that is there comes first: then the minder was in time.
                biased;
                report = minder.report() => break report,
                came = self.signals.next() => self.pass(minder, came, &mut told),
                sight = watching.next(), if !told.lost => {
                    if let Some(sight) = sight {
                        self.follow(minder, &sight, &mut told);
                    }
                }
                progress = self.notices.progress() => match progress {
                    Ok(progress) => self.guard.progress(progress),
                    Err(wrong) => self.voice.say(format!("leasehold: notice: {wrong}")),
                },
                () = tokio::time::sleep(told.pause()) => {}
            }
            if told.last.act(now()) == Act::Kill {
                // Whoever wakes up late finds the report of a minder that was in time, once the sockets were looked at.
                tokio::task::yield_now().await;
                if let Some(report) = minder.report().now_or_never() {
                    break report;
                }
                told.overdue = true;
                break None;
            }
        };
        let left = if report.is_none() { minder.replace() } else { Vec::new() };
        self.judge(report, left, &told)
    }

    /// What a renewal or a change means for the command.
    fn follow(&self, minder: &mut Minder, sight: &Sight, told: &mut Told) {
        let resource = self.guard.resource();
        match sight.state {
            State::Held => {
                if let Some(until) = self.times.until(now(), sight.deadline) {
                    told.last.renewed(until.at_last(sight.deadline));
                    minder.order(&Order::Until(until));
                }
                told.suspended = false;
            }
            State::Suspended if self.times.on_lost == OnLost::Warn && !told.suspended => {
                told.suspended = true;
                self.voice.say(format!(
                    "leasehold: {resource}: not renewed in time; only fences stop the command's writes now"
                ));
            }
            // The minder has looked at its own clock.
            State::Suspended => {}
            State::Lost(loss) => {
                told.lost = true;
                if self.times.on_lost == OnLost::Warn {
                    self.voice.say(format!("leasehold: {resource}: {loss}; only fences stop the command's writes now"));
                }
            }
        }
        // Who drains is to be done before its deadline; who lost should be already.
        if (sight.draining.is_some() || told.lost) && !told.stopped {
            told.stopped = true;
            if let Some(within) = self.times.within(told.lost) {
                self.stop(minder, within, told);
            }
        }
    }

    fn pass(&self, minder: &mut Minder, came: Came, told: &mut Told) {
        if self.resigns && came.resigns() {
            told.resigned.get_or_insert(came);
            self.stop(minder, self.times.grace, told);
        } else if !came.typed() {
            minder.order(&Order::Pass(came.number()));
        }
    }

    fn stop(&self, minder: &mut Minder, within: u64, told: &mut Told) {
        told.last.stop(now(), within.saturating_add(self.times.ttl / MARGIN / 2));
        minder.order(&Order::Stop { within });
    }

    fn judge(&self, report: Option<Report>, left: Vec<i32>, told: &Told) -> Finished {
        let killed = Ended::Signal(Signal::KILL.as_raw());
        let (beyond, over) = match report {
            Some(Report::Over { ended, stopped, beyond }) => (beyond, self.verdict(ended, stopped, told)),
            Some(Report::NotStarted(unstarted)) => (left, Over::Unstarted(unstarted)),
            None if told.overdue => {
                let words = "the command's minder stands still; the command was ended by its wrapper";
                self.voice.say(format!("leasehold: {}: {words}", self.guard.resource()));
                (left, self.verdict(killed, true, told))
            }
            None => (left, Over::Failed("the command's minder was killed; the command was ended".to_owned())),
        };
        Finished { over, beyond }
    }

    fn verdict(&self, ended: Ended, stopped: bool, told: &Told) -> Over {
        match (self.guard.state(), told.resigned) {
            (State::Lost(loss), _) => Over::Lost(Some(loss)),
            (_, Some(came)) => Over::Resigned(came),
            _ if stopped => Over::Lost(None),
            _ => Over::Ended(ended),
        }
    }
}

/// What was said already, and when the wrapper waits for its minder no longer.
struct Told {
    lost: bool,
    stopped: bool,
    suspended: bool,
    resigned: Option<Came>,
    overdue: bool,
    last: Course,
}

impl Told {
    const fn new(last: Option<Until>) -> Self {
        let last = Course::new(last);
        Self { lost: false, stopped: false, suspended: false, resigned: None, overdue: false, last }
    }

    fn pause(&self) -> Duration {
        let left = self.last.next().map_or(LOOK_EVERY, |at| Duration::from_nanos(at.saturating_sub(now())));
        left.min(LOOK_EVERY)
    }
}

impl Until {
    /// When the wrapper ends what its minder should have ended: between the command's end and the lease's.
    const fn at_last(self, deadline: leasehold::Deadline) -> Self {
        let late = deadline.earliest.0.saturating_sub(self.hard) / 2;
        Self { soft: None, hard: self.hard.saturating_add(late) }
    }
}

impl Times {
    /// The command's time by a deadline; none where it may outlive its lease.
    fn until(&self, now: u64, deadline: leasehold::Deadline) -> Option<Until> {
        let (end, left) = (deadline.earliest.0, deadline.earliest.0.saturating_sub(now));
        let hard = end.saturating_sub(left.min(self.ttl) / MARGIN);
        // A charter's drain period can make a renewal last for less than the ttl. It is then renewed after a third of that,
        // and the command is asked after two.
        let most = if left < self.ttl / 10 * 9 { left / 3 } else { left / 2 };
        match self.on_lost {
            OnLost::Warn => None,
            OnLost::Kill => Some(Until { soft: None, hard }),
            OnLost::Term => Some(Until { soft: Some(hard.saturating_sub(self.grace.min(most))), hard }),
        }
    }

    /// How soon a command is killed that must end now; none if it need not, or ends by its deadline.
    const fn within(&self, lost: bool) -> Option<u64> {
        match (self.on_lost, lost) {
            (OnLost::Warn, _) | (OnLost::Kill, false) => None,
            (OnLost::Kill, true) => Some(0),
            (OnLost::Term, true) => Some(self.grace),
            // While it drains its deadline comes first.
            (OnLost::Term, false) => Some(u64::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use leasehold::Deadline;
    use leasehold_core::time::Instant;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn until(on_lost: OnLost, left: u64) -> Option<Until> {
        let times = Times { on_lost, ttl: 10 * SECOND, grace: 5 * SECOND };
        let end = Instant((100 + left) * SECOND);
        times.until(100 * SECOND, Deadline { earliest: end, latest: end })
    }

    #[test]
    fn a_command_is_asked_a_grace_before_it_is_killed_and_killed_before_the_deadline() {
        let told = until(OnLost::Term, 10).expect("it has an end");
        assert_eq!((told.soft, told.hard), (Some(104 * SECOND + SECOND / 2), 109 * SECOND + SECOND / 2));
        assert_eq!(until(OnLost::Kill, 10).map(|told| (told.soft, told.hard)), Some((None, told.hard)));
        assert_eq!(until(OnLost::Warn, 10), None);
    }

    #[test]
    fn a_wrapper_waits_for_its_minder_until_half_of_what_is_kept_for_killing_is_over() {
        let end = Instant(110 * SECOND);
        let last = until(OnLost::Term, 10).expect("it has an end").at_last(Deadline { earliest: end, latest: end });
        assert_eq!((last.soft, last.hard), (None, 109 * SECOND + 3 * SECOND / 4));
    }

    #[test]
    fn what_lasts_for_less_than_the_ttl_leaves_most_of_it_for_the_work() {
        let told = until(OnLost::Term, 6).expect("it has an end");
        assert_eq!((told.soft, told.hard), (Some(103 * SECOND + 7 * SECOND / 10), 105 * SECOND + 7 * SECOND / 10));
        assert_eq!(until(OnLost::Term, 0), Some(Until { soft: Some(100 * SECOND), hard: 100 * SECOND }));
    }
}
