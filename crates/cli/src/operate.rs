//! `leasehold handoff`, `revoke`, `free` and `quarantine`: what operators do, with a reason on record.

use clap::Subcommand;
use leasehold::duration::Lasting;
use leasehold_core::charter::Style;
use leasehold_core::command::{HandOff, Revoke as Revocation, Which};
use leasehold_core::lease::Reason;

use crate::connection::Everywhere;
use crate::hold;
use crate::told::Outcome;

/// A reason that says something: it is all that somebody finds on record later.
pub fn in_writing(text: &str) -> Result<String, &'static str> {
    if text.trim().is_empty() { Err("say why in words; it goes on record") } else { Ok(text.to_owned()) }
}

/// Begin a planned transfer
///
/// The holder is told to finish and to release; then the successor is granted (gap), or it is granted at once and waits
/// for the predecessor before it claims (overlap).
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold handoff shards/7 --to worker-2 --gap")]
pub struct Handoff {
    /// The resource
    name: String,
    /// To whom, if not to the first waiter
    #[arg(long, value_name = "HOLDER")]
    to: Option<String>,
    /// Nobody holds it for a moment; never two
    #[arg(long, conflicts_with = "overlap")]
    gap: bool,
    /// Two hold it for a moment; never nobody
    #[arg(long)]
    overlap: bool,
    /// How long the predecessor may drain, if not as the charter says; a silent one gets no less than it was told
    #[arg(long, value_name = "DURATION")]
    drain: Option<Lasting>,
    /// The token's text, if its holder asks
    #[arg(long, value_name = "TOKEN", allow_hyphen_values = true)]
    token: Option<String>,
}

pub fn handoff(args: &Handoff, ask: &Everywhere) -> Outcome {
    let token = args.token.as_deref().map(hold::parse).transpose()?;
    let style = match (args.gap, args.overlap) {
        (true, _) => Some(Style::Gap),
        (_, true) => Some(Style::Overlap),
        _ => None,
    };
    let handoff = HandOff {
        which: Which::Resource(&args.name),
        number: None,
        to: args.to.as_deref(),
        style,
        drain_ms: args.drain.map(Lasting::millis),
    };
    ask.ask(async |client| client.hand_off(&handoff, token).await)?;
    Ok(ask.done(format!("{} is being handed over", args.name)))
}

/// Take all leases on a resource away
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold revoke jobs/settle --reason \"wrong version deployed\" --grace 5s")]
pub struct Revoke {
    /// The resource
    name: String,
    /// Why; it goes on record
    #[arg(long, value_name = "TEXT", value_parser = in_writing)]
    reason: String,
    /// Notice first, this long
    #[arg(long, value_name = "DURATION")]
    grace: Option<Lasting>,
}

pub fn revoke(args: &Revoke, ask: &Everywhere) -> Outcome {
    let revocation = Revocation {
        which: Which::Resource(&args.name),
        reason: Reason::Operator,
        why: &args.reason,
        grace_ms: args.grace.map_or(0, Lasting::millis),
    };
    ask.ask(async |client| client.revoke(&revocation).await)?;
    Ok(ask.done(match args.grace {
        Some(grace) => format!("{} ends within {grace}", args.name),
        None => format!("revoked {}", args.name),
    }))
}

/// Free a resource that a revocation left to an operator
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold free jobs/settle --reason \"books were compared by hand\"")]
pub struct Free {
    /// The resource
    name: String,
    /// Why; it goes on record
    #[arg(long, value_name = "TEXT", value_parser = in_writing)]
    reason: String,
}

pub fn free(args: &Free, ask: &Everywhere) -> Outcome {
    ask.ask(async |client| client.free(&args.name, &args.reason).await)?;
    Ok(ask.done(format!("freed {}", args.name)))
}

/// What follows a restore or a rollback
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold quarantine waive --reason \"every old holder is switched off\"")]
pub struct Quarantine {
    #[command(subcommand)]
    what: WhatOfIt,
}

#[derive(Subcommand)]
enum WhatOfIt {
    /// End it before its time
    ///
    /// Holders from before the restore may still act. Waive it only if every one of them is known to have stopped.
    #[command(after_help = "Example:\n  leasehold quarantine waive --reason \"every old holder is switched off\"")]
    Waive {
        /// Why; it goes on record
        #[arg(long, value_name = "TEXT", value_parser = in_writing)]
        reason: String,
    },
}

pub fn quarantine(args: &Quarantine, ask: &Everywhere) -> Outcome {
    let WhatOfIt::Waive { reason } = &args.what;
    ask.ask(async |client| client.waive_quarantine(reason).await)?;
    Ok(ask.done("the quarantine is over".to_owned()))
}
