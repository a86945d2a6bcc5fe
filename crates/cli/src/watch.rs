//! `leasehold watch`: events as they happen, one line each.

use leasehold::Watched;
use leasehold::json::EventBody;

use crate::connection::Everywhere;
use crate::told::{Answer, Outcome, complain, json, write};

/// Print events as they happen, until interrupted
///
/// With --json each event is one JSON document on one line. A broken connection is made again, and standard error says
/// so: what happened in between is not told.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold watch team/a")]
pub struct Args {
    /// Only what lies under this prefix of whole segments
    #[arg(default_value = "", hide_default_value = true)]
    prefix: String,
}

pub fn run(args: &Args, ask: &Everywhere) -> Outcome {
    ask.run(async |client| {
        let mut watch = client.watch(&args.prefix).await?;
        complain("leasehold: watching");
        loop {
            match watch.next().await? {
                Watched::Event(happened) => {
                    let body = happened.body();
                    if !write(&if ask.json { json(&body) } else { line(&body) })? {
                        return Ok(Answer::WRITTEN);
                    }
                }
                Watched::Again => complain("leasehold: connected again; what happened in between is not told"),
            }
        }
    })
}

fn line(event: &EventBody) -> String {
    let mut words = vec![format!("{:<8}", event.event)];
    words.extend(event.resource.clone());
    words.extend(event.holder.clone());
    words.extend(event.token_number.clone());
    if let (Some(target), Some(mark)) = (&event.target, &event.mark) {
        words.push(format!("below {mark} at {target}, {} times", event.times.unwrap_or(1)));
    }
    if let (Some(state), Some(reason)) = (&event.state, &event.reason) {
        words.push(format!("{state}: {reason}"));
    }
    let members = event.cycle.iter().map(|member| format!("{} waits for {}", member.holder, member.waits_for));
    let cycle = members.collect::<Vec<_>>().join(", ");
    words.extend((!cycle.is_empty()).then_some(cycle));
    words.join("  ").chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}
