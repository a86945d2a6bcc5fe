//! The fences that a command selects in a target: one by its resource, or all of one cluster. All are checked before any changes.

use std::collections::BTreeSet;
use std::fmt::Display;

use leasehold::{Client, Code, Error};
use leasehold_core::token::{Cluster, Number};
use leasehold_fence::{FenceId, Mark};

use crate::output::CommandError;
use crate::target::{AddressParser, TargetAddress, fence_id, is_mark_of};

/// Fences of a target
#[derive(clap::Args)]
pub struct FenceSelection {
    /// Address of the target
    #[arg(value_name = "TARGET", value_parser = AddressParser::new(TargetAddress::parse))]
    pub target: TargetAddress,
    /// Resource whose fence is selected [default: all resources with a mark]
    #[arg(long, value_name = "NAME")]
    resource: Option<String>,
    /// Slot of the resource
    #[arg(long, value_name = "N", default_value_t = 0, requires = "resource")]
    slot: u32,
    /// Cluster whose fences are selected; required if the target has marks of several
    #[arg(long, value_name = "ID")]
    cluster: Option<Cluster>,
}

/// A selected fence, with the mark that it had when it was selected.
pub struct SelectedFence {
    pub id: FenceId,
    pub mark: Mark,
}

impl FenceSelection {
    /// Finds the selected fences by the marks in the target. They are all of one cluster.
    pub async fn resolve(&self) -> Result<Vec<SelectedFence>, CommandError> {
        let fences = self.find().await?;
        if fences.is_empty() {
            return Err(no_mark());
        }
        Ok(fences)
    }

    /// Like [`FenceSelection::resolve`]. A fence that is named and has no mark is selected too, where a re-arm can create it.
    pub async fn resolve_or_create(&self, client: &Client) -> Result<Vec<SelectedFence>, CommandError> {
        let fences = self.find().await?;
        match &self.resource {
            Some(resource) if fences.is_empty() && self.target.rearm_creates_marks() => {
                let cluster = match self.cluster {
                    Some(cluster) => cluster,
                    None => cluster_and_counter(client).await?.0,
                };
                Ok(vec![SelectedFence { id: fence_id(cluster, resource, self.slot)?, mark: Mark::Lost }])
            }
            _ if fences.is_empty() => Err(no_mark()),
            _ => Ok(fences),
        }
    }

    async fn find(&self) -> Result<Vec<SelectedFence>, CommandError> {
        let mut fences = Vec::new();
        for mark in self.target.marks().await? {
            if self.cluster.is_some_and(|cluster| cluster != mark.cluster) {
                continue;
            }
            let id = match &self.resource {
                Some(resource) => fence_id(mark.cluster, resource, self.slot)?,
                None => fence_id(mark.cluster, mark.name.as_deref().ok_or_else(no_names)?, mark.slot)?,
            };
            if self.resource.is_none() || is_mark_of(&mark, &id) {
                fences.push(SelectedFence { id, mark: mark.mark });
            }
        }
        ensure_one_cluster(&fences)?;
        Ok(fences)
    }

    /// Changes each fence. The error names the fence that failed, and those that have changed before it.
    pub async fn change_each(
        &self,
        fences: &[SelectedFence],
        change: impl AsyncFn(&FenceId) -> Result<(), CommandError>,
    ) -> Result<(), CommandError> {
        for (done, fence) in fences.iter().enumerate() {
            let changed = || fences[..done].iter().map(|fence| fence.id.to_string()).collect();
            change(&fence.id).await.map_err(|error| name_failure(error, &fence.id, changed()))?;
        }
        Ok(())
    }
}

fn no_mark() -> CommandError {
    let missing = "the target has no matching mark; list its marks, or arm the fence";
    Error::new(Code::NotFound, missing).with_next_step("leasehold fence marks TARGET").into()
}

fn ensure_one_cluster(fences: &[SelectedFence]) -> Result<(), CommandError> {
    let clusters: BTreeSet<String> = fences.iter().map(|fence| fence.id.cluster().to_string()).collect();
    if clusters.len() <= 1 {
        return Ok(());
    }
    let marks: Vec<String> = fences.iter().map(|fence| format!("{} of {}", fence.id, fence.id.cluster())).collect();
    let message =
        format!("the target has marks of several clusters: {}; nothing changed, pass --cluster", marks.join(", "));
    Err(Error::new(Code::WrongCluster, message).with_next_step("Pass --cluster ID.").into())
}

/// Adds to an error which fence or table failed, and which ones have changed before it.
pub fn name_failure(error: CommandError, failed: &dyn Display, done: Vec<String>) -> CommandError {
    // Whether the failed one changed is unknown after a timeout.
    let done = if done.is_empty() { "none".to_owned() } else { done.join(", ") };
    let named = |message: &str| format!("{failed}: {message} (changed before it: {done})");
    let coded = |error: Error| match error.code() {
        Some(code) => Error::new(code, named(error.message())).with_next_step(error.next_step()),
        None => error,
    };
    match error {
        CommandError::Coded(error) => CommandError::Coded(coded(error)),
        CommandError::WithExitCode(error, exit) => CommandError::WithExitCode(coded(error), exit),
        CommandError::Other(message) => CommandError::Other(named(&message)),
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
pub fn describe(fences: &[SelectedFence], change: &str) -> String {
    fences.iter().map(|fence| format!("{} {change}", fence.id)).collect::<Vec<_>>().join("\n")
}
