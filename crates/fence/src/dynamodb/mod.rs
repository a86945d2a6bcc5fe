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

mod item;
mod requests;

use std::sync::Arc;
use std::time::{Duration, Instant};

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
pub use requests::install;
use requests::{MarkTable, WriteOutcome};

/// Default of [`Fence::with_claim_timeout`].
const CLAIM_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause between two attempts.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

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
    /// Opens a fence whose mark is in this table. It reads the id of the table, because a restored table is another one.
    pub async fn open(client: Client, table: &str, id: &FenceId) -> Result<Self, Error> {
        let marks = MarkTable::open(client, table).await?;
        let (seals, events) = (SealCheck::default(), EventSink::default());
        Ok(Self { id: id.clone(), seals, table: marks, claim_timeout: CLAIM_TIMEOUT, events })
    }

    /// How long a claim or a write retries while other transactions interfere (F8). Default: 30 s.
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
        if self.table.create(&self.id, &MarkState::FRESH, &nonce()?).await? {
            return Ok(());
        }
        Err(Error::Conflict("the resource and slot have a mark already; use it, or re-arm it"))
    }

    /// Raises the mark. A new holder calls this before it reads.
    pub async fn claim(&self, token: impl AsRef<str>) -> Result<Number, Error> {
        self.step(Operation::Claim, token.as_ref(), None, Vec::new()).await.map(|(admission, _)| admission.number)
    }

    /// Applies these writes atomically: at most 99, each to another item, and none to the mark.
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
        self.state().await?.0.mark()
    }

    /// Declares the mark lost: the fenced data was restored to an earlier state. All tokens are rejected until
    /// [`Fence::rearm`].
    pub async fn declare_lost(&self) -> Result<(), Error> {
        self.operate(MarkState::declare_lost).await
    }

    /// Re-arms a mark that was restored or declared lost. No earlier holder may have a number above `floor`. A floor below
    /// the mark is an error.
    pub async fn rearm(&self, floor: Number) -> Result<(), Error> {
        self.operate(|state| state.rearm(floor)).await
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

    async fn state(&self) -> Result<(MarkState, String), Error> {
        let item = self.table.read(&self.id).await?.ok_or(FenceRefusal::MarkLost(MarkLoss::Missing))?;
        let nonce = item::nonce(&item).unwrap_or_default().to_owned();
        Ok((item::decode(&item, self.table.table_id())?, nonce))
    }

    async fn operate(&self, change: impl Fn(&mut MarkState) -> Result<(), Error>) -> Result<(), Error> {
        let (own, began) = (nonce()?, Instant::now());
        loop {
            let (mut state, before) = self.state().await?;
            if before == own {
                return Ok(());
            }
            change(&mut state)?;
            if self.table.replace(&self.id, &state, &before, &own).await? {
                return Ok(());
            }
            self.wait(began).await?;
        }
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
        let (own, began) = (nonce()?, Instant::now());
        if operation == Operation::Claim && !self.table.is_current().await? {
            return Err(FenceRefusal::MarkLost(MarkLoss::Moved).into());
        }
        loop {
            let outcome = match operation {
                Operation::Claim => self.table.claim(&self.id, presented, &own).await?,
                Operation::Write => self.table.write(&self.id, presented, sequence, &own, &items).await?,
            };
            match outcome {
                WriteOutcome::Applied { previous_incarnation: left } => {
                    return Ok((
                        Admission { number: presented.number, previous_incarnation: left },
                        ApplyOnce::Applied,
                    ));
                }
                // The condition is the rule. Read the mark and apply the rule here, to find out why it failed.
                WriteOutcome::Refused => {
                    let (state, _) = self.state().await?;
                    let (admission, once) = presented.admit(&state.stored_mark(), sequence)?;
                    if let ApplyOnce::AlreadyApplied { .. } = once {
                        return Ok((admission, once));
                    }
                }
                WriteOutcome::Conflict => {}
                WriteOutcome::Unknown(error) => {
                    if self.state().await?.1 == own {
                        return Ok((
                            Admission { number: presented.number, previous_incarnation: None },
                            ApplyOnce::Applied,
                        ));
                    }
                    if began.elapsed() >= self.claim_timeout {
                        return Err(error);
                    }
                }
            }
            self.wait(began).await?;
        }
    }

    async fn wait(&self, began: Instant) -> Result<(), Error> {
        if began.elapsed() >= self.claim_timeout {
            return Err(Error::Blocked { waited: began.elapsed(), blockers: Vec::new() });
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
        Ok(())
    }
}

/// Returns all marks of a table.
pub async fn list_marks(client: Client, table: &str) -> Result<Vec<MarkInfo>, Error> {
    let table = MarkTable::open(client, table).await?;
    table.scan().await?.iter().map(|item| item::info(item, table.table_id())).collect()
}
