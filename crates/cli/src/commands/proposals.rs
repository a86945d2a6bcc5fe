//! `leasehold proposals`: lists and withdraws dangerous commands that wait for the approval of a second identity.

use clap::Subcommand;
use leasehold::json::ProposalBody;

use crate::global_args::GlobalArgs;
use crate::output::{CommandResult, json};
use crate::styled_text::StyledText;
use crate::table::{TextTable, format_duration};

/// List the commands that wait for the approval of a second identity
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  leasehold proposals\n  leasehold proposals cancel 17")]
pub struct Args {
    #[command(subcommand)]
    command: Option<ProposalsCommand>,
}

#[derive(Subcommand)]
enum ProposalsCommand {
    /// Withdraw a proposal
    #[command(after_help = "Example:\n  leasehold proposals cancel 17")]
    Cancel {
        /// Number of the proposal
        proposal: u64,
    },
}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    if let Some(ProposalsCommand::Cancel { proposal }) = &args.command {
        global.call(async |client| client.cancel_proposal(*proposal).await)?;
        return Ok(global.done(format!("withdrew proposal {proposal}")));
    }
    let proposals = global.call(async |client| client.proposals().await)?;
    let names = proposals.iter().map(|proposal| proposal.proposal.to_string());
    let output = global.listing(&proposals, names, || {
        let header = ["PROPOSAL", "COMMAND", "PROPOSED BY", "COMMENT", "EXPIRES IN", "DIGEST"];
        let mut table = TextTable::new(header).with_wide(global.is_wide(), ["ACTION", "RESOURCE", "WHOLE DIGEST"]);
        for proposal in &proposals {
            let cells = [
                proposal.proposal.to_string(),
                command_text(proposal),
                proposal.proposer.clone(),
                proposal.comment.clone(),
                format_duration(proposal.remaining_ms),
                proposal.digest.chars().take(16).collect(),
            ];
            table.row_with(cells, [proposal.action.clone(), proposal.resource.clone(), proposal.digest.clone()]);
        }
        let charters = proposals.iter().filter_map(|proposal| Some((proposal.proposal, proposal.charter.as_deref()?)));
        let charters = charters.map(|(id, charter)| format!("charter of proposal {id}: {}", json(charter)).into());
        StyledText::join([table.text()].into_iter().chain(charters), "\n\n")
    });
    Ok(global.or_empty(output, proposals.is_empty(), || {
        "no command waits for an approval; a proposal ends after 15 minutes".to_owned()
    }))
}

/// What a proposal would do, in the words of the command line.
pub fn command_text(proposal: &ProposalBody) -> String {
    let mut text = proposal.action.replace('_', " ");
    if !proposal.resource.is_empty() {
        text.push_str(&format!(" {}", proposal.resource));
    }
    if let Some(lease) = &proposal.lease {
        text.push_str(&format!(" lease {lease}"));
    }
    if let Some(leases) = proposal.leases {
        text.push_str(&format!(" ({leases} {})", if leases == 1 { "lease" } else { "leases" }));
    }
    if let Some(to) = &proposal.to {
        text.push_str(&format!(" to {to}"));
    }
    if let Some(mode) = &proposal.handoff_mode {
        text.push_str(&format!(" with {mode}"));
    }
    if let Some(drain_ms) = proposal.drain_ms {
        text.push_str(&format!(", drain {}", format_duration(drain_ms)));
    }
    if let Some(max_ttl_ms) = proposal.max_ttl_ms {
        text.push_str(&format!(" to {}", format_duration(max_ttl_ms)));
    }
    if let Some(grace_ms) = proposal.grace_ms.filter(|ms| *ms > 0) {
        text.push_str(&format!(" with {} grace", format_duration(grace_ms)));
    }
    text
}
