//! Encoding and decoding of commands and answers for small state, queues and cached keys.

use std::fmt;

use leasehold_core::command::Command;
use leasehold_core::name::resource_hash;
use leasehold_core::payload::{cache, delivery};
use leasehold_core::refusal::Refusal;
use leasehold_core::time::GrantorTime;
use leasehold_core::token::{Number, Token, TokenScope};

use crate::command_context::{CommandContext, TokenIssuer};
use crate::enums::{decode_number, missing_field};
use crate::lease::decode_lease_ref;
use crate::{session_bits, v1};

pub(crate) fn decode_put<'a>(from: &'a v1::Put, caller: &CommandContext) -> Result<Command<'a>, Refusal> {
    Ok(Command::Put {
        lease: decode_lease_ref(from.lease.as_ref(), caller)?,
        key: &from.key,
        bytes: from.value.as_deref(),
        expect: from.expected_revision,
    })
}

pub(crate) fn decode_delivery<'a>(
    from: &'a v1::DeliveryCommand,
    caller: &CommandContext,
) -> Result<delivery::DeliveryCommand<'a>, Refusal> {
    use v1::delivery_command::Command as Wire;
    let queue = from.queue.as_str();
    let receipt = |of: Option<&v1::Receipt>| {
        let of = of.ok_or(missing_field("receipt"))?;
        Ok::<_, Refusal>((of.item, decode_number(of.receipt)?))
    };
    Ok(match from.command.as_ref().ok_or(missing_field("delivery"))? {
        Wire::Enqueue(enqueue) => delivery::DeliveryCommand::Enqueue {
            queue,
            body: &enqueue.body,
            delay_ms: enqueue.delay_ms,
            max_attempts: enqueue.max_attempts,
        },
        Wire::Receive(receive) if receive.wait_ms > 0 => {
            let reason = "only in a unary call; on a session stream, receive again after the event `ready`";
            return Err(Refusal::Invalid { field: "wait", reason });
        }
        Wire::Receive(receive) => delivery::DeliveryCommand::Receive {
            queue,
            session: caller.session_for(receive.session)?,
            holder: &receive.holder,
            visibility_ms: receive.visibility_ms,
            limit: receive.limit,
        },
        Wire::Extend(extend) => {
            let (item, receipt) = receipt(extend.delivery.as_ref())?;
            delivery::DeliveryCommand::Extend { queue, item, receipt, visibility_ms: extend.visibility_ms }
        }
        Wire::Ack(ack) => {
            let (item, receipt) = receipt(Some(ack))?;
            delivery::DeliveryCommand::Ack { queue, item, receipt }
        }
        Wire::Nack(nack) => {
            let (item, receipt) = receipt(nack.delivery.as_ref())?;
            delivery::DeliveryCommand::Nack { queue, item, receipt, delay_ms: nack.delay_ms }
        }
        Wire::Redrive(item) => delivery::DeliveryCommand::Redrive { queue, item: *item },
        Wire::Drop(item) => delivery::DeliveryCommand::Drop { queue, item: *item },
    })
}

impl From<&delivery::DeliveryCommand<'_>> for v1::DeliveryCommand {
    fn from(from: &delivery::DeliveryCommand<'_>) -> Self {
        use v1::delivery_command::Command as Wire;
        let of = |item: u64, receipt: Number| v1::Receipt { item, receipt: receipt.get() };
        let (queue, command) = match *from {
            delivery::DeliveryCommand::Enqueue { queue, body, delay_ms, max_attempts } => {
                (queue, Wire::Enqueue(v1::Enqueue { body: body.into(), delay_ms, max_attempts }))
            }
            delivery::DeliveryCommand::Receive { queue, session, holder, visibility_ms, limit } => (
                queue,
                Wire::Receive(v1::Receive {
                    holder: holder.into(),
                    session: session.map(session_bits),
                    visibility_ms,
                    limit,
                    wait_ms: 0,
                }),
            ),
            delivery::DeliveryCommand::Extend { queue, item, receipt, visibility_ms } => {
                (queue, Wire::Extend(v1::Extend { delivery: Some(of(item, receipt)), visibility_ms }))
            }
            delivery::DeliveryCommand::Ack { queue, item, receipt } => (queue, Wire::Ack(of(item, receipt))),
            delivery::DeliveryCommand::Nack { queue, item, receipt, delay_ms } => {
                (queue, Wire::Nack(v1::Nack { delivery: Some(of(item, receipt)), delay_ms }))
            }
            delivery::DeliveryCommand::Redrive { queue, item } => (queue, Wire::Redrive(item)),
            delivery::DeliveryCommand::Drop { queue, item } => (queue, Wire::Drop(item)),
        };
        Self { queue: queue.into(), command: Some(command) }
    }
}

/// The resource of one delivery: every message is a resource of its own.
pub fn delivery_resource(queue: &str, item: u64) -> String {
    format!("{queue}/{item}")
}

