//! `leasehold approve`: approves and executes a command that another identity proposed.

use super::proposals::command_text;
use crate::global_args::GlobalArgs;
use crate::output::CommandResult;

/// Approve and execute a command that another identity proposed
///
/// The command is executed once, as it was proposed. The identity that proposed it cannot approve it. Read it with
/// `leasehold proposals` first; `--digest` makes sure that what you read is what is executed.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  leasehold approve 17\n  leasehold approve 17 --digest 5c5c5c5c5c5c5c5c")]
pub struct Args {
    /// Number of the proposal
    proposal: u64,
    /// First digits of its digest, at least 16, as `leasehold proposals` shows it
    #[arg(long, value_name = "HEX", value_parser = parse_digest)]
    digest: Option<String>,
}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    let approved = global.call(async |client| {
        let proposals = client.proposals().await?;
        let found = proposals.into_iter().find(|found| found.proposal == args.proposal);
        let is_expected = |digest: &str| args.digest.as_deref().is_none_or(|start| digest.starts_with(start));
        // The server refuses a digest that is not the proposal's, and a proposal that it does not have.
        let digest = found.as_ref().map(|found| found.digest.clone()).filter(|digest| is_expected(digest));
        client.approve(args.proposal, &digest.unwrap_or_else(|| NO_DIGEST.to_owned())).await?;
        Ok(found)
    })?;
    let what = approved.map_or_else(String::new, |found| format!(" of {}: {}", found.proposer, command_text(&found)));
    Ok(global.done(format!("approved and executed proposal {}{what}", args.proposal)))
}

/// Fewer digits than the list of proposals shows could be those of another command.
fn parse_digest(text: &str) -> Result<String, String> {
    let is_hex = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if is_hex && (16..=NO_DIGEST.len()).contains(&text.len()) {
        return Ok(text.to_owned());
    }
    Err("16 to 64 hexadecimal digits in lower case, as `leasehold proposals` shows them".to_owned())
}

/// The digest of no command.
const NO_DIGEST: &str = "0000000000000000000000000000000000000000000000000000000000000000";
