//! Get or fill: a copy that many share is made by one, and the others wait for it instead of all making it.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use leasehold_core::payload::cache;

use super::{Cache, Inner, Reading};
use crate::holder::Spoken;
use crate::{Code, Error};

/// The pauses before one who waits asks again, in milliseconds, longer each time.
const PAUSE: (u64, u64) = (10, 500);

/// Why there is no copy.
#[derive(Clone, Debug, PartialEq)]
pub enum Unfilled<E> {
    /// No lease was to be had.
    Refused(Error),
    /// The one who had to fill it could not. Somebody else is asked to, at once.
    Failed(E),
}

impl<E: fmt::Display> fmt::Display for Unfilled<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(error) => error.fmt(f),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for Unfilled<E> {}

impl<V: Send + Sync + 'static> Cache<V> {
    /// What is kept of a key; or else the shared copy of its newest version, which `find` looks for; or else, where there is
    /// none and this caller is the one to make it, what `fill` makes and stores for all under the version it is given.
    ///
    /// One fills at a time, for the cache's ttl at most. A filler that fails or is dropped is replaced at once, one that
    /// vanished when its time is over. Its copy counts only if nobody wrote in between.
    pub async fn get_or_fill<E, F, Found, M, Made>(
        &self,
        key: &str,
        mut find: F,
        mut fill: M,
    ) -> Result<Arc<V>, Unfilled<E>>
    where
        F: FnMut(u64) -> Found,
        Found: Future<Output = Option<V>>,
        M: FnMut(u64) -> Made,
        Made: Future<Output = Result<V, E>>,
    {
        if let Some(value) = self.peek(key) {
            return Ok(value);
        }
        let inner = &*self.inner;
        let flight = inner.copies.flight(key);
        let _alone = flight.alone().await;
        if let Some(value) = self.peek(key) {
            return Ok(value);
        }
        let (mut missing, mut made, mut pause) = (None, None, PAUSE.0);
        loop {
            match inner.get_or_fill(key, missing).await.map_err(Unfilled::Refused)? {
                Told::Reading(Reading::Same(value), _) => return Ok(value),
                Told::Reading(Reading::New(lease), version) => {
                    let mine = made.take().filter(|(token, _)| *token == version).map(|(_, value)| value);
                    let value = match mine {
                        Some(value) => Some(value),
                        None => find(version).await.map(Arc::new),
                    };
                    match value {
                        Some(value) => {
                            inner.copies.loaded(key, lease, &value);
                            return Ok(value);
                        }
                        None => {
                            self.forget(key);
                            missing = Some(version);
                        }
                    }
                }
                Told::Fill(token, mut spoken) => {
                    let value = fill(token).await.map_err(Unfilled::Failed)?;
                    spoken.undo.settled();
                    // If somebody wrote in between, what was made is old: the next answer says so.
                    if inner.filled(key, token).await.map_err(Unfilled::Refused)? {
                        made = Some((token, Arc::new(value)));
                    }
                }
                Told::Wait => {
                    inner.handle.sleep_ms(pause).await;
                    pause = (2 * pause).min(PAUSE.1);
                }
            }
        }
    }
}

/// What one who gets or fills is told.
enum Told<V> {
    Reading(Reading<V>, u64),
    Fill(u64, Spoken),
    Wait,
}

impl<V: Send + Sync + 'static> Inner<V> {
    async fn get_or_fill(&self, key: &str, missing: Option<u64>) -> Result<Told<V>, Error> {
        let (reader, ttl_ms) = (self.handle.holder.as_str(), self.ttl_ms);
        let command = cache::Command::GetOrFill { key, session: None, reader, ttl_ms, missing };
        let sent = self.handle.clock.now();
        let (told, spoken) = match self.ask(key, command).await {
            Ok(answered) => answered,
            // Somebody writes: whoever wants the copy waits for the write.
            Err(error) if error.code() == Some(Code::Conflict) => return Ok(Told::Wait),
            Err(error) => return Err(error),
        };
        match told {
            cache::Answer::Reading { version, .. } => {
                let garbled = || Error::garbled("a read lease that is none");
                self.reading(key, sent, &told, spoken)
                    .map(|reading| Told::Reading(reading, version))
                    .ok_or_else(garbled)
            }
            cache::Answer::Fill { token, .. } => Ok(Told::Fill(token.get(), spoken)),
            cache::Answer::Wait { .. } => Ok(Told::Wait),
            _ => Err(Error::garbled("another answer than to a reader")),
        }
    }

    /// Says that a copy is there; false if it came too late to count.
    async fn filled(&self, key: &str, token: u64) -> Result<bool, Error> {
        let token = leasehold_core::token::Number::new(token).ok_or_else(|| Error::garbled("not a number"))?;
        match self.ask(key, cache::Command::Filled { key, token }).await {
            Ok(_) => Ok(true),
            Err(error) if matches!(error.code(), Some(Code::StaleToken | Code::LeaseLost | Code::NotCurrent)) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}
