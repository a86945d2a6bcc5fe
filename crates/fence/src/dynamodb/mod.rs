//! A fence for DynamoDB items. The mark is an item, checked in the same transaction as the writes.
//!
//! A write is one `TransactWriteItems` request: a conditional update of the mark, and the caller's puts, updates and deletes in
//! any tables. DynamoDB applies all of it or nothing. A claim is the update of the mark alone.
//!
//! ```no_run
//! # async fn example(client: aws_sdk_dynamodb::Client, cluster: leasehold_fence::Cluster, token: &str,
//! #     paid: aws_sdk_dynamodb::types::Put) -> Result<(), Box<dyn std::error::Error>> {
//! use aws_sdk_dynamodb::types::TransactWriteItem;
//! use leasehold_fence::FenceId;
//! use leasehold_fence::dynamodb::{Fence, install};
//!
//! install(&client, "leasehold_marks").await?; // once for the account and region
//! let id = FenceId::new(cluster, "jobs/settle")?;
//! let fence = Fence::open(client, "leasehold_marks", &id).await?;
//! fence.arm().await?; // once for the resource
//! fence.claim(token).await?; // before the first read (use consistent reads)
//! fence.write(token, [TransactWriteItem::builder().put(paid).build()]).await?;
//! # Ok(())
//! # }
//! ```

mod attempts;
mod failure;
mod item;
mod requests;
mod table;

use std::sync::Arc;
use std::time::Duration;

pub use aws_sdk_dynamodb;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::TransactWriteItem;
use leasehold_core::token::{Incarnation, Number};

use crate::admission::{Admission, PresentedToken};
use crate::mark_state::MarkState;
use crate::nonce::nonce;
use crate::observer::EventSink;
use crate::seal_verifier::SealCheck;
use crate::{ApplyOnce, Counters, Error, FenceId, FenceRefusal, MarkInfo, MarkLoss, Observer, Operation, SealVerifier};
use attempts::Attempts;
use failure::Failure;
use item::Item;
use requests::MarkTable;
pub use table::install;

/// Default of [`Fence::with_claim_timeout`].
const CLAIM_TIMEOUT: Duration = Duration::from_secs(30);
/// How long opening a fence retries.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);
/// A transaction has at most 100 items, and one of them is the mark.
const MAX_ITEMS: usize = 99;

/// A fence whose mark is an item of a table. Clones are cheap.
#[derive(Clone, Debug)]
pub struct Fence {
    id: FenceId,
    seals: SealCheck,
    table: MarkTable,
    claim_timeout: Duration,
    events: EventSink,
}

impl Fence {
    /// Opens a fence whose mark is in this table. It reads the id of the table, because a restored table is another one. The
    /// fence makes its own retries, with a limit for each request, and ignores those of the client.
    pub async fn open(client: Client, table: &str, id: &FenceId) -> Result<Self, Error> {
        let marks = Attempts::new(OPEN_TIMEOUT).read(|| MarkTable::open(&client, table)).await?;
        let (seals, events) = (SealCheck::default(), EventSink::default());
        Ok(Self { id: id.clone(), seals, table: marks, claim_timeout: CLAIM_TIMEOUT, events })
    }

    /// How long a call retries while other transactions interfere, the table has no capacity, or DynamoDB does not reply (F8).
    /// Default: 30 s.
    pub const fn with_claim_timeout(mut self, timeout: Duration) -> Self {
        self.claim_timeout = timeout;
        self
    }

    /// Verifies the seal of every token with these keys; tokens that none of them signed are refused (A8).
    pub fn with_seal_verifier(mut self, verifier: &SealVerifier) -> Self {
        self.seals = SealCheck::new(verifier);
        self
    }

