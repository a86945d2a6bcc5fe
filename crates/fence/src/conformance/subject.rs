//! The traits that a target implements for the conformance suite.

use std::future::{Future, ready};
use std::pin::Pin;
use std::time::Duration;

use leasehold_core::token::{Incarnation, Number};

use crate::{ApplyOnce, Error, MarkInfo, SealVerifier};

/// A write that the target applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppliedEntry {
    /// The number of its token.
    pub number: Number,
    /// The written value.
    pub value: String,
}

/// A holder that is stuck in the middle of a write, and a connection for its successor.
pub struct StuckHolder<W> {
    /// The process id that a blocked claim must report. `None` if the target cannot report it reliably.
    pub blocker: Option<u32>,
    /// A longer claim counts as one that never returns. Use the claim timeout of the successor plus a margin for slow
    /// machines.
    pub max_claim_time: Duration,
    /// The connection of the successor. A short claim timeout makes the test fast.
    pub successor: W,
    /// Awaited, the stuck holder continues, and its write is applied if the fence still admits it. Dropped, it aborts the write.
    pub resume: Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>,
}

/// A target under test. Keep the default of a method that the target does not support; [`check`] then leaves out its
/// obligations.
///
/// [`check`]: super::check
pub trait Subject: Sync {
    /// A connection to the target.
    type Writer: FenceWriter;

    /// Empties the target and arms it as fresh and not strict. Earlier writers are no longer used.
    fn fresh(&self) -> impl Future<Output = ()> + Send;

    /// Creates a writer with its own connection.
    fn writer(&self) -> impl Future<Output = Self::Writer> + Send;

    /// All applied writes in their order, read without the fence.
    fn applied(&self) -> impl Future<Output = Vec<AppliedEntry>> + Send;

    /// The mark; `None` if the target is fresh.
    fn mark(&self) -> impl Future<Output = Result<Option<Number>, Error>> + Send;

    /// Empties the target and leaves it unarmed. False if this is not possible.
    fn unarmed(&self) -> impl Future<Output = bool> + Send {
        ready(false)
    }

    /// Declares the mark lost.
    fn declare_lost(&self) -> impl Future<Output = Result<bool, Error>> + Send {
        ready(Ok(false))
    }

    /// Re-arms the fence from a floor.
    fn rearm(&self, floor: Number) -> impl Future<Output = Result<bool, Error>> + Send {
        let _ = floor;
        ready(Ok(false))
    }

    /// Sets whether the fence is strict.
    fn strict(&self, enabled: bool) -> impl Future<Output = Result<bool, Error>> + Send {
        let _ = enabled;
        ready(Ok(false))
    }

    /// Makes a strict fence follow this incarnation.
    fn adopt(&self, incarnation: Incarnation) -> impl Future<Output = Result<bool, Error>> + Send {
        let _ = incarnation;
        ready(Ok(false))
    }

    /// Seals the fence.
    fn seal(&self) -> impl Future<Output = Result<bool, Error>> + Send {
        ready(Ok(false))
    }

    /// Creates a writer that verifies tokens with these keys, at a fresh target. `None` if its fences take no keys.
    fn sealed_writer(&self, verifier: &SealVerifier) -> impl Future<Output = Option<Self::Writer>> + Send {
        let _ = verifier;
        ready(None)
    }

    /// Whether the keys are those of the target, and not of each writer. Then no writer is without keys.
    fn keys_in_target(&self) -> bool {
        false
    }

    /// Whether a sealed target relies on its clients to verify, because it cannot know whether they did. It refuses plain tokens
    /// nevertheless.
    fn relies_on_clients(&self) -> bool {
        false
    }

    /// All marks of the target.
    fn list_marks(&self) -> impl Future<Output = Result<Option<Vec<MarkInfo>>, Error>> + Send {
        ready(Ok(None))
    }

    /// Kills the server of the target with SIGKILL and restarts it. False if the target has no server.
    fn crash(&self) -> impl Future<Output = bool> + Send {
        ready(false)
    }

    /// Starts a write of this value under this token, and stops just before it takes effect. `None` if a write cannot be
    /// stopped there, or if claims of the target are not bounded.
    fn stuck_holder(&self, token: &str, value: &str) -> impl Future<Output = Option<StuckHolder<Self::Writer>>> + Send {
        let _ = (token, value);
        ready(None)
    }
}

/// The connection of one holder to the target. A call that fails with [`Error::Storage`] may have been applied. A call that is
/// refused or blocked must not have been.
pub trait FenceWriter: Send + 'static {
    /// Raises the mark, durably, with no other effect.
    fn claim(&mut self, token: &str) -> impl Future<Output = Result<Number, Error>> + Send;

    /// Writes this value.
    fn write(&mut self, token: &str, value: &str) -> impl Future<Output = Result<(), Error>> + Send;

    /// Writes this value once per sequence. `None` if the target does not support sequences.
    fn write_once(
        &mut self,
        token: &str,
        sequence: u64,
        value: &str,
    ) -> impl Future<Output = Result<Option<ApplyOnce>, Error>> + Send {
        let _ = (token, sequence, value);
        ready(Ok(None))
    }
}
