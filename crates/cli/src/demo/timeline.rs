//! What happens, when it happens: a line for people at once, and a list for programs at the end.

use std::time::Instant;

use serde_json::{Value, json};

/// What has happened since the demonstration began.
pub struct Timeline {
    began: Instant,
    /// Whether people watch.
    shown: bool,
    events: Vec<Value>,
}

impl Timeline {
    pub fn new(shown: bool) -> Self {
        Self { began: Instant::now(), shown, events: Vec::new() }
    }

    /// Something happened to somebody.
    pub fn tell(&mut self, who: &str, what: &str) {
        let at = self.began.elapsed();
        self.events.push(json!({ "at_ms": super::millis(at), "who": who, "what": what }));
        if self.shown {
            // Who stops reading still gets the exit code.
            let _ = crate::told::write(&format!("{:>7.3} s  {who:<8} {what}", at.as_secs_f64()));
        }
    }

    pub fn events(&self) -> &[Value] {
        &self.events
    }
}
