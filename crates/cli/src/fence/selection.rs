//! The fences that a command selects in a target: one by its resource, or all of them.

use leasehold::{Client, Code, Error};
use leasehold_core::token::{Cluster, Number};
use leasehold_fence::FenceId;

use crate::output::CommandError;
use crate::target::{TargetAddress, fence_id, is_mark_of};

/// Fences of a target
#[derive(clap::Args)]
pub struct FenceSelection {
    /// Address of the target
    #[arg(value_name = "TARGET", value_parser = TargetAddress::parse)]
    pub target: TargetAddress,
    /// Resource whose fence is selected [default: all resources with a mark]
    #[arg(long, value_name = "NAME")]
    resource: Option<String>,
    /// Slot of the resource
    #[arg(long, value_name = "N", default_value_t = 0, requires = "resource")]
    slot: u32,
}

impl FenceSelection {
    /// Finds the selected fences by the marks in the target.
    pub async fn resolve(&self) -> Result<Vec<FenceId>, CommandError> {
        let marks = self.target.marks().await?;
        let mut fences = Vec::new();
        for mark in &marks {
            let fence = match &self.resource {
                Some(resource) => fence_id(mark.cluster, resource, self.slot)?,
                None => fence_id(mark.cluster, mark.name.as_deref().ok_or_else(no_names)?, mark.slot)?,
            };
            if self.resource.is_none() || is_mark_of(mark, &fence) {
                fences.push(fence);
            }
        }
        if fences.is_empty() {
            let missing = "the target has no matching mark; list its marks, or arm the fence";
            return Err(Error::new(Code::NotFound, missing).with_next_step("leasehold fence marks TARGET").into());
        }
        Ok(fences)
    }
}

/// An append log stores only the hash of the resource name, so that the name must be given.
fn no_names() -> Error {
    Error::new(Code::InvalidArgument, "the target stores no resource names").with_next_step("Pass --resource NAME.")
}

/// The server's cluster, and the highest token number that it has issued.
pub async fn cluster_and_counter(client: &Client) -> Result<(Cluster, Number), CommandError> {
    let status = client.status().await?;
    let invalid = || CommandError::Other("the server returned an invalid status".to_owned());
    let cluster = status.cluster.parse().map_err(|_| invalid())?;
    let counter = status.counter.parse().ok().and_then(Number::new).ok_or_else(invalid)?;
    Ok((cluster, counter))
}

/// One line for each fence.
pub fn describe(fences: &[FenceId], change: &str) -> String {
    fences.iter().map(|fence| format!("{fence} {change}")).collect::<Vec<_>>().join("\n")
}
