//! What the suite needs of a target: a way in, a look past the fence, and whatever else it has.

use std::future::{Future, ready};

use leasehold_core::token::{Incarnation, Number};

use super::bounded::Inside;
use crate::{Error, Kept, Once};

/// A write that a target really applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The number of the token it showed.
    pub number: Number,
    /// What it wrote.
    pub value: String,
}

/// A target under test. What a target has no means for keeps its default, and is then left out of what [`check`] lists.
///
/// [`check`]: super::check
pub trait Subject: Sync {
    /// A way to write to it.
    type Writer: Writer;

    /// Makes the target empty, its place armed as fresh and not strict. Writers of before are not used any more.
    fn fresh(&self) -> impl Future<Output = ()> + Send;

    /// One more writer, with a connection of its own.
    fn writer(&self) -> impl Future<Output = Self::Writer> + Send;

    /// The ghost log: what was applied, in the order in which it was applied, read past the fence.
    fn applied(&self) -> impl Future<Output = Vec<Applied>> + Send;

    /// The mark that the target keeps; none on a fresh one.
    fn mark(&self) -> impl Future<Output = Result<Option<Number>, Error>> + Send;

    /// Makes the target empty, with a place that nobody armed.
    fn unarmed(&self) -> impl Future<Output = bool> + Send {
        ready(false)
    }

    /// Says that the mark is lost.
    fn declare_lost(&self) -> impl Future<Output = Result<bool, Error>> + Send {
        ready(Ok(false))
    }

    /// Arms the place from a floor.
    fn rearm(&self, floor: Number) -> impl Future<Output = Result<bool, Error>> + Send {
        let _ = floor;
        ready(Ok(false))
    }

    /// Makes the place strict.
    fn make_strict(&self) -> impl Future<Output = Result<bool, Error>> + Send {
        ready(Ok(false))
    }

    /// Follows this incarnation from now on.
    fn adopt(&self, incarnation: Incarnation) -> impl Future<Output = Result<bool, Error>> + Send {
        let _ = incarnation;
        ready(Ok(false))
    }

    /// Every mark that the target keeps.
    fn survey(&self) -> impl Future<Output = Result<Option<Vec<Kept>>, Error>> + Send {
        ready(Ok(None))
    }

    /// Kills the target's server as `kill -9` does, and starts it again. False if it has none.
    fn crash(&self) -> impl Future<Output = bool> + Send {
        ready(false)
    }

    /// Lets a holder get inside with this token, up to just before its write of this value counts, and stand still there.
    /// None if nobody can be inside of such a target, or if it promises no bound.
    fn occupied(&self, token: &str, value: &str) -> impl Future<Output = Option<Inside<Self::Writer>>> + Send {
        let _ = (token, value);
        ready(None)
    }
}

/// One holder's way to the target. A call that ends with an error of the target's own ([`Error::Storage`]) may have been
/// applied; one that is refused or blocked must not have been.
pub trait Writer: Send + 'static {
    /// Raises the mark, durably, with no other effect.
    fn claim(&mut self, token: &str) -> impl Future<Output = Result<Number, Error>> + Send;

    /// Writes this value behind the fence.
    fn write(&mut self, token: &str, value: &str) -> impl Future<Output = Result<(), Error>> + Send;

    /// Writes this value once, however often it is asked under this sequence. `None` if the target does not number writes.
    fn write_sequenced(
        &mut self,
        token: &str,
        sequence: u64,
        value: &str,
    ) -> impl Future<Output = Result<Option<Once>, Error>> + Send {
        let _ = (token, sequence, value);
        ready(Ok(None))
    }
}
