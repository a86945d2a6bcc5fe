//! `leasehold watch`: prints events as they happen, one line each.

use futures::TryStreamExt;
use leasehold::WatchItem;
use leasehold::json::EventBody;

use super::lease_text::lease_end;
use crate::global_args::GlobalArgs;
use crate::output::{CommandOutput, CommandResult, json, print_line, print_stderr};

/// Print events as they happen, until interrupted
///
/// With --json each event is one JSON document on one line. After a connection breaks, the command reconnects and reports
/// that on standard error; events in between are not printed.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold watch team/a")]
pub struct Args {
    /// Watch only resources under this prefix; a prefix consists of whole segments
    #[arg(default_value = "", hide_default_value = true)]
    prefix: String,
}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    global.with_client(async |client| {
        let mut watch = client.watch(&args.prefix).await?;
        print_stderr("leasehold: watching");
        while let Some(item) = watch.try_next().await? {
            let WatchItem::Event(event) = item else {
                print_stderr("leasehold: reconnected; events in between may be missing");
                continue;
            };
            let body = event.body();
            if !print_line(&if global.json { json(&body) } else { event_line(&body) })? {
                break;
            }
        }
        Ok(CommandOutput::EMPTY)
    })
}

fn event_line(event: &EventBody) -> String {
    let mut words = vec![format!("{:<8}", event.event)];
    words.extend(event.resource.clone());
    words.extend(event.holder.clone());
    words.extend(event.token_number.clone());
    if let (Some(target), Some(mark)) = (&event.target, &event.mark) {
        words.push(format!("below {mark} at {target}, {} times", event.times.unwrap_or(1)));
    }
    if let (Some(state), Some(reason)) = (&event.state, &event.reason) {
        words.push(lease_end(state, reason));
    }
    let members = event.cycle.iter().map(|member| format!("{} waits for {}", member.holder, member.waits_for));
    let cycle = members.collect::<Vec<_>>().join(", ");
    words.extend((!cycle.is_empty()).then_some(cycle));
    words.join("  ").chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}
