//! Message queues.

use std::future::pending;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold::recipes::delivery::{MessageQueue, ReceivedMessage, SendOptions};
use leasehold::{Client, Code, Error};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::failure::Failure;
use crate::operation::{Convert, Operation, value};
use crate::runtime::OwnedByProcess;

/// A queue.
#[pyclass(frozen, module = "leasehold._native")]
pub struct NativeQueue(OwnedByProcess<MessageQueue>);

impl NativeQueue {
    pub fn new(client: &Client, name: String, visibility_ms: Option<u64>) -> Self {
        let mut queue = client.queue(name);
        if let Some(visibility) = visibility_ms {
            queue = queue.visibility(Duration::from_millis(visibility));
        }
        Self(OwnedByProcess::new(queue))
    }

    fn queue(&self, py: Python<'_>) -> PyResult<MessageQueue> {
        self.0.get().cloned().ok_or_else(|| Failure::Forked.into_exception(py))
    }
}

#[pymethods]
impl NativeQueue {
    #[pyo3(signature = (body, delay_ms, max_attempts))]
    fn send(
        &self,
        py: Python<'_>,
        body: Vec<u8>,
        delay_ms: Option<u64>,
        max_attempts: Option<u32>,
    ) -> PyResult<Operation> {
        let queue = self.queue(py)?;
        let mut options = SendOptions::new().delay(Duration::from_millis(delay_ms.unwrap_or(0)));
        if let Some(attempts) = max_attempts {
            options = options.max_attempts(attempts);
        }
        Operation::request(py, async move { queue.send_with(&body, options).await }, value)
    }

    /// Receives up to `limit` messages that are ready now.
    fn receive(&self, py: Python<'_>, limit: u32) -> PyResult<Operation> {
        let queue = self.queue(py)?;
        Operation::start(py, async move {
            let messages = queue.receive(limit).await?;
            Ok(value(messages.into_iter().map(NativeMessage::new).collect::<Vec<_>>()))
        })
    }

    /// Waits for a message.
    fn recv(&self, py: Python<'_>) -> PyResult<Operation> {
        let queue = self.queue(py)?;
        Operation::start(py, async move { Ok(value(NativeMessage::new(queue.recv().await?))) })
    }

    /// Numbers of messages: ready, delayed, in flight and dead.
    fn stats(&self, py: Python<'_>) -> PyResult<Operation> {
        let queue = self.queue(py)?;
        Operation::start(py, async move {
            let stats = queue.stats().await?;
            Ok(value((stats.ready, stats.delayed, stats.in_flight, stats.dead)))
        })
    }

    /// Dead letters: id, body, attempts and reason.
    fn dead_letters(&self, py: Python<'_>, after: u64) -> PyResult<Operation> {
        let queue = self.queue(py)?;
        Operation::start(py, async move {
            let letters = queue.dead_letters(after).await?;
            let convert: Convert = Box::new(move |py| {
                let row = |letter: leasehold::recipes::delivery::DeadLetter| {
                    let reason = letter.reason.map(|reason| reason.word());
                    (letter.id, PyBytes::new(py, &letter.body).unbind(), letter.attempts, reason)
                };
                let rows: Vec<_> = letters.into_iter().map(row).collect();
                Ok(rows.into_pyobject(py)?.into_any().unbind())
            });
            Ok(convert)
        })
    }

    fn redrive(&self, py: Python<'_>, id: u64) -> PyResult<Operation> {
        let queue = self.queue(py)?;
        Operation::request(py, async move { queue.redrive(id).await }, value)
    }

    fn discard(&self, py: Python<'_>, id: u64) -> PyResult<Operation> {
        let queue = self.queue(py)?;
        Operation::request(py, async move { queue.discard(id).await }, value)
    }
}

/// A received message. Dropping it returns it to the queue.
#[pyclass(frozen, module = "leasehold._native")]
pub struct NativeMessage(OwnedByProcess<Mutex<Option<Arc<ReceivedMessage>>>>);

impl NativeMessage {
    fn new(message: ReceivedMessage) -> Self {
        Self(OwnedByProcess::new(Mutex::new(Some(Arc::new(message)))))
    }

    fn slot(&self, py: Python<'_>) -> PyResult<&Mutex<Option<Arc<ReceivedMessage>>>> {
        self.0.get().ok_or_else(|| Failure::Forked.into_exception(py))
    }

    fn message(&self, py: Python<'_>) -> PyResult<Arc<ReceivedMessage>> {
        let message = self.slot(py)?.lock().unwrap_or_else(PoisonError::into_inner).clone();
        message.ok_or_else(|| Failure::from(settled()).into_exception(py))
    }

    fn take(&self, py: Python<'_>) -> PyResult<Option<Arc<ReceivedMessage>>> {
        Ok(self.slot(py)?.lock().unwrap_or_else(PoisonError::into_inner).take())
    }
}

fn settled() -> Error {
    Error::new(Code::Conflict, "the message was acknowledged or returned before; receive another one")
}

/// The message alone, as soon as the operations that extend it have ended.
async fn sole_owner(message: Option<Arc<ReceivedMessage>>) -> Result<ReceivedMessage, Failure> {
    let mut message = message.ok_or_else(settled)?;
    loop {
        match Arc::try_unwrap(message) {
            Ok(message) => return Ok(message),
            Err(shared) => message = shared,
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[pymethods]
impl NativeMessage {
    /// Body, id, attempt, token and receipt.
    fn content(&self, py: Python<'_>) -> PyResult<(Py<PyBytes>, u64, u32, String, u64)> {
        let message = self.message(py)?;
        let body = PyBytes::new(py, message.body()).unbind();
        Ok((body, message.id(), message.attempt(), message.token().to_string(), message.receipt().get()))
    }

    fn remaining(&self, py: Python<'_>) -> PyResult<f64> {
        Ok(self.message(py)?.remaining().as_secs_f64())
    }

    fn extend(&self, py: Python<'_>, visibility_ms: u64) -> PyResult<Operation> {
        let message = self.message(py)?;
        Operation::start(py, async move { Ok(value(message.extend(Duration::from_millis(visibility_ms)).await?)) })
    }

    /// Extends the message until the operation is canceled. Fails when the message does not belong to this worker any more.
    fn keep_extended(&self, py: Python<'_>) -> PyResult<Operation> {
        let message = self.message(py)?;
        Operation::start(py, async move { Ok(value(message.run(pending::<()>()).await?)) })
    }

    fn ack(&self, py: Python<'_>) -> PyResult<Operation> {
        let message = self.take(py)?;
        Operation::start(py, async move { Ok(value(sole_owner(message).await?.ack().await.map_err(Error::from)?)) })
    }

    fn nack(&self, py: Python<'_>, delay_ms: u64) -> PyResult<Operation> {
        let message = self.take(py)?;
        Operation::start(py, async move {
            let dead = sole_owner(message).await?.nack(Duration::from_millis(delay_ms)).await;
            Ok(value(dead.map_err(Error::from)?))
        })
    }
}
