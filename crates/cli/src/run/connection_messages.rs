//! Messages of a candidate that cannot connect: it retries without a time limit, and must not be silent meanwhile.

use std::sync::{Arc, Mutex, PoisonError};

use leasehold::{Error, MetricsHook};

use super::stderr_writer::StderrWriter;

/// Prints each reason once until the next connection: an outage may be long.
pub struct ConnectionMessages {
    stderr: StderrWriter,
    printed: Mutex<Option<String>>,
}

impl ConnectionMessages {
    pub fn new(stderr: &StderrWriter) -> Arc<Self> {
        Arc::new(Self { stderr: stderr.clone(), printed: Mutex::default() })
    }

    fn replace(&self, reason: Option<&str>) -> bool {
        let mut printed = self.printed.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = printed.as_deref() != reason;
        *printed = reason.map(str::to_owned);
        changed
    }
}

impl MetricsHook for ConnectionMessages {
    fn connected(&self, _resumed: bool) {
        self.replace(None);
    }

    fn connect_failed(&self, error: &Error) {
        // A permanent error ends the command, which prints it.
        if !error.is_permanent() && self.replace(Some(error.code_name())) {
            self.stderr.print(&format!("{error}; retrying"));
        }
    }
}
