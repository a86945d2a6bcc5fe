//! Items of DynamoDB that refuse the zombie: the mark is an item, checked in the transaction that writes the others.
//!
//! A write is one `TransactWriteItems`: the mark's own update under the condition that is the rule, and the caller's puts,
//! updates and deletes in whatever tables. DynamoDB applies all of it or nothing. A claim is the mark's update alone.
//!
//! ```no_run
//! # async fn example(client: aws_sdk_dynamodb::Client, cluster: leasehold_core::token::Cluster, token: &str,
//! #     paid: aws_sdk_dynamodb::types::Put) -> Result<(), Box<dyn std::error::Error>> {
//! # use leasehold_core::name::Name;
//! use aws_sdk_dynamodb::types::TransactWriteItem;
//! use leasehold_fence::dynamodb::{Fence, install};
//!
//! install(&client, "leasehold_marks").await?; // once for the account and region
//! let fence = Fence::open(client, "leasehold_marks", cluster, Name::parse("jobs/settle")?, 0).await?;
//! fence.arm().await?; // once for the resource
//! fence.claim(token).await?; // a new holder's first act, before it reads (with consistent reads)
//! fence.write(token, [TransactWriteItem::builder().put(paid).build()]).await?;
//! # Ok(())
//! # }
//! ```

mod ask;
mod item;

use std::sync::Arc;
use std::time::{Duration, Instant};

pub use aws_sdk_dynamodb;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::TransactWriteItem;
use leasehold_core::name::Name;
use leasehold_core::token::{Cluster, Incarnation, Number};

use crate::nonce::nonce;
use crate::observer::Watch;
use crate::place::{Passed, Place, Shown};
use crate::state::State;
use crate::{Act, Counters, Error, Kept, Lost, Observer, Once, Refusal};
pub use ask::install;
use ask::{Marks, Outcome};

/// How long a write tries while other transactions are in its way, unless told otherwise.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long one sleeps between two tries.
const BETWEEN: Duration = Duration::from_millis(20);

/// A fence whose mark is an item of a table. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Fence {
    place: Place,
    marks: Marks,
    patience: Duration,
    watch: Watch,
}

impl Fence {
    /// A fence whose mark is kept in this table. Asks which table that is: one that was restored is another one.
    pub async fn open(
        client: Client,
        table: &str,
        cluster: Cluster,
        resource: Name<'_>,
        slot: u32,
    ) -> Result<Self, Error> {
        let place = Place::new(cluster, resource, slot);
        let marks = Marks::open(client, table).await?;
        Ok(Self { place, marks, patience: PATIENCE, watch: Watch::default() })
    }

    /// How long a claim or a write may try while others are in its way (F8); 30 s unless set.
    pub const fn patience(mut self, bound: Duration) -> Self {
        self.patience = bound;
        self
    }

    /// Who is told every answer.
    pub fn observed_by(mut self, observer: Arc<dyn Observer>) -> Self {
        self.watch.observer = Some(observer);
        self
    }

    /// What this fence answered.
    pub fn counters(&self) -> &Counters {
        &self.watch.counters
    }

    /// Makes the mark, armed as fresh: its first token sets it. One that is there already is left alone.
    pub async fn arm(&self) -> Result<(), Error> {
        if self.marks.create(&self.place, &State::FRESH, &nonce()?).await? {
            return Ok(());
        }
        Err(Error::Conflict("there is a mark for this resource and slot already; use it, or re-arm it"))
    }

    /// A new holder's first act, before it reads: raises the mark.
    pub async fn claim(&self, token: &str) -> Result<Number, Error> {
        self.step(Act::Claim, token, None, Vec::new()).await.map(|(passed, _)| passed.number)
    }

    /// Applies these writes and no others, or none of them: at most 99, each to another item, and none to the mark.
    pub async fn write(
        &self,
        token: &str,
        items: impl IntoIterator<Item = TransactWriteItem>,
    ) -> Result<Number, Error> {
        let items = items.into_iter().collect();
        self.step(Act::Write, token, None, items).await.map(|(passed, _)| passed.number)
    }

    /// The same, numbered inside the hold: a late duplicate changes nothing.
    pub async fn write_once(
        &self,
        token: &str,
        sequence: u64,
        items: impl IntoIterator<Item = TransactWriteItem>,
    ) -> Result<Once, Error> {
        let items = items.into_iter().collect();
        self.step(Act::Write, token, Some(sequence), items).await.map(|(_, once)| once)
    }

