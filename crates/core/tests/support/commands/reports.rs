//! Story commands for fence reports.

use leasehold_core::command::Command;
use leasehold_core::coverage::{FenceMode, FenceReport, RefusedZombie};
use leasehold_core::token::Cluster;

use super::{CLUSTER, LineParser, parse_comment};
use crate::support::tokenizer::WordReader;

pub fn parse<'a>(
    line: &LineParser<'a, '_>,
    at: &mut WordReader<'a>,
    lists: &'a mut Vec<FenceReport<'a>>,
) -> Result<Option<Command<'a>>, String> {
    if at.take("forget target") {
        let target = at.word("a target")?;
        at.must("of")?;
        return Ok(Some(Command::ForgetTarget {
            resource: at.word("a resource")?,
            target,
            comment: parse_comment(at)?,
        }));
    }
    if !at.take("report") {
        return Ok(None);
    }
    let target = at.word("a target")?;
    at.must("of")?;
    let resource = at.word("a resource")?;
    let mode = at.word("a mode")?;
    let mode = FenceMode::from_word(mode).ok_or_else(|| format!("{mode} is no mode"))?;
    let (slot, checks) = (0, 1);
    let none = (None, None);
    let mut report = FenceReport {
        resource,
        slot,
        target,
        mode,
        checks,
        refusals: 0,
        checked_ago_ms: 0,
        highest: none.0,
        zombie: none.1,
    };
    loop {
        if at.take("checks") {
            report.checks = at.number("a count")?;
        } else if at.take("slot") {
            report.slot = at.number("a slot")?;
        } else if at.take("highest") {
            report.highest = Some(line.presented_token(at)?.number);
        } else if at.take("refusing") {
            let presented = line.labels.number(at.word("a lease")?)?;
            at.must("below")?;
            let mark = line.labels.number(at.word("a lease")?)?;
            let times = if at.take("times") { at.number("a count")? } else { 1 };
            let holder = if at.take("by") { at.word("a holder")? } else { "" };
            report.zombie = Some(RefusedZombie { presented, mark, times, holder });
            report.refusals = 1;
        } else {
            break;
        }
    }
    let cluster = if at.take("elsewhere") { Cluster(*b"elsewher") } else { CLUSTER };
    lists.push(report);
    Ok(Some(Command::Report { cluster, reports: lists }))
}
