//! `leasehold trace`: the timeline of a resource as text, as a drawing, or as a page that contains its proof.

mod time_arg;
mod trace_data;

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use leasehold::{Code, Error};
use leasehold_server::dashboard::text::date_time;
use leasehold_server::dashboard::timeline::{TimelineEvent, events};
use leasehold_server::dashboard::trace_file::TraceFile;
use serde_json::json;

use crate::global_args::GlobalArgs;
use crate::output::{CommandError, CommandOutput, CommandResult};
use crate::part_file::PartFile;
use crate::styled_text::StyledText;
use crate::table::{TextTable, key_values, or_dash};
use time_arg::TimeArg;
use trace_data::{ChainResult, TraceData};

/// Show the timeline of a resource: holders, silences, gaps, refused writes
///
/// Reads the audit log. Without a format, prints one line for each event, oldest first, in UTC. --svg and --html write one file
/// without scripts and without references to other files. A page of --html contains the exported audit log from the first entry of
/// the resource on, so that `leasehold audit verify FILE` proves it without a server. If you may not export the audit log, the page
/// says that it has no proof, and the exit code is 6.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  leasehold trace jobs/settle
  leasehold trace jobs/settle --from 2h --to 1h
  leasehold trace jobs/settle --html --out incident-1042.html && leasehold audit verify incident-1042.html")]
pub struct Args {
    /// Resource
    resource: String,
    /// Write the drawing alone, as SVG
    #[arg(long, conflicts_with = "html")]
    svg: bool,
    /// Write a page with the drawing, the history and the audit chain
    #[arg(long)]
    html: bool,
    /// File to write, which must not exist; `-` for standard output [default: standard output]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Show only what happened from this time on: `2026-11-18T20:15:07Z`, milliseconds since 1970, or how long ago (`2h`)
    #[arg(long, value_name = "TIME")]
    from: Option<TimeArg>,
    /// Show only what happened up to this time
    #[arg(long, value_name = "TIME")]
    to: Option<TimeArg>,
    /// Mark a moment, such as that of a link of the dashboard (`?at=...`)
    #[arg(long, value_name = "TIME")]
    at: Option<TimeArg>,
    /// Read at most the latest N audit entries of the resource
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    limit: u32,
    /// Leave the audit chain out of the page, which then cannot be verified
    #[arg(long, requires = "html")]
    no_chain: bool,
}

/// The file to write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Svg,
    Html,
}

impl Format {
    const fn word(self) -> &'static str {
        match self {
            Self::Svg => "svg",
            Self::Html => "html",
        }
    }
}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    let format = match (args.svg, args.html) {
        (true, _) => Some(Format::Svg),
        (_, true) => Some(Format::Html),
        _ => None,
    };
    let target = check_output(args, format, global)?;
    let now_ms = wall_ms();
    let [from, to, at] = [args.from, args.to, args.at].map(|time| time.map(|time| time.at(now_ms)));
    if let (Some(from), Some(to)) = (from, to)
        && from >= to
    {
        return Err(invalid("to", "must be after --from").into());
    }
    let (data, chain) = global.with_client(async |client| {
        let mut data = TraceData::read(&client, &args.resource, args.limit, now_ms).await?;
        (data.parameters.from_ms, data.parameters.until_ms, data.parameters.at_ms) = (from, to, at);
        let chain = match format {
            Some(Format::Html) if !args.no_chain => data.read_chain(&client).await?,
            _ => ChainResult::Omitted,
        };
        Ok((data, chain))
    })?;
    let Some(format) = format else { return Ok(text_output(&data, global)) };
    write_document(&data, &chain, format, target, global)
}

/// Where the document goes. A document never fills a terminal by accident.
fn check_output<'a>(
    args: &'a Args,
    format: Option<Format>,
    global: &GlobalArgs,
) -> Result<Option<&'a Path>, CommandError> {
    let file = args.out.as_deref().filter(|out| *out != Path::new("-"));
    if format.is_none() {
        return match args.out {
            Some(_) => Err(invalid("out", "needs a format; pass --svg or --html").into()),
            None => Ok(None),
        };
    }
    if file.is_none() && global.format().is_document() {
        return Err(invalid("output", "standard output gets the drawing or page; pass --out FILE").into());
    }
    if args.out.is_none() && io::stdout().is_terminal() {
        return Err(
            invalid("out", "standard output is a terminal; pass --out FILE, or --out - to print the document").into()
        );
    }
    Ok(file)
}

