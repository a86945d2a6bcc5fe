//! Messages between the demonstration and its holders over pipes: commands as words, events as JSON lines.

use serde::{Deserialize, Serialize};

/// Event that a holder reports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum HolderEvent {
    /// It was granted the lease.
    Granted { number: String },
    /// It claimed the fence, before it reads.
    Claimed,
    /// It read the balance that its write is based on.
    Read { balance: i64 },
    /// It renewed the lease and prepared its write.
    Prepared { left_ms: u64 },
    /// It wrote, or its write was rejected.
    Wrote { target: DemoTarget, outcome: DemoWriteOutcome },
    /// It confirmed that it holds the lease.
    Confirmed { number: String },
    /// Its lease ended.
    Lost { code: String },
    /// It released the lease.
    Released,
    /// It failed and exits.
    Failed { message: String },
}

/// One of the two databases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DemoTarget {
    Fenced,
    Unfenced,
}

/// Outcome of a write.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DemoWriteOutcome {
    Written,
    Refused { code: String, presented: Option<String>, mark: Option<String> },
}

/// Command to a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HolderCommand {
    /// Renew the lease and prepare a write.
    Prepare,
    /// Send the prepared write.
    Write,
    /// Confirm with the grantor that the lease is held.
    Confirm,
    /// Release the lease.
    Release,
}

impl HolderCommand {
    const ALL: [(Self, &'static str); 4] =
        [(Self::Prepare, "prepare"), (Self::Write, "write"), (Self::Confirm, "confirm"), (Self::Release, "release")];

    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(command, _)| *command == self).map_or("", |(_, name)| name)
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == name).map(|(command, _)| *command)
    }
}
