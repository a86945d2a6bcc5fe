//! The fence in etcd, for those who keep state there: its mark is a key, and a write is a transaction that compares it.
//!
//! ```no_run
//! # async fn example(cluster: leasehold_core::token::Cluster, token: &str) -> Result<(), Box<dyn std::error::Error>> {
//! # use leasehold_core::name::Name;
//! use leasehold_fence::etcd::{Change, Fence};
//!
//! let etcd = tonic::transport::Endpoint::from_static("http://127.0.0.1:2379").connect_lazy();
//! let fence = Fence::new(etcd, cluster, Name::parse("jobs/settle")?, 0);
//! fence.arm().await?; // once for the resource
//!
//! fence.claim(token).await?; // a new holder's first act, before it reads
//! fence.write(token, &[Change::put("paid/7", "1200")]).await?;
//! # Ok(())
//! # }
//! ```

mod change;
mod kv;
mod operator;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use leasehold_core::name::Name;
use leasehold_core::token::{Cluster, Number};
use tonic::transport::Channel;

use crate::fixed::MarkText;
use crate::observer::Watch;
use crate::place::{Passed, Place, Shown};
use crate::{Act, Counters, Error, Lost, Observer, Once, Refusal};
pub use change::Change;
use kv::{Kv, Seen};
pub use operator::survey;

/// How long a claim or a write goes on while others change the mark, unless told otherwise.
const PATIENCE: Duration = Duration::from_secs(5);

/// Below which keys marks lie, unless told otherwise.
const PREFIX: &str = "leasehold/";

/// The fence of one resource's slot in an etcd cluster.
#[derive(Clone, Debug)]
pub struct Fence {
    place: Place,
    kv: Kv,
    prefix: String,
    patience: Duration,
    /// The mark as it was last seen: a guess, which every transaction compares before it changes anything.
    known: Arc<Mutex<Option<Seen>>>,
    watch: Watch,
}

impl Fence {
    /// Guards what is written under this resource's slot; slot 0 under an exclusive lease.
    pub fn new(etcd: Channel, cluster: Cluster, resource: Name<'_>, slot: u32) -> Self {
        let place = Place::new(cluster, resource, slot);
        let (kv, prefix) = (Kv::new(etcd), PREFIX.to_owned());
        Self { place, kv, prefix, patience: PATIENCE, known: Arc::default(), watch: Watch::default() }
    }

    /// Below which keys the mark lies: `leasehold/` unless set. Everybody who guards the same data must say the same.
    pub fn under(mut self, prefix: &str) -> Self {
        prefix.clone_into(&mut self.prefix);
        self
    }

    /// How long a claim or a write may go on while others change the mark (F8); 5 s unless set.
    pub const fn patience(mut self, bound: Duration) -> Self {
        self.patience = bound;
        self
    }

    /// Who is told every answer.
    pub fn observed_by(mut self, observer: Arc<dyn Observer>) -> Self {
        self.watch.observer = Some(observer);
        self
    }

    /// What this fence and its clones answered.
    pub fn counters(&self) -> &Counters {
        &self.watch.counters
    }

    /// The key of the mark.
    pub fn key(&self) -> String {
        format!("{}{}/{:08x}", self.prefix, self.place.resource(), self.place.guarded.slot)
    }

    /// A new holder's first act, before it reads: raises the mark, durable when this returns.
    pub async fn claim(&self, token: &str) -> Result<Number, Error> {
        let answer = self.run(token, None, &[]).await;
        self.tell(Act::Claim, &answer);
        Ok(answer?.0.number)
    }

    /// Makes these changes behind the fence, in one transaction: all of them, if the mark is as it was checked.
    pub async fn write(&self, token: &str, changes: &[Change]) -> Result<Number, Error> {
        let answer = self.run(token, None, changes).await;
        self.tell(Act::Write, &answer);
        Ok(answer?.0.number)
    }

    /// The same, and applied once however often it is asked under this sequence. Number the writes of a hold upwards, and
    /// have each one answered before the next.
    pub async fn write_once(&self, token: &str, sequence: u64, changes: &[Change]) -> Result<Once, Error> {
        let answer = self.run(token, Some(sequence), changes).await;
        self.tell(Act::Write, &answer);
        Ok(answer?.1)
    }

    async fn run(&self, token: &str, sequence: Option<u64>, changes: &[Change]) -> Result<(Passed, Once), Error> {
        let shown = self.place.read(token)?;
        if changes.iter().any(|change| change.touches(&self.key())) {
            return Err(Error::Misplaced("a change names the mark itself, which only the fence writes"));
        }
        let began = Instant::now();
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // What is only remembered may let in, because the transaction compares it, but never refuses.
        let mut seen = match known.filter(|seen| self.pass(seen, shown, sequence).is_ok()) {
            Some(seen) => seen,
            None => self.kv.read(&self.key()).await?,
        };
        loop {
            let (mark, passed, once) = self.pass(&seen, shown, sequence)?;
            if matches!(once, Once::AlreadyApplied { .. }) {
                // That it was applied is a fact only if the mark still stands.
                seen = match self.kv.change(&self.key(), &seen, None, &[]).await? {
                    Ok(_) => return Ok((passed, once)),
                    Err(now) => now,
                };
            } else {
                let raised = mark.raised(shown, sequence).to_string();
                seen = match self.kv.change(&self.key(), &seen, Some(raised), changes).await? {
                    Ok(now) => {
                        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
                        return Ok((passed, once));
                    }
                    Err(now) => now,
                };
            }
            if began.elapsed() > self.patience {
                self.pass(&seen, shown, sequence)?;
                return Err(Error::Blocked { waited: began.elapsed(), by: Vec::new() });
            }
        }
    }

    /// Asks the rule about a mark as it was seen.
    fn pass(&self, seen: &Seen, shown: Shown, sequence: Option<u64>) -> Result<(MarkText, Passed, Once), Error> {
        let mark = seen.mark()?;
        let (passed, once) = shown.pass(&mark.standing(&self.place, &seen.home)?, sequence)?;
        Ok((mark, passed, once))
    }

    fn tell(&self, act: Act, answer: &Result<(Passed, Once), Error>) {
        let answer = answer.as_ref().map(|(passed, _)| passed);
        self.watch.told(&self.place.name, self.place.guarded.slot, act, answer);
    }
}

impl Seen {
    fn mark(&self) -> Result<MarkText, Error> {
        let Some(text) = &self.text else { return Err(Refusal::Lost(Lost::Missing).into()) };
        MarkText::parse(text).ok_or(Error::Refused(Refusal::Lost(Lost::Unreadable)))
    }
}
