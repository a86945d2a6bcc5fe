//! The result of one check.

use serde_json::{Value, json};

/// All checks, as `docs/how-to/diagnose.md` lists them.
const CHECKS: [&str; 23] = [
    "clock",
    "time_service",
    "config",
    "certificate",
    "file_system",
    "sync_latency",
    "disk_space",
    "open_files",
    "core_dumps",
    "processes",
    "connection",
    "tls",
    "health",
    "clock_difference",
    "api",
    "version",
    "leader",
    "addresses",
    "etcd",
    "quarantine",
    "journal",
    "coverage",
    "backup",
];

/// Whether a check passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindingStatus {
    Ok,
    /// It works, and will or may not.
    Warning,
    /// It does not work.
    Error,
    /// Nothing is known.
    NotChecked,
}

impl FindingStatus {
    /// For people.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Error => "error",
            Self::NotChecked => "not checked",
        }
    }

    /// A stable word.
    const fn word(self) -> &'static str {
        match self {
            Self::NotChecked => "not_checked",
            other => other.label(),
        }
    }
}

/// What was checked, one sentence about it, and the next step unless it is in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// A stable word.
    pub check: &'static str,
    /// The server or file that was checked.
    pub subject: Option<String>,
    pub status: FindingStatus,
    pub message: String,
    pub next_step: Option<String>,
}

impl Finding {
    pub fn ok(check: &'static str, message: impl Into<String>) -> Self {
        debug_assert!(CHECKS.contains(&check), "{check} is not listed");
        Self { check, subject: None, status: FindingStatus::Ok, message: message.into(), next_step: None }
    }

    pub fn warning(check: &'static str, message: impl Into<String>, next_step: impl Into<String>) -> Self {
        let next_step = Some(next_step.into());
        Self { status: FindingStatus::Warning, next_step, ..Self::ok(check, message) }
    }

    pub fn error(check: &'static str, message: impl Into<String>, next_step: impl Into<String>) -> Self {
        Self { status: FindingStatus::Error, ..Self::warning(check, message, next_step) }
    }

    pub fn not_checked(check: &'static str, message: impl Into<String>, next_step: impl Into<String>) -> Self {
        Self { status: FindingStatus::NotChecked, ..Self::warning(check, message, next_step) }
    }

    /// Names the server or file.
    pub fn about(self, subject: impl Into<String>) -> Self {
        Self { subject: Some(subject.into()), ..self }
    }

    /// What was checked, for people.
    pub fn title(&self) -> String {
        let check = self.check.replace('_', " ");
        self.subject.as_ref().map_or_else(|| check.clone(), |subject| format!("{check} {subject}"))
    }

    pub fn body(&self) -> Value {
        json!({
            "check": self.check,
            "subject": self.subject,
            "status": self.status.word(),
            "message": self.message,
            "next_step": self.next_step,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::CHECKS;

    #[test]
    fn every_check_is_documented() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/how-to/diagnose.md");
        let page = std::fs::read_to_string(&path).expect("the page exists");
        let rows: Vec<_> = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
        assert_eq!(rows, CHECKS);
    }
}
