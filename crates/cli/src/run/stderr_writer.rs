//! Non-blocking messages on standard error: a reader that does not read must not block a process that holds a lease.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use crate::output::print_stderr;

/// Maximum number of queued messages; further ones are dropped.
const QUEUE_LIMIT: usize = 64;

/// A thread that writes messages to standard error.
#[derive(Clone)]
pub struct StderrWriter(SyncSender<StderrMessage>);

enum StderrMessage {
    Line(String),
    /// Reply when all earlier messages are written.
    Flush(SyncSender<()>),
}

impl StderrWriter {
    pub fn new() -> std::io::Result<Self> {
        let (sender, messages) = sync_channel(QUEUE_LIMIT);
        std::thread::Builder::new().name("stderr".into()).spawn(move || {
            for message in messages {
                match message {
                    StderrMessage::Line(line) => print_stderr(&line),
                    // The caller may have stopped waiting.
                    StderrMessage::Flush(reply) => drop(reply.try_send(())),
                }
            }
        })?;
        Ok(Self(sender))
    }

    /// Queues a line, or drops it if the queue is full.
    pub fn print(&self, line: String) {
        let _ = self.0.try_send(StderrMessage::Line(line));
    }

    /// Waits until all queued lines are written, at most for `timeout`.
    pub fn flush(&self, timeout: Duration) {
        let (sender, reply) = sync_channel(1);
        if self.0.try_send(StderrMessage::Flush(sender)).is_ok() {
            // On a timeout the remaining lines are lost.
            let _ = reply.recv_timeout(timeout);
        }
    }
}
