//! Which targets a lease covers, as the grantor knows them, and what fences tell it in single calls.

use std::time::Duration;

use leasehold_core::command::Command;
use leasehold_core::coverage::Report;
use leasehold_core::name::Name;
use leasehold_core::token::Cluster;
use leasehold_wire::json::FencesBody;
use leasehold_wire::v1;
use leasehold_wire::v1::request::Ask;

use crate::lease::To;
use crate::look::checked;
use crate::route::Nature;
use crate::{Client, Error};

impl Client {
    /// Every target that a resource covers, declared or reported, with the holes.
    pub async fn fences(&self, resource: &str) -> Result<FencesBody, Error> {
        checked(Name::parse(resource))?;
        #[cfg(any(test, feature = "testing"))]
        if let Some(seen) = self.in_memory(|grantor| grantor.targets(resource)) {
            return seen.map(|targets| leasehold_wire::fences(resource, &targets).into());
        }
        let ask = v1::FencesRequest { resource: resource.into(), min_position: 0 };
        let send = |mut to: To, ask| async move { to.fences(ask).await };
        self.call(Nature::Look, Duration::ZERO, ask, send).await.map(Into::into)
    }

    /// Tells the grantor what fences saw since they last said: all of it is taken in, or nothing. What is sent twice counts
    /// twice.
    pub async fn report_fences(&self, cluster: Cluster, reports: &[Report<'_>]) -> Result<(), Error> {
        let Some(Ask::Report(ask)) = leasehold_wire::ask(&Command::Report { cluster, reports }) else {
            return Err(Error::garbled("a report that cannot be spelled"));
        };
        let send = |mut to: To, ask| async move { to.report(ask).await };
        self.call(Nature::Change, Duration::ZERO, ask, send).await.map(drop)
    }

    /// Says that a target is no more, so that it is no hole any longer.
    pub async fn forget_target(&self, resource: &str, target: &str, why: &str) -> Result<(), Error> {
        let ask = v1::ForgetTarget { resource: resource.into(), target: target.into(), why: why.into() };
        let send = |mut to: To, ask| async move { to.forget_target(ask).await };
        self.call(Nature::Change, Duration::ZERO, ask, send).await.map(drop)
    }
}
