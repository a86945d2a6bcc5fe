//! Story commands of operators: revoke, handoff, charters, capacity and collection.

use leasehold_core::command::{Command, Handoff, HandoffMode, Revoke};
use leasehold_core::lease::EndReason;

use super::{Context, LineParser, parse_comment};
use crate::support::story_charters::charter;
use crate::support::tokenizer::WordReader;

pub fn parse<'a>(
    line: &LineParser<'a, '_>,
    at: &mut WordReader<'a>,
    context: &mut Context,
) -> Result<Option<Command<'a>>, String> {
    Ok(Some(if at.take("revoke") {
        let (selector, _) = line.selector(at)?;
        let mut revoke = Revoke { selector, reason: EndReason::Operator, comment: "", grace_ms: 0 };
        loop {
            if at.take("as") {
                let word = at.word("a reason")?;
                let known = EndReason::ALL.into_iter().find(|reason| reason.word() == word);
                revoke.reason = known.ok_or_else(|| format!("{word} is no reason"))?;
            } else if at.take("grace") {
                revoke.grace_ms = at.millis("a grace")?;
            } else if at.take("because") {
                revoke.comment = at.word("a comment")?;
            } else {
                break Command::Revoke(revoke);
            }
        }
    } else if at.take("free") {
        let resource = at.word("a resource")?;
        Command::Free { resource, comment: parse_comment(at)? }
    } else if at.take("hand off") {
        let (selector, lease) = line.selector(at)?;
        let number = lease.as_ref().map(|lease| lease.number);
        context.lease = lease;
        let mut handoff = Handoff { selector, number, to: None, mode: None, drain_ms: None };
        loop {
            if at.take("gap") {
                handoff.mode = Some(HandoffMode::Gap);
            } else if at.take("overlap") {
                handoff.mode = Some(HandoffMode::Overlap);
            } else if at.take("to") {
                handoff.to = Some(at.word("a holder")?);
            } else if at.take("drain") {
                handoff.drain_ms = Some(at.millis("a drain period")?);
            } else {
                break Command::Handoff(handoff);
            }
        }
    } else if at.take("capacity") {
        Command::SetCapacity { resource: at.word("a resource")?, units: at.number("units")? }
    } else if at.take("collect") {
        let resource = at.word("a resource")?;
        at.must("below")?;
        Command::Collect { resource, below: at.number("a position")? }
    } else if at.take("charter") {
        let prefix = at.word("a prefix")?;
        at.must("with")?;
        let charter = Box::new(charter(at)?);
        Command::SetCharter { prefix, charter, comment: "as the story says" }
    } else if at.take("remove charter") {
        Command::RemoveCharter { prefix: at.word("a prefix")?, comment: "as the story says" }
    } else if at.take("set max ttl") {
        let max_ttl_ms = at.millis("a longest ttl")?;
        Command::SetMaxTtl { max_ttl_ms, comment: parse_comment(at)? }
    } else if at.take("waive quarantine") {
        Command::WaiveQuarantine { comment: parse_comment(at)? }
    } else {
        return Ok(None);
    }))
}
