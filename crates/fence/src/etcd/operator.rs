//! What an operator does at a fence in etcd: arming, losing and arming again, following another incarnation, reading marks.

use leasehold_core::token::{Incarnation, Number};
use tonic::transport::Channel;

use super::kv::{Kv, Seen};
use super::{Fence, PREFIX};
use crate::fixed::MarkText;
use crate::{Error, Kept};

/// Every mark that this cluster keeps below a prefix; `leasehold/` unless one is told.
pub async fn survey(etcd: Channel, prefix: Option<&str>) -> Result<Vec<Kept>, Error> {
    let all = Kv::new(etcd).below(prefix.unwrap_or(PREFIX)).await?;
    all.iter().map(|seen| Ok(seen.mark()?.kept(seen.mark()?.is_at(&seen.home)))).collect()
}

impl Fence {
    /// Says that nothing was written under this resource's slot yet: its first token sets the mark. Where a mark is kept
    /// already, it stays.
    pub async fn arm(&self) -> Result<(), Error> {
        let seen = self.kv.read(&self.key()).await?;
        if seen.text.is_none() {
            let fresh = MarkText::fresh(&self.place, &seen.home).to_string();
            // If somebody was faster, there is a mark now, and that was asked for.
            let _ = self.kv.change(&self.key(), &seen, Some(fresh), &[]).await?;
        }
        Ok(())
    }

    /// The mark that is kept. What is lost is told as a refusal.
    pub async fn mark(&self) -> Result<Option<Number>, Error> {
        let seen = self.kv.read(&self.key()).await?;
        let mark = seen.mark()?;
        mark.mark(mark.is_at(&seen.home))
    }

    /// Refuses everything until [`Fence::rearm`]: after etcd was put back from a copy.
    pub async fn declare_lost(&self) -> Result<(), Error> {
        self.alter(|mark, _| Ok(mark.lost())).await
    }

    /// Sets a lost mark to a floor that no holder of before lies above. A floor below what was seen here is refused.
    pub async fn rearm(&self, floor: Number) -> Result<(), Error> {
        self.alter(|mark, seen| mark.rearmed(floor, &seen.home)).await
    }

    /// Whether another incarnation is refused until it is adopted (T5).
    pub async fn strict(&self, strict: bool) -> Result<(), Error> {
        self.alter(|mark, _| Ok(mark.strict(strict))).await
    }

    /// Follows this incarnation from now on.
    pub async fn adopt(&self, incarnation: Incarnation) -> Result<(), Error> {
        self.alter(|mark, _| Ok(mark.adopted(incarnation))).await
    }

    async fn alter(&self, how: impl Fn(&MarkText, &Seen) -> Result<MarkText, Error>) -> Result<(), Error> {
        let mut seen = self.kv.read(&self.key()).await?;
        loop {
            let to = how(&seen.mark()?, &seen)?.to_string();
            match self.kv.change(&self.key(), &seen, Some(to), &[]).await? {
                Ok(_) => return Ok(()),
                Err(now) => seen = now,
            }
        }
    }
}