fn invalid(field: &str, reason: &str) -> Error {
    Error::new(Code::InvalidArgument, format!("--{field}: {reason}"))
}

fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn write_document(
    data: &TraceData,
    chain: &ChainResult,
    format: Format,
    target: Option<&Path>,
    global: &GlobalArgs,
) -> CommandResult {
    let included = match chain {
        ChainResult::Included(chain) => Some(chain.as_str()),
        _ => None,
    };
    let file =
        TraceFile { parameters: &data.parameters, entries: &data.entries, head: data.head.clone(), chain: included };
    let document = match format {
        Format::Svg => file.svg(),
        Format::Html => file.html(),
    };
    let output = match target {
        None => {
            write_stdout(document.as_bytes())?;
            CommandOutput::EMPTY
        }
        Some(path) => {
            let mut part = PartFile::create(path)?;
            part.write(document.as_bytes())?;
            part.sync()?;
            part.commit()?;
            let name = path.display().to_string();
            let body = json!({
                "file": name, "format": format.word(), "resource": data.parameters.resource, "entries": data.entries.len(),
                "last": data.head.entry, "hash": data.head.hash, "has_chain": included.is_some(), "has_older": data.parameters.has_older,
            });
            global.output(&body, || {
                let chain = match (format, included.is_some()) {
                    (Format::Svg, _) => "none; only a page contains it",
                    (Format::Html, true) => "included; verify it with `leasehold audit verify`",
                    (Format::Html, false) => "none; the page cannot be verified",
                };
                key_values(&[
                    ("file", name),
                    ("entries", data.entries.len().to_string()),
                    ("last entry", data.head.entry.to_string()),
                    ("last hash", data.head.hash.clone()),
                    ("audit chain", chain.to_owned()),
                ])
            })
        }
    };
    let older = older_note(data);
    Ok(match chain {
        ChainResult::Missing(reason, exit) => {
            let missing = format!("the page has no audit chain: {reason}; pass --no-chain if that is intended");
            output.with_note(older).with_note(Some(missing)).with_exit(*exit)
        }
        _ => output.with_note(older),
    })
}

fn older_note(data: &TraceData) -> Option<String> {
    let oldest = data.entries.last().filter(|_| data.parameters.has_older)?;
    Some(format!("entries before {} were left out; raise --limit to read them", oldest.entry))
}

/// Writes bytes as they are: a document is no text for a terminal. A reader that has closed its end is not an error.
fn write_stdout(bytes: &[u8]) -> Result<(), CommandError> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(CommandError::Other(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

fn text_output(data: &TraceData, global: &GlobalArgs) -> CommandOutput {
    let parameters = &data.parameters;
    let timeline = parameters.timeline(&data.entries);
    let (from, to) = parameters.range_ms(&timeline);
    let mut shown = events(&timeline, &data.entries);
    shown.retain(|event| (from..=to).contains(&event.at_ms));
    let body = json!({
        "resource": parameters.resource, "sentence": data.sentence, "from_ms": from, "to_ms": to, "events": shown,
        "last": data.head.entry, "hash": data.head.hash, "has_older": parameters.has_older,
    });
    global.output(&body, || event_text(data, &shown)).with_note(older_note(data))
}

fn event_text(data: &TraceData, events: &[TimelineEvent]) -> StyledText {
    let state = data.sentence.clone().unwrap_or_else(|| "Free, or you may not see it.".to_owned());
    let lines = key_values(&[("resource", data.parameters.resource.clone()), ("state", state)]);
    let marked = data.parameters.at_ms.and_then(|at| events.iter().min_by_key(|event| event.at_ms.abs_diff(at)));
    let mut table = TextTable::new(["TIME (UTC)", "EVENT", "HOLDER", "NUMBER", "SLOT", "DETAIL"]);
    for event in events {
        let mark = if marked.is_some_and(|marked| std::ptr::eq(marked, event)) { " <--" } else { "" };
        table.row([
            date_time(event.at_ms),
            event.event.replace('_', " "),
            or_dash(Some(&event.holder).filter(|holder| !holder.is_empty())),
            or_dash(event.token_number.as_ref()),
            or_dash(event.slot),
            format!("{}{mark}", event.detail),
        ]);
    }
    StyledText::join([lines.into(), table.text()], "\n\n")
}
