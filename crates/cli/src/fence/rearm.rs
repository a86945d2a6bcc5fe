//! `leasehold fence rearm`: set the marks of a target that was restored or failed over.

use leasehold::{Code, Error};
use leasehold_core::token::Number;
use leasehold_fence::{FenceId, Mark};

use super::selection::{FenceSelection, SelectedFence, cluster_and_counter, describe};
use crate::global_args::GlobalArgs;
use crate::output::{CommandError, CommandResult};

/// Re-arm fences after their target was restored or failed over
///
/// Sets the mark to a number that is not below the token of any earlier holder: the highest number that the server has issued,
/// or --floor. The current holder must acquire again before it can write. A floor below a mark is rejected; all marks are
/// checked before the first one changes. In etcd and NATS, a mark that was deleted is created, if --resource names it.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold fence rearm postgres://app@db/ledger --resource jobs/settle")]
pub struct Args {
    #[command(flatten)]
    selection: FenceSelection,
    /// New mark [default: the highest number that the server has issued]
    #[arg(long, value_name = "NUMBER", value_parser = parse_number)]
    floor: Option<Number>,
}

/// Parses a token number.
pub fn parse_number(text: &str) -> Result<Number, String> {
    let number = text.parse().ok().and_then(Number::new);
    number.ok_or_else(|| "expected a token number from 1 to 9223372036854775807".to_owned())
}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    let (fences, floor) = global.with_client(async |client| {
        let fences = args.selection.resolve_or_create(&client).await?;
        let floor = match args.floor {
            Some(floor) => floor,
            None => {
                let (cluster, counter) = cluster_and_counter(&client).await?;
                if let Some(other) = fences.iter().map(|fence| &fence.id).find(|id| id.cluster() != cluster) {
                    let (resource, expected) = (other.resource(), other.cluster());
                    let message =
                        format!("the fence of {resource} belongs to cluster {expected}, the server to {cluster}");
                    let error = Error::new(Code::WrongCluster, message);
                    return Err(error.with_next_step("Pass --addr of a server of that cluster.").into());
                }
                counter
            }
        };
        ensure_not_below(&fences, floor)?;
        let rearm = async |fence: &FenceId| args.selection.target.rearm(fence, floor).await;
        args.selection.change_each(&fences, rearm).await?;
        Ok((fences, floor))
    })?;
    Ok(global.done(describe(&fences, &format!("re-armed at {floor}"))))
}

/// Fails if a mark is above the floor. A lost mark shows no number: its fence checks the floor itself.
fn ensure_not_below(fences: &[SelectedFence], floor: Number) -> Result<(), CommandError> {
    let above = fences.iter().filter_map(|fence| match fence.mark {
        Mark::Armed(mark) if mark > floor => Some(format!("{} is at {mark}", fence.id)),
        Mark::Armed(_) | Mark::Fresh | Mark::Lost => None,
    });
    let above: Vec<String> = above.collect();
    if above.is_empty() {
        return Ok(());
    }
    let message =
        format!("the floor {floor} is below a mark: {}; nothing changed, use a higher floor", above.join(", "));
    Err(Error::new(Code::Conflict, message).with_next_step("Pass --floor with a higher number.").into())
}
