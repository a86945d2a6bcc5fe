//! Small state, queues and cached keys: their commands and answers.

use leasehold_core::command::Command;
use leasehold_core::payload::{cache, delivery};
use leasehold_core::refusal::Refusal;
use leasehold_core::time::Millis;
use leasehold_core::token::Number;

use crate::asked::Caller;
use crate::lease::{held, session};
use crate::words::{absent, number};
use crate::{session_bits, v1};

pub(crate) fn put<'a>(from: &'a v1::Put, caller: &Caller) -> Result<Command<'a>, Refusal> {
    Ok(Command::Put {
        held: held(from.held.as_ref(), caller)?,
        key: &from.key,
        bytes: from.value.as_deref(),
        expect: from.expect,
    })
}

pub(crate) fn delivery<'a>(from: &'a v1::Delivery, caller: &Caller) -> Result<delivery::Command<'a>, Refusal> {
    use v1::delivery::Ask;
    let queue = from.queue.as_str();
    let receipt = |of: Option<&v1::Receipt>| {
        let of = of.ok_or(absent("receipt"))?;
        Ok::<_, Refusal>((of.item, number(of.receipt)?))
    };
    Ok(match from.ask.as_ref().ok_or(absent("delivery"))? {
        Ask::Enqueue(enqueue) => delivery::Command::Enqueue {
            queue,
            body: &enqueue.body,
            delay_ms: enqueue.delay_ms,
            max_attempts: enqueue.max_attempts,
        },
        Ask::Receive(receive) => delivery::Command::Receive {
            queue,
            session: session(receive.session, caller)?,
            holder: &receive.holder,
            visibility_ms: receive.visibility_ms,
            most: receive.most,
        },
        Ask::Extend(extend) => {
            let (item, receipt) = receipt(extend.of.as_ref())?;
            delivery::Command::Extend { queue, item, receipt, visibility_ms: extend.visibility_ms }
        }
        Ask::Ack(ack) => {
            let (item, receipt) = receipt(Some(ack))?;
            delivery::Command::Ack { queue, item, receipt }
        }
        Ask::Nack(nack) => {
            let (item, receipt) = receipt(nack.of.as_ref())?;
            delivery::Command::Nack { queue, item, receipt, delay_ms: nack.delay_ms }
        }
        Ask::Redrive(item) => delivery::Command::Redrive { queue, item: *item },
        Ask::Drop(item) => delivery::Command::Drop { queue, item: *item },
    })
}

impl From<&delivery::Command<'_>> for v1::Delivery {
    fn from(from: &delivery::Command<'_>) -> Self {
        use v1::delivery::Ask;
        let of = |item: u64, receipt: Number| v1::Receipt { item, receipt: receipt.get() };
        let (queue, ask) = match *from {
            delivery::Command::Enqueue { queue, body, delay_ms, max_attempts } => {
                (queue, Ask::Enqueue(v1::Enqueue { body: body.into(), delay_ms, max_attempts }))
            }
            delivery::Command::Receive { queue, session, holder, visibility_ms, most } => (
                queue,
                Ask::Receive(v1::Receive {
                    holder: holder.into(),
                    session: session.map(session_bits),
                    visibility_ms,
                    most,
                }),
            ),
            delivery::Command::Extend { queue, item, receipt, visibility_ms } => {
                (queue, Ask::Extend(v1::Extend { of: Some(of(item, receipt)), visibility_ms }))
            }
            delivery::Command::Ack { queue, item, receipt } => (queue, Ask::Ack(of(item, receipt))),
            delivery::Command::Nack { queue, item, receipt, delay_ms } => {
                (queue, Ask::Nack(v1::Nack { of: Some(of(item, receipt)), delay_ms }))
            }
            delivery::Command::Redrive { queue, item } => (queue, Ask::Redrive(item)),
            delivery::Command::Drop { queue, item } => (queue, Ask::Drop(item)),
        };
        Self { queue: queue.into(), ask: Some(ask) }
    }
}

impl From<&delivery::Answer> for v1::DeliveryAnswer {
    fn from(from: &delivery::Answer) -> Self {
        use v1::delivery_answer::Answer;
        let delivered = |one: &delivery::Delivery| v1::Delivered {
            item: one.item,
            receipt: one.receipt.get(),
            attempt: one.attempt,
            body: one.body.to_vec(),
            remaining_ms: one.remaining_ms,
        };
        let done = v1::Done {};
        let answer = match from {
            delivery::Answer::Enqueued { item } => Answer::Enqueued(*item),
            delivery::Answer::Received(items) => {
                Answer::Received(v1::Deliveries { items: items.iter().map(delivered).collect() })
            }
            delivery::Answer::Extended { remaining_ms } => Answer::ExtendedMs(*remaining_ms),
            delivery::Answer::Acked => Answer::Acked(done),
            delivery::Answer::Returned { dead } => Answer::ReturnedDead(*dead),
            delivery::Answer::Redriven => Answer::Redriven(done),
            delivery::Answer::Dropped => Answer::Dropped(done),
        };
        Self { answer: Some(answer) }
    }
}

