//! One hold and the command that runs under it: renewals move its deadline, and a loss ends it.

use leasehold::{Guard, Loss, Sight, State};

use super::mind::Minder;
use super::minder::now;
use super::notice::Notices;
use super::shape::{OnLost, Times};
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
    pub async fn run(self, mut minder: Minder) -> Over {
        let env = [
            ("LEASEHOLD_TOKEN", self.guard.token()),
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
                        self.follow(&minder, &sight, &mut over).await;
                    }
                }
                came = self.signals.next() => self.pass(&minder, came, &mut over).await,
                progress = self.notices.progress() => match progress {
                    Ok(progress) => self.guard.progress(progress),
                    Err(wrong) => complain(&format!("leasehold: notice: {wrong}")),
                },
            }
        };
        let left = minder.leave();
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

    fn judge(&self, report: Option<Report>, left: Vec<i32>, over: &Told) -> Over {
        let (ended, stopped, mut beyond) = match report {
            Some(Report::Over { ended, stopped, beyond }) => (ended, stopped, beyond),
            Some(Report::NotStarted(why)) => return Over::Failed(format!("the command cannot be started: {why}")),
            None => return Over::Failed("the command's minder was killed; the command was ended".to_owned()),
        };
        beyond.extend(left);
        if !beyond.is_empty() {
            let pids = beyond.iter().map(i32::to_string).collect::<Vec<_>>().join(", ");
            complain(&format!("leasehold: process {pids} may not be ended by this user; only fences stop its writes"));
        }
        match (self.guard.state(), over.resigned) {
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
        let end = deadline.earliest.0;
        let hard = end.saturating_sub(self.margin);
        match self.on_lost {
            OnLost::Warn => None,
            OnLost::Kill => Some(Until { soft: None, hard }),
            // A charter's drain period can make a renewal shorter than the ttl: half of it is for renewing.
            OnLost::Term => {
                let grace = self.grace.min(end.saturating_sub(now) / 2);
                Some(Until { soft: Some(hard.saturating_sub(grace)), hard })
            }
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
