//! What is asked by those who have a say over all: operators, collectors, charters.

use leasehold_core::command::{Command, HandOff, Revoke, Style};
use leasehold_core::lease::Reason;

use super::{About, Context, because};
use crate::support::charters::charter;
use crate::support::words::Words;

pub fn asked<'a>(
    about: &About<'a, '_>,
    at: &mut Words<'a>,
    context: &mut Context,
) -> Result<Option<Command<'a>>, String> {
    Ok(Some(if at.take("revoke") {
        let (which, _) = about.which(at)?;
        let mut revoke = Revoke { which, reason: Reason::Operator, why: "", grace_ms: 0 };
        loop {
            if at.take("as") {
                let word = at.word("a reason")?;
                let known = Reason::ALL.into_iter().find(|reason| reason.word() == word);
                revoke.reason = known.ok_or_else(|| format!("{word} is no reason"))?;
            } else if at.take("grace") {
                revoke.grace_ms = at.millis("a grace")?;
            } else if at.take("because") {
                revoke.why = at.word("why")?;
            } else {
                break Command::Revoke(revoke);
            }
        }
    } else if at.take("free") {
        let resource = at.word("a resource")?;
        Command::Free { resource, why: because(at)? }
    } else if at.take("hand off") {
        let (which, lease) = about.which(at)?;
        let number = lease.as_ref().map(|lease| lease.number);
        context.lease = lease;
        let mut handoff = HandOff { which, number, to: None, style: None, drain_ms: None };
        loop {
            if at.take("gap") {
                handoff.style = Some(Style::Gap);
            } else if at.take("overlap") {
                handoff.style = Some(Style::Overlap);
            } else if at.take("to") {
                handoff.to = Some(at.word("a holder")?);
            } else if at.take("drain") {
                handoff.drain_ms = Some(at.millis("a drain period")?);
            } else {
                break Command::HandOff(handoff);
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
        Command::SetCharter { prefix, charter, why: "as the story says" }
    } else if at.take("remove charter") {
        Command::RemoveCharter { prefix: at.word("a prefix")?, why: "as the story says" }
    } else if at.take("waive quarantine") {
        Command::WaiveQuarantine { why: because(at)? }
    } else {
        return Ok(None);
    }))
}
