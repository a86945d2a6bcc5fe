//! Story commands of holders: acquire, renew, release and others.

use leasehold_core::command::{Acquire, AcquireAll, AcquireOptions, Command, LeaseRef, Renew};
use leasehold_core::ids::SessionId;
use leasehold_core::lease::Access;

use super::{Context, LineParser};
use crate::support::tokenizer::WordReader;

pub fn parse_acquire<'a>(
    line: &mut LineParser<'a, '_>,
    at: &mut WordReader<'a>,
    context: &mut Context,
    lists: &'a mut Vec<(&'a str, Access)>,
) -> Result<Option<Command<'a>>, String> {
    Ok(Some(if at.take("acquire all") {
        *lists = resources(at)?;
        context.names = lists.iter().map(|(name, _)| (*name).to_owned()).collect();
        let args = acquire_args(line, at)?;
        Command::AcquireAll(AcquireAll {
            resources: lists,
            holder: args.holder,
            session: args.session,
            ttl_ms: args.ttl_ms,
            options: args.options,
        })
    } else if at.take("acquire") {
        let resource = at.word("a resource")?;
        let (access, slots) = access(at)?;
        context.names = vec![resource.to_owned()];
        let args = acquire_args(line, at)?;
        let (holder, session, ttl_ms, options) = (args.holder, args.session, args.ttl_ms, args.options);
        Command::Acquire(Acquire { resource, holder, session, access, slots, ttl_ms, options })
    } else if at.take("cancel request") {
        let sequence = at.number("a sequence")?;
        at.must("of")?;
        Command::Cancel { session: line.labels.session(at.word("a session")?)?.0, sequence }
    } else {
        return Ok(None);
    }))
}

/// Commands of a holder on its own lease.
pub fn parse_lease_command<'a>(
    line: &LineParser<'a, '_>,
    at: &mut WordReader<'a>,
    context: &mut Context,
) -> Result<Option<Command<'a>>, String> {
    let mut held = |at: &mut WordReader<'a>| -> Result<LeaseRef<'a>, String> {
        let (held, lease) = line.held(at)?;
        context.lease = Some(lease);
        Ok(held)
    };
    Ok(Some(if at.take("renew") {
        let held = held(at)?;
        let (mut ttl_ms, mut progress) = (None, None);
        loop {
            if at.take("ttl") {
                ttl_ms = Some(at.millis("a ttl")?);
            } else if at.take("progress") {
                progress = Some(at.number("a position")?);
            } else {
                break Command::Renew(Renew { lease: held, ttl_ms, progress });
            }
        }
    } else if at.take("release") {
        Command::Release(held(at)?)
    } else if at.take("confirm hold") {
        Command::ConfirmHold(held(at)?)
    } else if at.take("confirm") {
        Command::Confirm(held(at)?)
    } else if at.take("rotate") {
        Command::Rotate(held(at)?)
    } else if at.take("progress") {
        let held = held(at)?;
        at.must("at")?;
        Command::Progress { lease: held, at: at.number("a position")? }
    } else if at.take("drained") {
        Command::Drained(held(at)?)
    } else if at.take("resize hold") {
        let held = held(at)?;
        at.must("to")?;
        Command::ResizeHold { lease: held, units: at.number("units")? }
    } else if at.take("veto") {
        let held = held(at)?;
        at.must("for")?;
        Command::Veto { lease: held, for_ms: at.millis("a span")? }
    } else if at.take("pin") {
        let held = held(at)?;
        at.must("at")?;
        Command::Pin { lease: held, at: at.number("a position")? }
    } else if at.take("put") {
        let (key, value) = (at.word("a key")?, at.word("a value")?);
        at.must("with")?;
        let held = held(at)?;
        Command::Put { lease: held, key, bytes: Some(value.as_bytes()), expect: expect(at)? }
    } else if at.take("delete") {
        let key = at.word("a key")?;
        at.must("with")?;
        let held = held(at)?;
        Command::Put { lease: held, key, bytes: None, expect: expect(at)? }
    } else {
        return Ok(None);
    }))
}

/// Parses the holder and the options of an acquire.
struct AcquireArgs<'a> {
    holder: &'a str,
    session: Option<SessionId>,
    ttl_ms: Option<u64>,
    options: AcquireOptions<'a>,
}

fn acquire_args<'a>(line: &mut LineParser<'a, '_>, at: &mut WordReader<'a>) -> Result<AcquireArgs<'a>, String> {
    let mut args = AcquireArgs { holder: "", session: None, ttl_ms: None, options: AcquireOptions::DEFAULT };
    loop {
        if at.take("by") {
            args.holder = at.word("a holder")?;
        } else if at.take("in") {
            args.session = Some(line.session(at)?);
        } else if at.take("ttl") {
            args.ttl_ms = Some(at.millis("a ttl")?);
        } else if at.take("wait") {
            args.options.wait_ms = at.millis("a wait")?;
        } else if at.take("priority") {
            args.options.priority = at.number("a priority")?;
        } else if at.take("again and again") {
            args.options.reentrant = true;
        } else if at.take("max hold") {
            args.options.max_hold_ms = Some(at.millis("a maximum hold")?);
        } else if at.take("progress") {
            args.options.progress_ms = Some(at.millis("a progress window")?);
        } else if at.take("metadata") {
            args.options.metadata = at.word("metadata")?.as_bytes();
        } else if !line.option(at)? {
            return Ok(args);
        }
    }
}

fn access(at: &mut WordReader<'_>) -> Result<(Access, Option<u32>), String> {
    Ok(if at.take("shared") {
        (Access::Shared, None)
    } else if at.take("one of") {
        (Access::Slot, Some(at.number("slots")?))
    } else if at.take("one slot") {
        (Access::Slot, None)
    } else if at.take("units") {
        (Access::Units(at.number("units")?), None)
    } else {
        (Access::Exclusive, None)
    })
}

fn resources<'a>(at: &mut WordReader<'a>) -> Result<Vec<(&'a str, Access)>, String> {
    let mut resources = Vec::new();
    loop {
        let resource = at.word("a resource")?;
        resources.push((resource, access(at)?.0));
        if !at.take("and") {
            return Ok(resources);
        }
    }
}

fn expect(at: &mut WordReader<'_>) -> Result<Option<u64>, String> {
    if at.take("expecting") { at.number("a revision").map(Some) } else { Ok(None) }
}
