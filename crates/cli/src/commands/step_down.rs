//! `leasehold step-down`: hands leadership to a standby.

use std::time::{Duration, Instant};

use serde_json::json;

use super::alone_arg::AloneArg;
use super::cluster::fetch_status;
use crate::global_args::GlobalArgs;
use crate::output::CommandResult;

/// Time to wait until another server leads.
const TAKEOVER_TIMEOUT: Duration = Duration::from_secs(30);

/// Make the leader step down in favor of a standby
///
/// The leader answers accepted requests, transfers leadership to a standby in one transaction, and becomes a standby. No
/// lease ends. Fails if the journal is on one machine, or if no server is a standby.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold step-down")]
pub struct Args {
    #[command(flatten)]
    alone: AloneArg,
}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    let (old, new) = global.with_client(async |client| {
        let before = client.cluster().await?;
        let old = before.leader.clone().unwrap_or_default();
        args.alone.apply(&client).step_down().await?;
        let others = before.servers.iter().filter(|address| **address != old && client.may_contact(address));
        let others: Vec<_> = others.collect();
        let started = Instant::now();
        loop {
            // A server reports that it leads only once it can decide requests.
            for address in &others {
                if fetch_status(&client, address).await.is_ok_and(|status| status.role == "leader") {
                    return Ok((old, Some((*address).clone())));
                }
            }
            if others.is_empty() || started.elapsed() > TAKEOVER_TIMEOUT {
                return Ok((old, None));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })?;
    let body = json!({ "done": true, "before": old, "leader": new });
    let note = new.is_none().then(|| "no server leads yet; run leasehold cluster status".to_owned());
    let text = || match &new {
        Some(new) => format!("{old} stepped down; {new} leads"),
        None => format!("{old} stepped down"),
    };
    Ok(global.output(&body, text).with_note(note))
}
