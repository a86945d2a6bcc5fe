//! Operator actions on a fence in etcd: arm, re-arm, declare lost, adopt, list marks.

use leasehold_core::token::{Incarnation, Number};
use tonic::transport::Channel;

use super::kv::{KeyState, Kv};
use super::{Fence, PREFIX};
use crate::mark_fixed_text::FixedMark;
use crate::{Error, MarkInfo};

/// Returns the marks under a prefix of the etcd cluster. Default: `leasehold/`.
pub async fn list_marks(etcd: Channel, prefix: Option<&str>) -> Result<Vec<MarkInfo>, Error> {
    let keys = Kv::new(etcd).list(prefix.unwrap_or(PREFIX)).await?;
    keys.iter().map(|current| Ok(current.mark()?.info(current.mark()?.is_from_server(&current.home)))).collect()
}

impl Fence {
    /// Arms the fence as fresh: its first token sets the mark. An existing mark is unchanged.
    pub async fn arm(&self) -> Result<(), Error> {
        let current = self.kv.read(&self.key()).await?;
        if current.text.is_none() {
            let fresh = FixedMark::fresh(&self.id, &current.home).to_string();
            // If another operator was faster, the fence is armed now, too.
            let _ = self.kv.compare_and_apply(&self.key(), &current, Some(fresh), &[]).await?;
        }
        Ok(())
    }

    /// The mark; `None` if no token was admitted yet. A lost mark is a refusal.
    pub async fn mark(&self) -> Result<Option<Number>, Error> {
        let current = self.kv.read(&self.key()).await?;
        let mark = current.mark()?;
        mark.mark(mark.is_from_server(&current.home))
    }

    /// Declares the mark lost: etcd was restored from a backup. All tokens are rejected until [`Fence::rearm`].
    pub async fn declare_lost(&self) -> Result<(), Error> {
        self.update_mark(|mark, _| Ok(mark.declared_lost())).await
    }

    /// Sets the mark to a floor. No earlier holder may have a number above it. A floor below the mark is an error. If the mark was
    /// deleted, a new one is created; its seal is gone.
    pub async fn rearm(&self, floor: Number) -> Result<(), Error> {
        let missing = |current: &KeyState| Ok(FixedMark::fresh(&self.id, &current.home));
        self.update_or_create(missing, |mark, current| mark.rearmed(floor, &current.home)).await
    }

    /// Sets whether the fence rejects tokens of other incarnations until they are adopted (T5).
    pub async fn strict(&self, enabled: bool) -> Result<(), Error> {
        self.update_mark(|mark, _| Ok(mark.with_strict(enabled))).await
    }

    /// Seals the fence, permanently: a process without a [`SealVerifier`](crate::SealVerifier) refuses all tokens from now on
    /// (A8). It binds those who write through this fence; the store itself verifies nothing.
    pub async fn seal(&self) -> Result<(), Error> {
        self.update_mark(|mark, _| Ok(mark.sealed())).await
    }

    /// Makes a strict fence follow this incarnation.
    pub async fn adopt(&self, incarnation: Incarnation) -> Result<(), Error> {
        self.update_mark(|mark, _| Ok(mark.adopted(incarnation))).await
    }

    async fn update_mark(
        &self,
        change: impl Fn(&FixedMark, &KeyState) -> Result<FixedMark, Error>,
    ) -> Result<(), Error> {
        self.update_or_create(KeyState::mark, change).await
    }

    /// Changes the mark. `missing` returns the mark to change if the key does not exist.
    async fn update_or_create(
        &self,
        missing: impl Fn(&KeyState) -> Result<FixedMark, Error>,
        change: impl Fn(&FixedMark, &KeyState) -> Result<FixedMark, Error>,
    ) -> Result<(), Error> {
        let mut current = self.kv.read(&self.key()).await?;
        loop {
            let mark = if current.text.is_none() { missing(&current)? } else { current.mark()? };
            // An operator of another cluster does not change it.
            mark.stored_mark(&self.id, &current.home)?;
            let to = change(&mark, &current)?.to_string();
            match self.kv.compare_and_apply(&self.key(), &current, Some(to), &[]).await? {
                Ok(_) => return Ok(()),
                Err(newer) => current = newer,
            }
        }
    }
}
