//! The gate of one place: a request is inside until its outcome is known, and the mark is raised only over an empty place.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::token::Number;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::Bounds;
use super::marks::{Found, Look, Marks};
use super::standing::{Fate, Standing, Step, Store, Want};
use crate::place::{Place, Shown};
use crate::{Error, Lost, Mark, Refusal};

/// One guarded place: its mark, durable in a file, and who is inside.
#[derive(Debug)]
pub(super) struct Gate {
    pub(super) place: Place,
    pub(super) path: PathBuf,
    marks: Mutex<Marks>,
    standing: Mutex<Standing>,
    changed: Notify,
    patience: Duration,
    longest: Duration,
}

/// Why a request did not come in, where it is not the fence's plain no.
#[derive(Debug)]
pub(super) enum Denied {
    /// Refused, or the mark file failed.
    Fence(Error),
    /// Others were inside for longer than the bound, or an outcome is unknown. Nothing happened.
    Blocked {
        /// How many are inside.
        inside: usize,
        /// After this long it is worth another try.
        retry_after: Duration,
    },
    /// A late duplicate: it was applied before.
    AlreadyApplied {
        /// The last sequence of this hold.
        last: u64,
    },
    /// It was let through before, and nobody knows what became of it.
    Unknown,
}

impl<E: Into<Error>> From<E> for Denied {
    fn from(error: E) -> Self {
        Self::Fence(error.into())
    }
}

impl Gate {
    /// A gate over an open mark file. After a process that ended with requests on their way, nothing higher comes in until
    /// what was unknown then is over.
    pub(super) fn new(place: Place, path: PathBuf, mut marks: Marks, found: Found, bounds: &Bounds) -> Arc<Self> {
        let mut standing = Standing::new(bounds.longest, bounds.settle);
        let look = marks.look();
        // What is wrong with the file is told to whoever asks: it may be mended before.
        let _ = read(&mut standing, look, marks.mark());
        if !found.settled {
            standing.is_unknown(Instant::now());
        }
        if let Some((number, sequence, applied)) = found.sequence {
            standing.remembers(number, sequence, if applied { Fate::Applied } else { Fate::Unknown });
        }
        let (marks, standing) = (Mutex::new(marks), Mutex::new(standing));
        Arc::new(Self {
            place,
            path,
            marks,
            standing,
            changed: Notify::new(),
            patience: bounds.patience,
            longest: bounds.longest,
        })
    }

    /// Raises the mark over an empty place, durable when this returns.
    pub(super) async fn claim(self: &Arc<Self>, token: &str, shown: Shown) -> Result<(), Denied> {
        self.admit(token, shown, Want::Claim).await?;
        Ok(())
    }

    /// Lets a request in, and keeps lower ones and raising ones apart until what is returned is dropped.
    pub(super) async fn enter(
        self: &Arc<Self>,
        token: &str,
        shown: Shown,
        sequence: Option<u64>,
    ) -> Result<Inside, Denied> {
        let inside = self.admit(token, shown, Want::Write { sequence }).await?;
        Ok(inside.expect("only a claim ends without being inside"))
    }

    async fn admit(self: &Arc<Self>, token: &str, shown: Shown, want: Want) -> Result<Option<Inside>, Denied> {
        let deadline = Instant::now() + self.patience;
        let mut waits = Waits { gate: self, id: None };
        let mut listening = None;
        loop {
            let seen = Look::at(&self.path);
            let step = self.standing().ask(seen, Instant::now(), shown, want, &mut waits.id);
            match step {
                Step::Inside(id) => {
                    return Ok(Some(Inside::new(self, id, shown.number, want.sequence())));
                }
                Step::Claimed => return Ok(None),
                Step::No(refusal) => return Err(refusal.into()),
                Step::AlreadyApplied { last } => return Err(Denied::AlreadyApplied { last }),
                Step::Unknown => return Err(Denied::Unknown),
                Step::Store(what) => {
                    if let Some(inside) = self.store(what, token.to_owned(), shown).await? {
                        return Ok(Some(inside));
                    }
                }
                Step::Wait(until) => {
                    // Listens before it asks once more, so that nobody leaves unheard in between.
                    let Some(heard) = listening.take() else {
                        let mut heard = Box::pin(self.changed.notified());
                        heard.as_mut().enable();
                        listening = Some(heard);
                        continue;
                    };
                    let next = until.map_or(deadline, |until| until.min(deadline));
                    if timeout_at(next, heard).await.is_err() && Instant::now() >= deadline {
                        return Err(self.blocked());
                    }
                }
            }
        }
    }

    /// Has the mark file do something, to its end also if whoever asked goes away.
    async fn store(self: &Arc<Self>, what: Store, token: String, shown: Shown) -> Result<Option<Inside>, Error> {
        let gate = self.clone();
        let stored = tokio::task::spawn_blocking(move || gate.stored(what, &token, shown)).await;
        stored.map_err(|error| Error::Storage(Box::new(error)))?
    }

