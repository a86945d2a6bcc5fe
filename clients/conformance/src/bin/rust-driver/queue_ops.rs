//! Ops on message queues.

use std::rc::Rc;
use std::time::Duration;

use leasehold::recipes::delivery::{MessageQueue, ReceivedMessage, SendOptions};
use leasehold::{Error, RequestError};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::driver_state::{DriverState, UnknownOutcome};
use crate::op_error::OpError;
use crate::request::OpRequest;

pub async fn perform(state: &DriverState, request: &OpRequest) -> Result<Value, OpError> {
    let mut queue = state.client(request)?.client.queue(request.text("queue")?);
    if let Some(visibility) = request.millis_opt("visibility_ms") {
        queue = queue.visibility(visibility);
    }
    match request.op.as_str() {
        "queue_send" => send(state, &queue, request).await,
        "queue_receive" => receive(state, &queue, request).await,
        "queue_ack" => take(state, request)?.ack().await.map(|()| json!({})).map_err(error_of),
        "queue_nack" => {
            let delay = request.millis_opt("delay_ms").unwrap_or(Duration::ZERO);
            take(state, request)?.nack(delay).await.map(|_| json!({})).map_err(error_of)
        }
        "queue_extend" => {
            let message = find(state, request)?;
            message.extend(request.millis("visibility_ms")?).await?;
            Ok(json!({}))
        }
        op => Err(OpError::unsupported(op)),
    }
}

fn error_of<T>(error: RequestError<T>) -> OpError {
    Error::from(error).into()
}

async fn send(state: &DriverState, queue: &MessageQueue, request: &OpRequest) -> Result<Value, OpError> {
    let mut options = SendOptions::new();
    if let Some(delay) = request.millis_opt("delay_ms") {
        options = options.delay(delay);
    }
    if let Some(attempts) = request.u32_opt("max_attempts")? {
        options = options.max_attempts(attempts);
    }
    match queue.send_with(request.text("body")?.as_bytes(), options).await {
        Ok(item) => Ok(json!({ "item": item.to_string() })),
        Err(RequestError::Rejected(error)) => Err(error.into()),
        Err(RequestError::Indeterminate(pending)) => {
            let error = Error::from(RequestError::<()>::from(indeterminate(pending.request_id())));
            state.unknown.borrow_mut().insert(request.id, UnknownOutcome::Send(pending));
            Err(error.into())
        }
    }
}

/// The error of an unknown outcome.
pub fn indeterminate(request_id: &str) -> Error {
    Error::new(leasehold::Code::Indeterminate, format!("no reply arrived in time; request {request_id}"))
}

async fn receive(state: &DriverState, queue: &MessageQueue, request: &OpRequest) -> Result<Value, OpError> {
    let limit = request.u32_opt("limit")?.unwrap_or(1);
    let mut messages = queue.receive(limit).await?;
    if let (true, Some(wait)) = (messages.is_empty(), request.millis_opt("wait_ms"))
        && let Ok(message) = timeout(wait, queue.recv()).await
    {
        messages.push(message?);
    }
    let name = request.text("queue")?;
    let deliveries: Vec<_> = messages.into_iter().map(|message| keep(state, name, message)).collect();
    Ok(json!({ "deliveries": deliveries }))
}

fn keep(state: &DriverState, queue: &str, message: ReceivedMessage) -> Value {
    let (item, receipt) = (message.id(), message.receipt().get());
    let delivery = json!({
        "item": item.to_string(),
        "receipt": receipt.to_string(),
        "attempt": message.attempt(),
        "body": String::from_utf8_lossy(message.body()),
        "token": message.token().to_string(),
    });
    state.deliveries.borrow_mut().insert((queue.to_owned(), item, receipt), Rc::new(message));
    delivery
}

fn key(request: &OpRequest) -> Result<(String, u64, u64), OpError> {
    Ok((request.text("queue")?.to_owned(), request.u64("item")?, request.u64("receipt")?))
}

fn find(state: &DriverState, request: &OpRequest) -> Result<Rc<ReceivedMessage>, OpError> {
    state.deliveries.borrow().get(&key(request)?).cloned().ok_or_else(|| OpError::driver("no such delivery"))
}

/// Removes a delivery, which an acknowledgment consumes.
fn take(state: &DriverState, request: &OpRequest) -> Result<ReceivedMessage, OpError> {
    let removed = state.deliveries.borrow_mut().remove(&key(request)?);
    let message = removed.ok_or_else(|| OpError::driver("no such delivery"))?;
    Rc::try_unwrap(message).map_err(|_| OpError::driver("the delivery is in use"))
}
