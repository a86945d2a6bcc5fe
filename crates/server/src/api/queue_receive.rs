//! Receiving from a queue over a unary call, with a wait if the queue is empty (long poll).

use std::time::Duration;

use leasehold_core::limits::WAIT_MAX;
use leasehold_core::refusal::Refusal;
use leasehold_wire::headers::IDEMPOTENCY_KEY;
use leasehold_wire::v1::delivery_command::Command;
use leasehold_wire::v1::request::Operation;
use leasehold_wire::v1::response::Answer;
use leasehold_wire::{problem, session_bits, session_id, v1};
use tokio::time::Instant;

use super::wait_session::WaitSession;
use super::{Api, RequestMetadata};

impl Api {
    /// Executes a command to a queue. A receive with a wait is answered when a message arrives or the wait ends. Without a session it
    /// gets one for the time of the call, which carries the wait and none of the deliveries.
    pub async fn delivery(
        &self,
        metadata: RequestMetadata,
        mut command: v1::DeliveryCommand,
    ) -> Result<(Answer, u64), v1::Problem> {
        let wait_ms = match &mut command.command {
            Some(Command::Receive(receive)) => std::mem::take(&mut receive.wait_ms),
            _ => 0,
        };
        if metadata.client_key.is_some() && matches!(command.command, Some(Command::Receive(_))) {
            let reason =
                "<session>:<sequence> or none; a message whose reply is lost returns after its visibility timeout";
            return Err(problem(&Refusal::Invalid { field: IDEMPOTENCY_KEY, reason }));
        }
        if wait_ms == 0 {
            return self.call(metadata, Operation::Delivery(command)).await;
        }
        if wait_ms > WAIT_MAX {
            return Err(problem(&Refusal::OutOfRange {
                field: "wait",
                requested: wait_ms,
                min: 0,
                max: WAIT_MAX,
                by_charter: false,
            }));
        }
        if metadata.has_key() {
            let reason = "not with a wait; a message whose reply is lost returns after its visibility timeout";
            return Err(problem(&Refusal::Invalid { field: IDEMPOTENCY_KEY, reason }));
        }
        self.receive_waiting(metadata, command, Duration::from_millis(wait_ms)).await
    }

    async fn receive_waiting(
        &self,
        mut metadata: RequestMetadata,
        mut command: v1::DeliveryCommand,
        wait: Duration,
    ) -> Result<(Answer, u64), v1::Problem> {
        let until = Instant::now() + wait;
        let Some(Command::Receive(receive)) = &mut command.command else {
            return self.call(metadata, Operation::Delivery(command)).await;
        };
        let mut wait_session = None;
        let session = match receive.session {
            Some(bits) => session_id(bits),
            None => {
                let opened = WaitSession::open(self, metadata.trace).await?;
                receive.session = Some(session_bits(opened.id));
                metadata.session_secret = Some(opened.secret);
                wait_session.insert(opened).id
            }
        };
        let queue_wait = self.queue_waits.register(session, &command.queue);
        loop {
            let reply = self.call(metadata.clone(), Operation::Delivery(command.clone())).await?;
            if !is_empty(&reply.0) {
                return Ok(reply);
            }
            tokio::select! {
                () = queue_wait.ready() => {}
                () = tokio::time::sleep_until(until) => return Ok(reply),
            }
        }
    }
}

/// Whether a receive found no message.
fn is_empty(answer: &Answer) -> bool {
    let Answer::Delivery(answer) = answer else { return false };
    matches!(&answer.answer, Some(v1::delivery_answer::Answer::Received(list)) if list.deliveries.is_empty())
}