    fn stored(self: &Arc<Self>, what: Store, token: &str, shown: Shown) -> Result<Option<Inside>, Error> {
        let mut marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        let done = match what {
            Store::Read => Ok(()),
            Store::Raise => marks.raise(token).map(drop),
            Store::Begin => marks.begin(token),
            Store::Pass(sequence) => marks.pass(token, sequence),
        };
        // The look comes first: what is written behind it is seen by the next who looks.
        let look = marks.look();
        let mark = marks.mark();
        drop(marks);
        let mut standing = self.standing();
        standing.busy = false;
        standing.begun |= done.is_ok() && what == Store::Begin;
        let read = read(&mut standing, look, mark);
        match what {
            Store::Read => standing.followed = None,
            Store::Raise if done.is_ok() => standing.followed = Some(shown.incarnation),
            _ => {}
        }
        let mut inside = None;
        if let (Ok(()), Store::Pass(sequence)) = (&done, what) {
            let id = standing.passed(Instant::now(), shown.number, sequence);
            inside = Some(Inside::new(self, id, shown.number, Some(sequence)));
        }
        drop(standing);
        self.changed.notify_waiters();
        done.and(read)?;
        Ok(inside)
    }

    fn remember(&self, token: &str, sequence: u64) {
        let mut marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = marks.applied(token, sequence);
        let look = marks.look();
        let mark = marks.mark();
        drop(marks);
        let mut standing = self.standing();
        if !standing.busy {
            let _ = read(&mut standing, look, mark);
        }
    }

    /// How many are inside, for how long an outcome is still unknown, and the mark.
    pub(super) fn crowd(&self) -> (usize, Duration, Mark) {
        let standing = self.standing();
        let (inside, unknown) = standing.crowd(Instant::now());
        (inside, unknown, standing.mark)
    }

    /// The process ends: if every outcome is known the file says so, and the next one need not wait. Whether it does.
    pub(super) fn settle(&self) -> Result<bool, Error> {
        let (inside, unknown, _) = self.crowd();
        if inside > 0 || !unknown.is_zero() {
            return Ok(false);
        }
        self.marks.lock().unwrap_or_else(PoisonError::into_inner).settle()?;
        self.standing().begun = false;
        Ok(true)
    }

    fn blocked(&self) -> Denied {
        let (inside, unknown, _) = self.crowd();
        Denied::Blocked { inside, retry_after: unknown.max(Duration::from_millis(100)) }
    }

    fn standing(&self) -> MutexGuard<'_, Standing> {
        // Its steps do not panic halfway: what a panicking thread leaves is whole.
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the file says about the mark. One that cannot be read refuses (F7), and is read again at the next asking.
fn read(standing: &mut Standing, look: Look, mark: Result<Mark, Error>) -> Result<(), Error> {
    (standing.mark, standing.lost, standing.look) = match mark {
        Ok(mark) => (mark, Lost::Unreadable, look),
        Err(Error::Refused(Refusal::Lost(how))) => (Mark::Lost, how, look),
        Err(error) => {
            (standing.mark, standing.lost, standing.look) = (Mark::Lost, Lost::Unreadable, Look::NOTHING);
            return Err(error);
        }
    };
    Ok(())
}

/// One who may wait to raise the mark, and does no longer when this is dropped.
struct Waits<'a> {
    gate: &'a Gate,
    id: Option<u64>,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.gate.standing().gives_up(id);
            self.gate.changed.notify_waiters();
        }
    }
}

/// A request that is inside. As long as nothing was passed on, it can leave without a trace; after that its outcome is
/// unknown unless somebody says what it is.
#[derive(Debug)]
pub(super) struct Inside {
    gate: Arc<Gate>,
    id: u64,
    pub(super) shown: Number,
    sequence: Option<(Number, u64)>,
    fate: Mutex<Fate>,
    pub(super) until: Instant,
}

impl Inside {
    fn new(gate: &Arc<Gate>, id: u64, shown: Number, sequence: Option<u64>) -> Self {
        let sequence = sequence.map(|sequence| (shown, sequence));
        let until = Instant::now() + gate.longest;
        Self { gate: gate.clone(), id, shown, sequence, fate: Mutex::new(Fate::NotApplied), until }
    }

    /// Remembers, durably, that it was applied, if it carries a sequence. If that fails, nobody knows it after a crash.
    pub(super) async fn remembered(&self, token: &str) {
        let Some((_, sequence)) = self.sequence else { return };
        let (gate, token) = (self.gate.clone(), token.to_owned());
        let noted = tokio::task::spawn_blocking(move || gate.remember(&token, sequence));
        let _ = noted.await;
    }

    /// What is known of it now.
    pub(super) fn is(&self, fate: Fate) {
        *self.fate.lock().unwrap_or_else(PoisonError::into_inner) = fate;
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let fate = *self.fate.lock().unwrap_or_else(PoisonError::into_inner);
        self.gate.standing().leaves(Instant::now(), self.id, fate, self.sequence);
        self.gate.changed.notify_waiters();
    }
}
