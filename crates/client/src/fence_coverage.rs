//! Fence coverage: the targets that a lease covers, and reports of fences in unary calls.

use std::time::Duration;

use leasehold_core::command::Command;
use leasehold_core::coverage::FenceReport;
use leasehold_core::name::Name;
use leasehold_core::token::Cluster;
use leasehold_wire::json::CoverageBody;
use leasehold_wire::v1;
use leasehold_wire::v1::request::Operation;

use crate::failover::RetrySafety;
use crate::server_pool::GrpcClient;
use crate::{Client, Error};

impl Client {
    /// Every target of a resource, declared or reported, and the holes in its coverage.
    pub async fn coverage(&self, resource: &str) -> Result<CoverageBody, Error> {
        Name::parse(resource)?;
        #[cfg(any(test, feature = "testing"))]
        if let Some(targets) = self.servers.memory_query(|grantor| grantor.targets(resource)) {
            return targets.map(|targets| leasehold_wire::encode_coverage(resource, &targets).into());
        }
        let request = v1::CoverageRequest { resource: resource.into(), min_position: 0 };
        let send = |mut client: GrpcClient, request| async move { client.coverage(request).await };
        self.servers.call(RetrySafety::ReadOnly, Duration::ZERO, request, send).await.map(Into::into)
    }

    /// Reports to the grantor what fences have seen since their last report: all of it is recorded, or nothing. A report that
    /// is sent twice counts twice.
    pub async fn report_fences(&self, cluster: Cluster, reports: &[FenceReport<'_>]) -> Result<(), Error> {
        let Some(Operation::ReportFences(request)) =
            leasehold_wire::encode_command(&Command::Report { cluster, reports })
        else {
            return Err(Error::invalid_reply("a report that cannot be encoded"));
        };
        let send = |mut client: GrpcClient, request| async move { client.report_fences(request).await };
        self.servers.call(RetrySafety::NotIdempotent, Duration::ZERO, request, send).await.map(drop)
    }

    /// Removes a target that does not exist any more from the coverage, so that it is no longer a hole.
    pub async fn forget_target(&self, resource: &str, target: &str, comment: &str) -> Result<(), Error> {
        let request = v1::ForgetTarget { resource: resource.into(), target: target.into(), comment: comment.into() };
        let send = |mut client: GrpcClient, request| async move { client.forget_target(request).await };
        self.servers.call(RetrySafety::NotIdempotent, Duration::ZERO, request, send).await.map(drop)
    }
}
