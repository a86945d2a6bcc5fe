//! Timeline of a demonstration: printed line by line for people, and returned as a list for programs.

use std::time::Instant;

use serde_json::{Value, json};

/// Events since the start of the demonstration.
pub struct Timeline {
    began: Instant,
    /// Whether to print each event.
    print: bool,
    events: Vec<Value>,
}

impl Timeline {
    pub fn new(print: bool) -> Self {
        Self { began: Instant::now(), print, events: Vec::new() }
    }

    pub fn record(&mut self, actor: &str, event: &str) {
        let at = self.began.elapsed();
        self.events.push(json!({ "at_ms": super::millis(at), "actor": actor, "event": event }));
        if self.print {
            // A closed standard output is no error: the exit code remains.
            let _ = crate::output::print_line(&format!("{:>7.3} s  {actor:<8} {event}", at.as_secs_f64()));
        }
    }

    pub fn events(&self) -> &[Value] {
        &self.events
    }
}