pub(crate) fn read_delivery(from: &v1::DeliveryAnswer) -> Result<delivery::Answer, Refusal> {
    use v1::delivery_answer::Answer;
    let delivered = |one: &v1::Delivered| {
        Ok(delivery::Delivery {
            item: one.item,
            receipt: number(one.receipt)?,
            attempt: one.attempt,
            body: one.body.as_slice().into(),
            remaining_ms: one.remaining_ms,
        })
    };
    Ok(match from.answer.as_ref().ok_or(absent("answer"))? {
        Answer::Enqueued(item) => delivery::Answer::Enqueued { item: *item },
        Answer::Received(told) => {
            delivery::Answer::Received(told.items.iter().map(delivered).collect::<Result<_, Refusal>>()?)
        }
        Answer::ExtendedMs(remaining_ms) => delivery::Answer::Extended { remaining_ms: *remaining_ms },
        Answer::Acked(_) => delivery::Answer::Acked,
        Answer::ReturnedDead(dead) => delivery::Answer::Returned { dead: *dead },
        Answer::Redriven(_) => delivery::Answer::Redriven,
        Answer::Dropped(_) => delivery::Answer::Dropped,
    })
}

pub(crate) fn cache<'a>(from: &'a v1::Cache, caller: &Caller) -> Result<cache::Command<'a>, Refusal> {
    use v1::cache::Ask;
    let key = from.key.as_str();
    Ok(match from.ask.as_ref().ok_or(absent("cache"))? {
        Ask::Read(by) => {
            cache::Command::Read { key, session: session(by.session, caller)?, reader: &by.holder, ttl_ms: by.ttl_ms }
        }
        Ask::RenewRead(lease) => cache::Command::RenewRead { key, lease: number(*lease)? },
        Ask::Invalidated(lease) => cache::Command::Invalidated { key, lease: number(*lease)? },
        Ask::Intend(by) => {
            cache::Command::Intend { key, session: session(by.session, caller)?, writer: &by.holder, ttl_ms: by.ttl_ms }
        }
        Ask::Commit(intent) => cache::Command::Commit { key, intent: number(*intent)? },
        Ask::Abort(raw) => cache::Command::Abort { key, number: number(*raw)? },
        Ask::GetOrFill(fill) => {
            let by = fill.by.as_ref().ok_or(absent("by"))?;
            cache::Command::GetOrFill {
                key,
                session: session(by.session, caller)?,
                reader: &by.holder,
                ttl_ms: by.ttl_ms,
                missing: fill.missing,
            }
        }
        Ask::Filled(token) => cache::Command::Filled { key, token: number(*token)? },
    })
}

impl From<&cache::Command<'_>> for v1::Cache {
    fn from(from: &cache::Command<'_>) -> Self {
        use v1::cache::Ask;
        let by = |holder: &str, session: Option<_>, ttl_ms| v1::CacheParty {
            holder: holder.into(),
            session: session.map(session_bits),
            ttl_ms,
        };
        let (key, ask) = match *from {
            cache::Command::Read { key, session, reader, ttl_ms } => (key, Ask::Read(by(reader, session, ttl_ms))),
            cache::Command::RenewRead { key, lease } => (key, Ask::RenewRead(lease.get())),
            cache::Command::Invalidated { key, lease } => (key, Ask::Invalidated(lease.get())),
            cache::Command::Intend { key, session, writer, ttl_ms } => (key, Ask::Intend(by(writer, session, ttl_ms))),
            cache::Command::Commit { key, intent } => (key, Ask::Commit(intent.get())),
            cache::Command::Abort { key, number } => (key, Ask::Abort(number.get())),
            cache::Command::GetOrFill { key, session, reader, ttl_ms, missing } => {
                (key, Ask::GetOrFill(v1::GetOrFill { by: Some(by(reader, session, ttl_ms)), missing }))
            }
            cache::Command::Filled { key, token } => (key, Ask::Filled(token.get())),
        };
        Self { key: key.into(), ask: Some(ask) }
    }
}

impl From<&cache::Answer> for v1::CacheAnswer {
    fn from(from: &cache::Answer) -> Self {
        use v1::cache_answer::Answer;
        let done = v1::Done {};
        let answer = match *from {
            cache::Answer::Reading { version, lease, remaining_ms } => {
                Answer::Reading(v1::Reading { version, lease: lease.get(), remaining_ms })
            }
            cache::Answer::Dropped => Answer::Dropped(done),
            cache::Answer::Intended { intent, waiting_for, until } => {
                Answer::Intended(v1::Intended { intent: intent.get(), waiting_for, until_ms: until.0 })
            }
            cache::Answer::Committed { version } => Answer::Committed(version),
            cache::Answer::Aborted => Answer::Aborted(done),
            cache::Answer::Fill { token, remaining_ms } => {
                Answer::Fill(v1::FillTask { token: token.get(), remaining_ms })
            }
            cache::Answer::Wait { remaining_ms } => Answer::WaitMs(remaining_ms),
            cache::Answer::Filled { version } => Answer::Filled(version),
        };
        Self { answer: Some(answer) }
    }
}

pub(crate) fn read_cache(from: &v1::CacheAnswer) -> Result<cache::Answer, Refusal> {
    use v1::cache_answer::Answer;
    Ok(match from.answer.as_ref().ok_or(absent("answer"))? {
        Answer::Reading(told) => cache::Answer::Reading {
            version: told.version,
            lease: number(told.lease)?,
            remaining_ms: told.remaining_ms,
        },
        Answer::Dropped(_) => cache::Answer::Dropped,
        Answer::Intended(told) => cache::Answer::Intended {
            intent: number(told.intent)?,
            waiting_for: told.waiting_for,
            until: Millis(told.until_ms),
        },
        Answer::Committed(version) => cache::Answer::Committed { version: *version },
        Answer::Aborted(_) => cache::Answer::Aborted,
        Answer::Fill(told) => cache::Answer::Fill { token: number(told.token)?, remaining_ms: told.remaining_ms },
        Answer::WaitMs(remaining_ms) => cache::Answer::Wait { remaining_ms: *remaining_ms },
        Answer::Filled(version) => cache::Answer::Filled { version: *version },
    })
}
