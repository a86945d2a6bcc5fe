//! What operators do: take away, free, size, end a quarantine, and let another server lead.

use std::time::Duration;

use leasehold_core::command::Revoke;
use leasehold_wire::v1;

use crate::lease::To;
use crate::route::Nature;
use crate::{Client, Error};

impl Client {
    /// Takes leases away, with notice if a grace is given.
    pub async fn revoke(&self, ask: &Revoke<'_>) -> Result<(), Error> {
        let send = |mut to: To, ask| async move { to.revoke(ask).await };
        self.call(Nature::Change, Duration::ZERO, v1::Revoke::from(ask), send).await.map(drop)
    }

    /// Frees a resource that a revocation left to an operator.
    pub async fn free(&self, resource: &str, why: &str) -> Result<(), Error> {
        let ask = v1::Free { resource: resource.into(), why: why.into() };
        let send = |mut to: To, ask| async move { to.free(ask).await };
        self.call(Nature::Change, Duration::ZERO, ask, send).await.map(drop)
    }

    /// Sets a resource's capacity.
    pub async fn set_capacity(&self, resource: &str, units: u32) -> Result<(), Error> {
        let ask = v1::SetCapacity { resource: resource.into(), units };
        let send = |mut to: To, ask| async move { to.set_capacity(ask).await };
        self.call(Nature::Change, Duration::ZERO, ask, send).await.map(drop)
    }

    /// Lets another server lead. Nothing that is held ends by it.
    pub async fn step_down(&self) -> Result<(), Error> {
        let send = |mut to: To, ask| async move { to.step_down(ask).await };
        self.call(Nature::Change, Duration::ZERO, v1::StepDown {}, send).await.map(drop)
    }

    /// Ends a quarantine in writing.
    pub async fn waive_quarantine(&self, why: &str) -> Result<(), Error> {
        let ask = v1::WaiveQuarantine { why: why.into() };
        let send = |mut to: To, ask| async move { to.waive_quarantine(ask).await };
        self.call(Nature::Change, Duration::ZERO, ask, send).await.map(drop)
    }
}
