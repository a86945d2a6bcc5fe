//! Non-blocking messages on standard error: a reader that does not read must not block a process that holds a lease.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use crate::output::{message_text, write_stderr};
use crate::output_format::OutputFormat;

/// Maximum number of queued messages; further ones are dropped.
const QUEUE_LIMIT: usize = 64;

/// A thread that writes messages to standard error.
#[derive(Clone)]
pub struct StderrWriter {
    queue: SyncSender<StderrMessage>,
    format: OutputFormat,
}

enum StderrMessage {
    /// Text that is escaped already.
    Text(String),
    /// Reply when all earlier messages are written.
    Flush(SyncSender<()>),
}

impl StderrWriter {
    pub fn new(format: OutputFormat) -> std::io::Result<Self> {
        let (queue, messages) = sync_channel(QUEUE_LIMIT);
        std::thread::Builder::new().name("stderr".into()).spawn(move || {
            for message in messages {
                match message {
                    StderrMessage::Text(text) => write_stderr(&text),
                    // The caller may have stopped waiting.
                    StderrMessage::Flush(reply) => drop(reply.try_send(())),
                }
            }
        })?;
        Ok(Self { queue, format })
    }

    /// Queues a message, or drops it if the queue is full. With `-o json` or `-o yaml` it is a document like an error.
    pub fn print(&self, message: &str) {
        let _ = self.queue.try_send(StderrMessage::Text(message_text(self.format, message)));
    }

    /// Waits until all queued lines are written, at most for `timeout`.
    pub fn flush(&self, timeout: Duration) {
        let (sender, reply) = sync_channel(1);
        if self.queue.try_send(StderrMessage::Flush(sender)).is_ok() {
            // On a timeout the remaining lines are lost.
            let _ = reply.recv_timeout(timeout);
        }
    }
}
