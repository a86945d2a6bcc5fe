//! What a holder says and is told: lines of JSON and single words, over its pipes.

use serde::{Deserialize, Serialize};

/// What a holder says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "says", rename_all = "snake_case")]
pub enum Said {
    /// It was granted the lease.
    Granted { number: String },
    /// It raised the marks of what it will write to, before it reads.
    Claimed,
    /// It read what it will build on.
    Read { balance: i64 },
    /// It renewed, and has its write ready.
    Prepared { left_ms: u64 },
    /// It wrote, or was refused.
    Wrote { target: Target, outcome: Outcome },
    /// The lease is still its own.
    Kept { number: String },
    /// It was told that its lease is over.
    Lost { code: String },
    /// It gave the lease back.
    Released,
    /// It cannot go on.
    Failed { why: String },
}

/// Which database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    Fenced,
    Unfenced,
}

/// What became of a write.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Written,
    Refused { code: String, presented: Option<String>, mark: Option<String> },
}

/// What a holder is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Renew, and get ready to write.
    Prepare,
    /// Write what was made ready.
    Write,
    /// Ask whether the lease is still its own.
    Confirm,
    /// Give the lease back.
    Release,
}

impl Order {
    const ALL: [(Self, &'static str); 4] =
        [(Self::Prepare, "prepare"), (Self::Write, "write"), (Self::Confirm, "confirm"), (Self::Release, "release")];

    pub fn word(self) -> &'static str {
        Self::ALL.iter().find(|(order, _)| *order == self).map_or("", |(_, word)| word)
    }

    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, of)| *of == word).map(|(order, _)| *order)
    }
}
