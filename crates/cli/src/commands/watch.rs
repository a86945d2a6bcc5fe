//! `leasehold watch`: prints events as they happen, one line each.

use futures::TryStreamExt;
use leasehold::WatchItem;
use leasehold::json::EventBody;

use super::lease_text::lease_end;
use crate::global_args::GlobalArgs;
use crate::output::{CommandOutput, CommandResult, print_line, print_stderr, stream_document};
use crate::output_format::OutputFormat;
use crate::table::format_time;
use crate::terminal_text::escape_line;

/// Print events as they happen, until interrupted
///
/// Each event has the time at which it became durable, by the server's clock.
///
/// With -o json each event is one JSON document on one line, with -o yaml each follows a line `---`, and -o name prints the
/// resource of each event. After a connection breaks, the command reconnects and reports
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
            let line = match global.format() {
                format if format.is_document() => stream_document(format, &body),
                OutputFormat::Name => match &body.resource {
                    Some(resource) => escape_line(resource).into_owned(),
                    None => continue,
                },
                _ => event_line(&body),
            };
            if !print_line(&line)? {
                break;
            }
        }
        Ok(CommandOutput::EMPTY)
    })
}

fn event_line(event: &EventBody) -> String {
    let mut words: Vec<_> = event.wall_ms.map(format_time).into_iter().collect();
    words.push(format!("{:<8}", event.event));
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
    escape_line(&words.join("  ")).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_has_its_time_and_cannot_control_the_terminal() {
        let event = EventBody {
            event: "granted".into(),
            wall_ms: Some(1_770_000_000_020),
            resource: Some("jobs/settle".into()),
            holder: Some("w\u{1b}[31m\n1".into()),
            token_number: Some("7".into()),
            ..EventBody::default()
        };
        assert_eq!(event_line(&event), "2026-02-02 02:40:00Z  granted   jobs/settle  w\\u{1b}[31m\\n1  7");
    }
}
