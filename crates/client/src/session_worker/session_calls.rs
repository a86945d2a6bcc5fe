//! Session calls: requests that belong to the session and to no lease that the worker renews, for example of queues and caches.
//! Their replies carry the compensation for the case that the caller drops them unused. Session events go to listeners.

use std::sync::Weak;

use leasehold_core::command::{Answer, Command, SessionEvent};
use leasehold_core::payload::{cache, delivery};
use leasehold_core::time::Instant;
use leasehold_wire::v1::request::Operation as Message;

use super::WorkerHandle;
use super::compensated_reply::{CompensateOnDrop, SessionReply};
use super::job_queue::ReplySlot;
use super::job_result::Response;
use super::request_table::RequestPurpose;
use super::worker_state::WorkerState;
use crate::Error;

impl WorkerState {
    /// Queues a session call.
    pub(super) fn session_call(&mut self, now: Instant, slot: ReplySlot, message: Message, worker: Weak<WorkerHandle>) {
        let key = slot.key;
        self.enqueue(now, key, message, RequestPurpose::SessionCall { slot, worker });
    }

    /// Delivers the reply to a session call.
    pub(super) fn finish_session_call(
        &mut self,
        sent: Instant,
        slot: ReplySlot,
        worker: Weak<WorkerHandle>,
        request: &Message,
        answer: Result<Answer, Error>,
    ) {
        let reply = answer.and_then(|answer| {
            let session =
                self.session.as_ref().ok_or_else(|| Error::invalid_reply("an answer outside of a session"))?;
            let compensation = CompensateOnDrop::new(worker, compensation(request, &answer));
            let (session_deadline, issuer) = (session.deadline.clone(), session.issuer);
            let sealed = self.sealed_texts.clone();
            let reply = SessionReply { answer, sent, issuer, session_deadline, sealed, compensation };
            Ok(Response::Session(Box::new(reply)))
        });
        slot.reply.send(reply);
    }

    pub(super) fn notify_listeners(&mut self, event: &SessionEvent) {
        self.listeners.retain(|listener| listener.strong_count() > 0);
        for listener in self.listeners.iter().filter_map(Weak::upgrade) {
            listener.on_event(event);
        }
    }
}

/// Requests that return what an answer granted.
fn compensation(request: &Message, answer: &Answer) -> Vec<Message> {
    match (request, answer) {
        (Message::Cache(request), Answer::Cache(answer)) => {
            cache_compensation(&request.key, answer).into_iter().collect()
        }
        (Message::Delivery(request), Answer::Delivery(answer)) => match &**answer {
            delivery::DeliveryAnswer::Received(messages) => {
                let nack = |message: &delivery::DeliveredMessage| {
                    let (queue, item, receipt) = (request.queue.as_str(), message.item, message.receipt);
                    let nack = delivery::DeliveryCommand::Nack { queue, item, receipt, delay_ms: 0 };
                    leasehold_wire::encode_command(&Command::Delivery(nack))
                };
                messages.iter().filter_map(nack).collect()
            }
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}

fn cache_compensation(key: &str, answer: &cache::CacheAnswer) -> Option<Message> {
    let command = match *answer {
        cache::CacheAnswer::Reading { lease, .. } => cache::CacheCommand::Invalidated { key, lease },
        cache::CacheAnswer::Intended { intent, .. } => cache::CacheCommand::Abort { key, number: intent },
        cache::CacheAnswer::Fill { token, .. } => cache::CacheCommand::Abort { key, number: token },
        _ => return None,
    };
    leasehold_wire::encode_command(&Command::Cache(command))
}