/// The fencing token of one delivery; `None` if the receipt is no number.
pub fn delivery_token(issuer: &TokenIssuer, resource: &str, receipt: u64) -> Option<Token> {
    let number = Number::new(receipt)?;
    let (cluster, incarnation) = (issuer.cluster, issuer.incarnation);
    Some(Token { cluster, incarnation, resource: resource_hash(resource), scope: TokenScope::Slot(0), number })
}

impl From<&delivery::DeliveryAnswer> for v1::DeliveryAnswer {
    fn from(from: &delivery::DeliveryAnswer) -> Self {
        use v1::delivery_answer::Answer;
        let delivered = |one: &delivery::DeliveredMessage| v1::Delivery {
            item: one.item,
            token: String::new(),
            receipt: one.receipt.get(),
            attempt: one.attempt,
            body: one.body.to_vec(),
            remaining_ms: one.remaining_ms,
            secret: Vec::new(),
        };
        let done = v1::Done {};
        let answer = match from {
            delivery::DeliveryAnswer::Enqueued { item } => Answer::Enqueued(*item),
            delivery::DeliveryAnswer::Received(items) => {
                Answer::Received(v1::Deliveries { deliveries: items.iter().map(delivered).collect() })
            }
            delivery::DeliveryAnswer::Extended { remaining_ms } => Answer::ExtendedMs(*remaining_ms),
            delivery::DeliveryAnswer::Acked => Answer::Acked(done),
            delivery::DeliveryAnswer::Returned { dead } => Answer::ReturnedDead(*dead),
            delivery::DeliveryAnswer::Redriven => Answer::Redriven(done),
            delivery::DeliveryAnswer::Dropped => Answer::Dropped(done),
        };
        Self { answer: Some(answer) }
    }
}

pub(crate) fn decode_delivery_answer(from: &v1::DeliveryAnswer) -> Result<delivery::DeliveryAnswer, Refusal> {
    use v1::delivery_answer::Answer;
    let delivered = |one: &v1::Delivery| {
        Ok(delivery::DeliveredMessage {
            item: one.item,
            receipt: decode_number(one.receipt)?,
            attempt: one.attempt,
            body: one.body.as_slice().into(),
            remaining_ms: one.remaining_ms,
        })
    };
    Ok(match from.answer.as_ref().ok_or(missing_field("answer"))? {
        Answer::Enqueued(item) => delivery::DeliveryAnswer::Enqueued { item: *item },
        Answer::Received(list) => {
            delivery::DeliveryAnswer::Received(list.deliveries.iter().map(delivered).collect::<Result<_, Refusal>>()?)
        }
        Answer::ExtendedMs(remaining_ms) => delivery::DeliveryAnswer::Extended { remaining_ms: *remaining_ms },
        Answer::Acked(_) => delivery::DeliveryAnswer::Acked,
        Answer::ReturnedDead(dead) => delivery::DeliveryAnswer::Returned { dead: *dead },
        Answer::Redriven(_) => delivery::DeliveryAnswer::Redriven,
        Answer::Dropped(_) => delivery::DeliveryAnswer::Dropped,
    })
}

pub(crate) fn decode_cache<'a>(
    from: &'a v1::CacheCommand,
    caller: &CommandContext,
) -> Result<cache::CacheCommand<'a>, Refusal> {
    use v1::cache_command::Command as Wire;
    let key = from.key.as_str();
    Ok(match from.command.as_ref().ok_or(missing_field("cache"))? {
        Wire::Read(by) => cache::CacheCommand::Read {
            key,
            session: caller.session_for(by.session)?,
            reader: &by.holder,
            ttl_ms: by.ttl_ms,
        },
        Wire::RenewRead(lease) => cache::CacheCommand::RenewRead { key, lease: decode_number(*lease)? },
        Wire::Invalidated(lease) => cache::CacheCommand::Invalidated { key, lease: decode_number(*lease)? },
        Wire::Intend(by) => cache::CacheCommand::Intend {
            key,
            session: caller.session_for(by.session)?,
            writer: &by.holder,
            ttl_ms: by.ttl_ms,
        },
        Wire::Commit(intent) => cache::CacheCommand::Commit { key, intent: decode_number(*intent)? },
        Wire::Abort(raw) => cache::CacheCommand::Abort { key, number: decode_number(*raw)? },
        Wire::GetOrFill(fill) => {
            let by = fill.actor.as_ref().ok_or(missing_field("actor"))?;
            cache::CacheCommand::GetOrFill {
                key,
                session: caller.session_for(by.session)?,
                reader: &by.holder,
                ttl_ms: by.ttl_ms,
                missing: fill.missing_version,
            }
        }
        Wire::Filled(token) => cache::CacheCommand::Filled { key, token: decode_number(*token)? },
    })
}

