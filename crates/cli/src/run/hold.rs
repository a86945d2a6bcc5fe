//! One hold and the command that runs under it: renewals move its deadline, and a loss ends it.

use leasehold::{Guard, Loss, Sight, State};

use super::TOKEN;
use super::mind::Minder;
use super::minder::now;
use super::notice::Notices;
use super::shape::{MARGIN, OnLost, Times};
use super::signals::{Came, Signals};
use super::talk::{Ended, Order, Report, Until};
use crate::told::complain;

/// How a hold was used up.
#[derive(Debug)]
pub enum Over {
    /// The command ended by itself, or by somebody else's hand.
    Ended(Ended),
    /// The lease was lost, by the grantor's word or by the holder's own clock.
    Lost(Option<Loss>),
    /// A signal asked this holder to resign.
    Resigned(Came),
    /// The command was never there, or its minder died; all that was there is dead.
    Failed(String),
}

/// What a command's time depends on.
pub struct Holding<'a> {
    pub guard: &'a Guard,
    pub signals: &'a mut Signals,
    pub notices: &'a Notices,
    pub times: Times,
    /// Whether a polite signal ends the hold, or is only passed on.
    pub resigns: bool,
}

impl Holding<'_> {
    /// Runs the command until nothing of it is left. The lease is still there to be given back.
    pub async fn run(self, minder: &mut Minder) -> Over {
        let env = [
            (TOKEN, self.guard.token()),
            ("LEASEHOLD_TOKEN_NUMBER", self.guard.token_number().get().to_string()),
            ("LEASEHOLD_LEASE", self.guard.lease().to_string()),
        ];
        let env = env.map(|(name, value)| (name.to_owned(), value)).to_vec();
        minder.order(&Order::Start { env, until: self.times.until(now(), self.guard.deadline()) }).await;
        let (mut watching, mut over) = (self.guard.watch(), Told::default());
        let report = loop {
            tokio::select! {
                report = minder.report() => break report,
                sight = watching.next(), if !over.lost => {
                    if let Some(sight) = sight {
                        self.follow(minder, &sight, &mut over).await;
                    }
                }
                came = self.signals.next() => self.pass(minder, came, &mut over).await,
                progress = self.notices.progress() => match progress {
                    Ok(progress) => self.guard.progress(progress),
                    Err(wrong) => complain(&format!("leasehold: notice: {wrong}")),
                },
            }
        };
        let left = if report.is_none() { minder.replace() } else { Vec::new() };
        self.judge(report, left, &over)
    }

    /// What a renewal or a change means for the command.
    async fn follow(&self, minder: &Minder, sight: &Sight, over: &mut Told) {
        let resource = self.guard.resource();
        match sight.state {
            State::Held => {
                if let Some(until) = self.times.until(now(), sight.deadline) {
                    minder.order(&Order::Until(until)).await;
                }
                over.suspended = false;
            }
            State::Suspended if self.times.on_lost == OnLost::Warn && !over.suspended => {
                over.suspended = true;
                complain(&format!(
                    "leasehold: {resource}: not renewed in time; only fences stop the command's writes now"
                ));
            }
            // The minder has looked at its own clock.
            State::Suspended => {}
            State::Lost(loss) => {
                over.lost = true;
                if self.times.on_lost == OnLost::Warn {
                    complain(&format!("leasehold: {resource}: {loss}; only fences stop the command's writes now"));
                }
            }
        }
        // Who drains is to be done before its deadline; who lost should be already.
        if (sight.draining.is_some() || over.lost) && !over.stopped {
            over.stopped = true;
            if let Some(within) = self.times.within(over.lost) {
                minder.order(&Order::Stop { within }).await;
            }
        }
    }

    async fn pass(&self, minder: &Minder, came: Came, over: &mut Told) {
        if self.resigns && came.resigns() {
            over.resigned.get_or_insert(came);
            minder.order(&Order::Stop { within: self.times.grace }).await;
        } else if !came.typed() {
            minder.order(&Order::Pass(came.number())).await;
        }
    }

    fn judge(&self, report: Option<Report>, left: Vec<i32>, told: &Told) -> Over {
        let (beyond, over) = match report {
            Some(Report::Over { ended, stopped, beyond }) => (beyond, self.verdict(ended, stopped, told)),
            Some(Report::NotStarted(why)) => (left, Over::Failed(format!("the command cannot be started: {why}"))),
            None => (left, Over::Failed("the command's minder was killed; the command was ended".to_owned())),
        };
        if !beyond.is_empty() {
            let pids = beyond.iter().map(i32::to_string).collect::<Vec<_>>().join(", ");
            complain(&format!("leasehold: process {pids} may not be ended by this user; only fences stop its writes"));
        }
        over
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

/// What was said already.
#[derive(Default)]
struct Told {
    lost: bool,
    stopped: bool,
    suspended: bool,
    resigned: Option<Came>,
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
    fn what_lasts_for_less_than_the_ttl_leaves_most_of_it_for_the_work() {
        let told = until(OnLost::Term, 6).expect("it has an end");
        assert_eq!((told.soft, told.hard), (Some(103 * SECOND + 7 * SECOND / 10), 105 * SECOND + 7 * SECOND / 10));
        assert_eq!(until(OnLost::Term, 0), Some(Until { soft: Some(100 * SECOND), hard: 100 * SECOND }));
    }
}
