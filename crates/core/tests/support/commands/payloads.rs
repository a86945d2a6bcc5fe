//! Story commands for queues and cached keys.

use leasehold_core::command::Command;
use leasehold_core::ids::SessionId;
use leasehold_core::payload::{cache, delivery};
use leasehold_core::token::Number;

use super::{Context, LineParser};
use crate::support::labels::Labels;
use crate::support::tokenizer::WordReader;

pub fn parse<'a>(
    line: &LineParser<'a, '_>,
    at: &mut WordReader<'a>,
    context: &mut Context,
) -> Result<Option<Command<'a>>, String> {
    if at.take("renew read") {
        let (key, lease) = cached(line.labels, at, context)?;
        return Ok(Some(Command::Cache(cache::CacheCommand::RenewRead { key, lease })));
    }
    if let Some(command) = delivery(line.labels, at, context)? {
        return Ok(Some(Command::Delivery(command)));
    }
    Ok(cache(line, at, context)?.map(Command::Cache))
}

fn delivery<'a>(
    labels: &Labels,
    at: &mut WordReader<'a>,
    context: &mut Context,
) -> Result<Option<delivery::DeliveryCommand<'a>>, String> {
    use delivery::DeliveryCommand::{Ack, Drop, Enqueue, Extend, Nack, Receive, Redrive};
    let mut receipt = |at: &mut WordReader<'a>| -> Result<(&'a str, u64, Number), String> {
        let queue = at.word("a queue")?;
        let (_, item, receipt) = labels.receipt(at.word("a receipt")?)?;
        context.message = item;
        Ok((queue, item, receipt))
    };
    Ok(Some(if at.take("enqueue") {
        let queue = at.word("a queue")?;
        let body = at.word("a message")?.as_bytes();
        context.names = vec![queue.to_owned()];
        let delay_ms = if at.take("delay") { at.millis("a delay")? } else { 0 };
        let max_attempts = if at.take("attempts") { Some(at.number("attempts")?) } else { None };
        Enqueue { queue, body, delay_ms, max_attempts }
    } else if at.take("receive") {
        let queue = at.word("a queue")?;
        context.names = vec![queue.to_owned()];
        let (mut session, mut holder, mut visibility_ms, mut limit) = (None, "worker", 0, 1);
        loop {
            if at.take("by") {
                holder = at.word("a holder")?;
            } else if at.take("in") {
                session = Some(labels.session(at.word("a session")?)?.0);
            } else if at.take("for") {
                visibility_ms = at.millis("a visibility")?;
            } else if at.take("most") {
                limit = at.number("how many")?;
            } else {
                break Receive { queue, session, holder, visibility_ms, limit };
            }
        }
    } else if at.take("extend") {
        let (queue, item, receipt) = receipt(at)?;
        at.must("for")?;
        Extend { queue, item, receipt, visibility_ms: at.millis("a visibility")? }
    } else if at.take("ack") {
        let (queue, item, receipt) = receipt(at)?;
        Ack { queue, item, receipt }
    } else if at.take("nack") {
        let (queue, item, receipt) = receipt(at)?;
        let delay_ms = if at.take("delay") { at.millis("a delay")? } else { 0 };
        Nack { queue, item, receipt, delay_ms }
    } else if at.take("redrive") {
        let queue = at.word("a queue")?;
        Redrive { queue, item: labels.message(at.word("a message")?)?.1 }
    } else if at.take("drop") {
        let queue = at.word("a queue")?;
        Drop { queue, item: labels.message(at.word("a message")?)?.1 }
    } else {
        return Ok(None);
    }))
}

fn cache<'a>(
    line: &LineParser<'a, '_>,
    at: &mut WordReader<'a>,
    context: &mut Context,
) -> Result<Option<cache::CacheCommand<'a>>, String> {
    use cache::CacheCommand::{Abort, Commit, Filled, GetOrFill, Intend, Invalidated, Read};
    let labels = line.labels;
    let who = |at: &mut WordReader<'a>,
               context: &mut Context|
     -> Result<(&'a str, Option<SessionId>, &'a str, u64), String> {
        let key = at.word("a key")?;
        context.names = vec![key.to_owned()];
        let (mut session, mut holder, mut ttl_ms) = (None, "reader", 0);
        loop {
            if at.take("by") {
                holder = at.word("a holder")?;
            } else if at.take("in") {
                session = Some(line.session(at)?);
            } else if at.take("for") {
                ttl_ms = at.millis("a span")?;
            } else {
                return Ok((key, session, holder, ttl_ms));
            }
        }
    };
    Ok(Some(if at.take("read") {
        let (key, session, reader, ttl_ms) = who(at, context)?;
        Read { key, session, reader, ttl_ms }
    } else if at.take("invalidated") {
        let (key, lease) = cached(labels, at, context)?;
        Invalidated { key, lease }
    } else if at.take("intend") {
        let (key, session, writer, ttl_ms) = who(at, context)?;
        Intend { key, session, writer, ttl_ms }
    } else if at.take("commit") {
        let (key, intent) = cached(labels, at, context)?;
        Commit { key, intent }
    } else if at.take("abort") {
        let (key, number) = cached(labels, at, context)?;
        Abort { key, number }
    } else if at.take("get or fill") {
        let (key, session, reader, ttl_ms) = who(at, context)?;
        let missing = if at.take("missing") { Some(labels.number(at.word("a version")?)?.get()) } else { None };
        GetOrFill { key, session, reader, ttl_ms, missing }
    } else if at.take("filled") {
        let (key, token) = cached(labels, at, context)?;
        Filled { key, token }
    } else {
        return Ok(None);
    }))
}

fn cached<'a>(labels: &Labels, at: &mut WordReader<'a>, context: &mut Context) -> Result<(&'a str, Number), String> {
    let key = at.word("a key")?;
    context.names = vec![key.to_owned()];
    Ok((key, labels.cached(at.word("a label")?)?.1))
}
