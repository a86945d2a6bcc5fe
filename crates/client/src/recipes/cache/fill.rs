//! Get or fill: one caller makes a copy that many share, and the others wait for it.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use leasehold_core::payload::cache::{CacheAnswer, CacheCommand};
use leasehold_core::token::Number;

use super::{Cache, CacheInner, ReadOutcome};
use crate::session_worker::SessionReply;
use crate::{Code, Error};

/// First and longest pause of a caller that waits for a fill, in milliseconds.
const PAUSE: (u64, u64) = (10, 500);

/// Why there is no copy.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum FillError<E> {
    /// No read lease was granted.
    Rejected(Error),
    /// This caller had to fill the copy and failed. Another caller fills it next.
    Failed(E),
}

impl<E: fmt::Display> fmt::Display for FillError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rejected(error) => error.fmt(f),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for FillError<E> {}

impl<V: Send + Sync + 'static> Cache<V> {
    /// The cached value of a key; otherwise the shared copy of its newest version, which `find` looks up; otherwise, if this
    /// caller is chosen to fill it, the value of `fill`, which stores the shared copy under the version it is given.
    ///
    /// One caller fills at a time, for the ttl of the cache at most. A filler that fails or is dropped is replaced immediately; one
    /// that disappears, when its time is over. Its copy counts only if no write happened in between.
    pub async fn get_or_fill<E, F, Find, M, Fill>(
        &self,
        key: &str,
        mut find: F,
        mut fill: M,
    ) -> Result<Arc<V>, FillError<E>>
    where
        F: FnMut(u64) -> Find,
        Find: Future<Output = Option<V>>,
        M: FnMut(u64) -> Fill,
        Fill: Future<Output = Result<V, E>>,
    {
        if let Some(value) = self.peek(key) {
            return Ok(value);
        }
        let inner = &*self.inner;
        let flight = inner.entries.flight(key);
        let _single = flight.lock().await;
        if let Some(value) = self.peek(key) {
            return Ok(value);
        }
        let (mut missing, mut filled, mut pause) = (None, None, PAUSE.0);
        loop {
            match inner.get_or_fill(key, missing).await.map_err(FillError::Rejected)? {
                FillStep::Read(ReadOutcome::Unchanged(value), _) => return Ok(value),
                FillStep::Read(ReadOutcome::Load(lease), version) => {
                    let own = filled.take().filter(|(token, _)| *token == version).map(|(_, value)| value);
                    let value = match own {
                        Some(value) => Some(value),
                        None => find(version).await.map(Arc::new),
                    };
                    match value {
                        Some(value) => {
                            inner.entries.set_value(key, lease, &value);
                            return Ok(value);
                        }
                        None => {
                            self.remove(key);
                            missing = Some(version);
                        }
                    }
                }
                FillStep::Fill(token, mut reply) => {
                    let value = fill(token).await.map_err(FillError::Failed)?;
                    reply.compensation.disarm();
                    // If a write happened in between, the copy is outdated, and the next answer says so.
                    if inner.report_filled(key, token).await.map_err(FillError::Rejected)? {
                        filled = Some((token, Arc::new(value)));
                    }
                }
                FillStep::Wait => {
                    inner.worker.sleep_ms(pause).await;
                    pause = (2 * pause).min(PAUSE.1);
                }
            }
        }
    }
}

/// Next step of a caller.
enum FillStep<V> {
    Read(ReadOutcome<V>, u64),
    Fill(u64, SessionReply),
    Wait,
}

impl<V: Send + Sync + 'static> CacheInner<V> {
    async fn get_or_fill(&self, key: &str, missing: Option<u64>) -> Result<FillStep<V>, Error> {
        let (reader, ttl_ms) = (self.worker.holder.as_str(), self.ttl_ms);
        let command = CacheCommand::GetOrFill { key, session: None, reader, ttl_ms, missing };
        let sent = self.worker.clock.now();
        let (answer, reply) = match self.call(key, command).await {
            Ok(answered) => answered,
            // A write is in progress: wait for it.
            Err(error) if error.code() == Some(Code::Conflict) => return Ok(FillStep::Wait),
            Err(error) => return Err(error),
        };
        match answer {
            CacheAnswer::Reading { version, .. } => self
                .insert(key, sent, &answer, reply)
                .map(|outcome| FillStep::Read(outcome, version))
                .ok_or_else(|| Error::invalid_reply("a read lease that is already invalid")),
            CacheAnswer::Fill { token, .. } => Ok(FillStep::Fill(token.get(), reply)),
            CacheAnswer::Wait { .. } => Ok(FillStep::Wait),
            _ => Err(Error::invalid_reply("an answer other than to a reader")),
        }
    }

    /// Reports that a copy is stored. Returns false if it is too late to count.
    async fn report_filled(&self, key: &str, token: u64) -> Result<bool, Error> {
        let token = Number::new(token).ok_or_else(|| Error::invalid_reply("an invalid token number"))?;
        match self.call(key, CacheCommand::Filled { key, token }).await {
            Ok(_) => Ok(true),
            Err(error) if matches!(error.code(), Some(Code::StaleToken | Code::LeaseLost | Code::NotCurrent)) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}