impl From<&cache::CacheCommand<'_>> for v1::CacheCommand {
    fn from(from: &cache::CacheCommand<'_>) -> Self {
        use v1::cache_command::Command as Wire;
        let by = |holder: &str, session: Option<_>, ttl_ms| v1::CacheActor {
            holder: holder.into(),
            session: session.map(session_bits),
            ttl_ms,
        };
        let (key, command) = match *from {
            cache::CacheCommand::Read { key, session, reader, ttl_ms } => {
                (key, Wire::Read(by(reader, session, ttl_ms)))
            }
            cache::CacheCommand::RenewRead { key, lease } => (key, Wire::RenewRead(lease.get())),
            cache::CacheCommand::Invalidated { key, lease } => (key, Wire::Invalidated(lease.get())),
            cache::CacheCommand::Intend { key, session, writer, ttl_ms } => {
                (key, Wire::Intend(by(writer, session, ttl_ms)))
            }
            cache::CacheCommand::Commit { key, intent } => (key, Wire::Commit(intent.get())),
            cache::CacheCommand::Abort { key, number } => (key, Wire::Abort(number.get())),
            cache::CacheCommand::GetOrFill { key, session, reader, ttl_ms, missing } => (
                key,
                Wire::GetOrFill(v1::GetOrFill { actor: Some(by(reader, session, ttl_ms)), missing_version: missing }),
            ),
            cache::CacheCommand::Filled { key, token } => (key, Wire::Filled(token.get())),
        };
        Self { key: key.into(), command: Some(command) }
    }
}

impl From<&cache::CacheAnswer> for v1::CacheAnswer {
    fn from(from: &cache::CacheAnswer) -> Self {
        use v1::cache_answer::Answer;
        let done = v1::Done {};
        let answer = match *from {
            cache::CacheAnswer::Reading { version, lease, remaining_ms } => {
                Answer::Read(v1::ReadLease { version, lease: lease.get(), remaining_ms, secret: Vec::new() })
            }
            cache::CacheAnswer::Dropped => Answer::Dropped(done),
            cache::CacheAnswer::Intended { intent, waiting_for, until } => {
                let (intent, until_ms) = (intent.get(), until.0);
                Answer::Intended(v1::WriteIntent { intent, waiting_for, until_ms, secret: Vec::new() })
            }
            cache::CacheAnswer::Committed { version } => Answer::Committed(version),
            cache::CacheAnswer::Aborted => Answer::Aborted(done),
            cache::CacheAnswer::Fill { token, remaining_ms } => {
                Answer::Fill(v1::FillTask { token: token.get(), remaining_ms, secret: Vec::new() })
            }
            cache::CacheAnswer::Wait { remaining_ms } => Answer::WaitMs(remaining_ms),
            cache::CacheAnswer::Filled { version } => Answer::Filled(version),
        };
        Self { answer: Some(answer) }
    }
}

pub(crate) fn decode_cache_answer(from: &v1::CacheAnswer) -> Result<cache::CacheAnswer, Refusal> {
    use v1::cache_answer::Answer;
    Ok(match from.answer.as_ref().ok_or(missing_field("answer"))? {
        Answer::Read(read) => cache::CacheAnswer::Reading {
            version: read.version,
            lease: decode_number(read.lease)?,
            remaining_ms: read.remaining_ms,
        },
        Answer::Dropped(_) => cache::CacheAnswer::Dropped,
        Answer::Intended(intent) => cache::CacheAnswer::Intended {
            intent: decode_number(intent.intent)?,
            waiting_for: intent.waiting_for,
            until: GrantorTime(intent.until_ms),
        },
        Answer::Committed(version) => cache::CacheAnswer::Committed { version: *version },
        Answer::Aborted(_) => cache::CacheAnswer::Aborted,
        Answer::Fill(task) => {
            cache::CacheAnswer::Fill { token: decode_number(task.token)?, remaining_ms: task.remaining_ms }
        }
        Answer::WaitMs(remaining_ms) => cache::CacheAnswer::Wait { remaining_ms: *remaining_ms },
        Answer::Filled(version) => cache::CacheAnswer::Filled { version: *version },
    })
}

/// Omits the message, the text of the token and the secret.
impl fmt::Debug for v1::Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Delivery");
        shown.field("item", &self.item).field("receipt", &self.receipt).field("attempt", &self.attempt);
        shown.field("remaining_ms", &self.remaining_ms).finish_non_exhaustive()
    }
}

/// Omits the secret.
impl fmt::Debug for v1::ReadLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("ReadLease");
        shown.field("version", &self.version).field("lease", &self.lease);
        shown.field("remaining_ms", &self.remaining_ms).finish_non_exhaustive()
    }
}

/// Omits the secret.
impl fmt::Debug for v1::WriteIntent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("WriteIntent");
        shown.field("intent", &self.intent).field("waiting_for", &self.waiting_for).finish_non_exhaustive()
    }
}

/// Omits the secret.
impl fmt::Debug for v1::FillTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("FillTask");
        shown.field("token", &self.token).field("remaining_ms", &self.remaining_ms).finish_non_exhaustive()
    }
}