    /// Sets the observer that receives every decision.
    pub fn with_observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.events.observer = Some(observer);
        self
    }

    /// Counters of the decisions of this fence.
    pub fn counters(&self) -> &Counters {
        &self.events.counters
    }

    /// Creates the mark, armed as fresh: its first token sets it. Fails if it exists.
    pub async fn arm(&self) -> Result<(), Error> {
        self.change(|item| match item {
            None => Ok(MarkState::FRESH),
            Some(_) => Err(Error::Conflict("the resource and slot have a mark already; use it, or re-arm it")),
        })
        .await
    }

    /// Raises the mark. A new holder calls this before it reads.
    pub async fn claim(&self, token: impl AsRef<str>) -> Result<Number, Error> {
        self.step(Operation::Claim, token.as_ref(), None, Vec::new()).await.map(|(admission, _)| admission.number)
    }

    /// Applies these writes atomically: at most 99, each to another item, and none to the mark of a fence.
    pub async fn write(
        &self,
        token: impl AsRef<str>,
        items: impl IntoIterator<Item = TransactWriteItem>,
    ) -> Result<Number, Error> {
        let items = items.into_iter().collect();
        self.step(Operation::Write, token.as_ref(), None, items).await.map(|(admission, _)| admission.number)
    }

    /// Like [`write`](Self::write), with a sequence that the holder counts upward: a duplicate changes nothing.
    pub async fn write_once(
        &self,
        token: impl AsRef<str>,
        sequence: u64,
        items: impl IntoIterator<Item = TransactWriteItem>,
    ) -> Result<ApplyOnce, Error> {
        let items = items.into_iter().collect();
        self.step(Operation::Write, token.as_ref(), Some(sequence), items).await.map(|(_, once)| once)
    }

    /// The mark; `None` if no token was admitted yet. A lost mark is a refusal.
    pub async fn mark(&self) -> Result<Option<Number>, Error> {
        self.state(&mut Attempts::new(self.claim_timeout)).await?.mark()
    }

    /// Declares the mark lost: the fenced data was restored to an earlier state. All tokens are rejected until
    /// [`Fence::rearm`].
    pub async fn declare_lost(&self) -> Result<(), Error> {
        self.operate(MarkState::declare_lost).await
    }

    /// Re-arms a mark that was restored, declared lost, damaged or deleted. No earlier holder may have a number above `floor`. A
    /// floor below the mark is an error. With a deleted mark, its seal is gone too.
    pub async fn rearm(&self, floor: Number) -> Result<(), Error> {
        self.change(|item| {
            let mut state = item::recover(item, &self.id, self.table.table_id())?;
            state.rearm(floor)?;
            Ok(state)
        })
        .await
    }

    /// Sets whether the fence rejects tokens of other incarnations until they are adopted (T5).
    pub async fn strict(&self, enabled: bool) -> Result<(), Error> {
        self.operate(|state| state.set_strict(enabled)).await
    }

    /// Seals the fence, permanently: a process without a [`SealVerifier`] refuses all tokens from now on (A8).
    pub async fn seal(&self) -> Result<(), Error> {
        self.operate(MarkState::seal).await
    }

    /// Makes a strict fence follow this incarnation.
    pub async fn adopt(&self, incarnation: Incarnation) -> Result<(), Error> {
        self.operate(|state| state.adopt(incarnation)).await
    }

    async fn state(&self, attempts: &mut Attempts) -> Result<MarkState, Error> {
        self.decode(attempts.read(|| self.table.read(&self.id)).await?.as_ref())
    }

    fn decode(&self, item: Option<&Item>) -> Result<MarkState, Error> {
        let item = item.ok_or(FenceRefusal::MarkLost(MarkLoss::Missing))?;
        item::decode(item, &self.id, self.table.table_id())
    }

    async fn operate(&self, change: impl Fn(&mut MarkState) -> Result<(), Error>) -> Result<(), Error> {
        self.change(|item| {
            let mut state = self.decode(item)?;
            change(&mut state)?;
            Ok(state)
        })
        .await
    }

    /// Replaces the item of the mark by the one that `next` returns for it.
    async fn change(&self, next: impl Fn(Option<&Item>) -> Result<MarkState, Error>) -> Result<(), Error> {
        let (own, mut attempts) = (nonce()?, Attempts::new(self.claim_timeout));
        self.ensure_current(&mut attempts).await?;
        loop {
            let before = attempts.read(|| self.table.read(&self.id)).await?;
            if is_written_by(before.as_ref(), &own) {
                return Ok(());
            }
            let state = next(before.as_ref()).map_err(|error| attempts.unconfirmed_or(error))?;
            match attempts.send(self.table.replace(&self.id, before.as_ref(), &state, &own)).await {
                Ok(()) => return Ok(()),
                Err(failure) => attempts.note(failure)?,
            }
            attempts.pause().await?;
        }
    }

    /// Refuses if the table of this name is no longer the one that was opened.
    async fn ensure_current(&self, attempts: &mut Attempts) -> Result<(), Error> {
        if attempts.read(|| self.table.is_current()).await? {
            return Ok(());
        }
        Err(FenceRefusal::MarkLost(MarkLoss::Moved).into())
    }

    async fn step(
        &self,
        operation: Operation,
        token: &str,
        sequence: Option<u64>,
        items: Vec<TransactWriteItem>,
    ) -> Result<(Admission, ApplyOnce), Error> {
        let result = match self.seals.present(&self.id, token) {
            Ok(presented) => self.attempt(operation, presented, sequence, items).await,
            Err(refusal) => Err(refusal.into()),
        };
        let admission = result.as_ref().map(|(admission, _)| admission);
        self.events.record(&self.id, operation, admission);
        result
    }

    async fn attempt(
        &self,
        operation: Operation,
        presented: PresentedToken,
        sequence: Option<u64>,
        items: Vec<TransactWriteItem>,
    ) -> Result<(Admission, ApplyOnce), Error> {
        if items.len() > MAX_ITEMS {
            return Err(Error::InvalidArgument("a write has more than 99 items; split it"));
        }
        if items.iter().any(|item| self.table.is_mark(item)) {
            return Err(Error::InvalidArgument("an item of the write is the mark of a fence; remove it"));
        }
        let (own, mut attempts) = (nonce()?, Attempts::new(self.claim_timeout));
        if operation == Operation::Claim {
            self.ensure_current(&mut attempts).await?;
        }
        loop {
            let result = match operation {
                Operation::Claim => attempts.send(self.table.claim(&self.id, presented, &own)).await,
                Operation::Write => {
                    let write = self.table.write(&self.id, presented, sequence, &own, &items);
                    attempts.send(write).await.map(|()| None)
                }
            };
            match result {
                Ok(before) => {
                    let left = before.filter(|before| *before != presented.incarnation);
                    let admission = Admission { number: presented.number, previous_incarnation: left };
                    return Ok((admission, ApplyOnce::Applied));
                }
                // The condition is the rule. Read the mark and apply the rule here, to find out why it failed.
                Err(Failure::Condition) => {
                    let state = self.state(&mut attempts).await?;
                    let (admission, once) = presented.admit(&state.stored_mark(), sequence)?;
                    if let ApplyOnce::AlreadyApplied { .. } = once {
                        return Ok((admission, once));
                    }
                    attempts.note(Failure::Condition)?;
                }
                Err(Failure::Unknown(error)) => {
                    attempts.note(Failure::Unknown(error))?;
                    let item = attempts.read(|| self.table.read(&self.id)).await?;
                    if is_written_by(item.as_ref(), &own) {
                        let admission = Admission { number: presented.number, previous_incarnation: None };
                        return Ok((admission, ApplyOnce::Applied));
                    }
                    // If others wrote since, the next attempt shows it by its request token.
                }
                Err(failure) => attempts.note(failure)?,
            }
            attempts.pause().await?;
        }
    }
}

/// Whether the write with this nonce is the last one of the item.
fn is_written_by(item: Option<&Item>, own: &str) -> bool {
    item.and_then(item::nonce).and_then(|nonce| nonce.as_s().ok()).is_some_and(|nonce| nonce == own)
}

/// Returns all marks of a table. A mark that cannot be read is listed as lost; an item that is no mark is not listed.
pub async fn list_marks(client: Client, table: &str) -> Result<Vec<MarkInfo>, Error> {
    let table = Attempts::new(OPEN_TIMEOUT).read(|| MarkTable::open(&client, table)).await?;
    let (mut marks, mut after) = (Vec::new(), None);
    loop {
        let (items, next) = Attempts::new(CLAIM_TIMEOUT).read(|| table.scan(after.as_ref())).await?;
        marks.extend(items.iter().filter_map(|item| item::info(item, table.table_id())));
        if next.is_none() {
            return Ok(marks);
        }
        after = next;
    }
}