    /// The mark that is kept. What is lost is told as a refusal.
    pub async fn mark(&self) -> Result<Option<Number>, Error> {
        self.state().await?.0.mark()
    }

    /// From now on everything is refused until [`Fence::rearm`]: what is guarded was put back to what it was earlier.
    pub async fn declare_lost(&self) -> Result<(), Error> {
        self.operate(State::declare_lost).await
    }

    /// Arms a mark that was restored or declared lost, from a floor that no holder of before lies above. A floor below
    /// what was seen is refused.
    pub async fn rearm(&self, floor: Number) -> Result<(), Error> {
        self.operate(|state| state.rearm(floor)).await
    }

    /// From now on a token of an incarnation that it does not know is refused until it is adopted (T5).
    pub async fn make_strict(&self) -> Result<(), Error> {
        self.operate(State::make_strict).await
    }

    /// A strict fence follows this incarnation from now on.
    pub async fn adopt(&self, incarnation: Incarnation) -> Result<(), Error> {
        self.operate(|state| state.adopt(incarnation)).await
    }

    async fn state(&self) -> Result<(State, String), Error> {
        let item = self.marks.read(&self.place).await?.ok_or(Refusal::Lost(Lost::Missing))?;
        let nonce = item::nonce(&item).unwrap_or_default().to_owned();
        Ok((item::read(&item, self.marks.id())?, nonce))
    }

    async fn operate(&self, change: impl Fn(&mut State) -> Result<(), Error>) -> Result<(), Error> {
        let (own, began) = (nonce()?, Instant::now());
        loop {
            let (mut state, before) = self.state().await?;
            if before == own {
                return Ok(());
            }
            change(&mut state)?;
            if self.marks.replace(&self.place, &state, &before, &own).await? {
                return Ok(());
            }
            self.wait(began).await?;
        }
    }

    async fn step(
        &self,
        act: Act,
        token: &str,
        sequence: Option<u64>,
        items: Vec<TransactWriteItem>,
    ) -> Result<(Passed, Once), Error> {
        let answer = match self.place.read(token) {
            Ok(shown) => self.attempt(act, shown, sequence, items).await,
            Err(refusal) => Err(refusal.into()),
        };
        let told = answer.as_ref().map(|(passed, _)| passed);
        self.watch.told(&self.place.name, self.place.guarded.slot, act, told);
        answer
    }

    async fn attempt(
        &self,
        act: Act,
        shown: Shown,
        sequence: Option<u64>,
        items: Vec<TransactWriteItem>,
    ) -> Result<(Passed, Once), Error> {
        let (own, began) = (nonce()?, Instant::now());
        loop {
            let outcome = match act {
                Act::Claim => self.marks.claim(&self.place, shown, &own).await?,
                Act::Write => self.marks.write(&self.place, shown, sequence, &own, &items).await?,
            };
            match outcome {
                Outcome::Applied { left } => return Ok((Passed { number: shown.number, left }, Once::Applied)),
                // The server's condition is the rule. Why it did not hold is read, and the rule asked for its words.
                Outcome::Refused => {
                    let (state, _) = self.state().await?;
                    let (passed, once) = shown.pass(&state.standing(), sequence)?;
                    if let Once::AlreadyApplied { .. } = once {
                        return Ok((passed, once));
                    }
                }
                Outcome::Conflict => {}
                Outcome::Unknown(error) => {
                    if self.state().await?.1 == own {
                        return Ok((Passed { number: shown.number, left: None }, Once::Applied));
                    }
                    if began.elapsed() >= self.patience {
                        return Err(error);
                    }
                }
            }
            self.wait(began).await?;
        }
    }

    async fn wait(&self, began: Instant) -> Result<(), Error> {
        if began.elapsed() >= self.patience {
            return Err(Error::Blocked { waited: began.elapsed(), by: Vec::new() });
        }
        tokio::time::sleep(BETWEEN).await;
        Ok(())
    }
}

/// Every mark that a table keeps.
pub async fn survey(client: Client, table: &str) -> Result<Vec<Kept>, Error> {
    let marks = Marks::open(client, table).await?;
    marks.all().await?.iter().map(|item| item::kept(item, marks.id())).collect()
}
