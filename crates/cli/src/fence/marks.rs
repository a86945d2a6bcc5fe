//! `leasehold fence marks`: list the marks of a target.

use leasehold_fence::{Mark, MarkInfo};
use serde_json::{Value, json};

use crate::global_args::GlobalArgs;
use crate::output::CommandResult;
use crate::shell_text::quote;
use crate::styled_text::StyledText;
use crate::table::{TextTable, or_dash};
use crate::target::{AddressParser, TargetAddress, display_name};

/// List the marks (highest admitted token numbers) of a target
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold fence marks postgres://app@db/ledger")]
pub struct Args {
    /// Address of the target
    #[arg(value_name = "TARGET", value_parser = AddressParser::new(TargetAddress::parse))]
    target: TargetAddress,
}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    let marks = global.with_client(async |_| args.target.marks().await)?;
    let body: Vec<Value> = marks.iter().map(json_body).collect();
    let names = marks.iter().map(|mark| display_name(mark).to_owned());
    let output = global.listing(&body, names, || text_table(&marks, global.is_wide()));
    Ok(global.or_empty(output, marks.is_empty(), || {
        let target = args.target.redacted();
        format!("{target} has no marks; arm a fence with `leasehold fence arm {} --resource NAME`", quote(&target))
    }))
}

fn state(mark: Mark) -> &'static str {
    match mark {
        Mark::Armed(_) => "armed",
        Mark::Fresh => "fresh",
        Mark::Lost => "lost",
    }
}

/// The number of a mark as a string, because JSON numbers lose precision.
fn number(mark: Mark) -> Option<String> {
    match mark {
        Mark::Armed(mark) => Some(mark.to_string()),
        Mark::Fresh | Mark::Lost => None,
    }
}

fn json_body(info: &MarkInfo) -> Value {
    json!({
        "cluster": info.cluster.to_string(),
        "resource": info.name,
        "resource_hash": info.resource_hash,
        "slot": info.slot,
        "state": state(info.mark),
        "mark": number(info.mark),
        "incarnation": info.incarnation.map(|incarnation| incarnation.to_string()),
        "strict": info.strict,
        "sealed": info.sealed,
    })
}

fn yes_or_no(flag: bool) -> String {
    if flag { "yes" } else { "no" }.to_owned()
}

fn text_table(marks: &[MarkInfo], is_wide: bool) -> StyledText {
    let header = ["RESOURCE", "SLOT", "STATE", "MARK", "CLUSTER", "INCARNATION", "STRICT", "SEALED"];
    let mut table = TextTable::new(header).with_wide(is_wide, ["RESOURCE HASH"]);
    for info in marks {
        let cells = [
            display_name(info).to_owned(),
            info.slot.to_string(),
            state(info.mark).to_owned(),
            or_dash(number(info.mark)),
            info.cluster.to_string(),
            or_dash(info.incarnation),
            yes_or_no(info.strict),
            yes_or_no(info.sealed),
        ];
        table.row_with(cells, [info.resource_hash.clone()]);
    }
    table.text()
}
