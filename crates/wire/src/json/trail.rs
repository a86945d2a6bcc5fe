//! The audit trail in JSON: the fields of an entry's text, and its hash beside them.

use serde::{Deserialize, Serialize};

use super::hex;
use crate::v1;

/// One change. What does not apply is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct EntryBody {
    /// Its number in the trail, from 1.
    pub entry: u64,
    /// The journal position that it is of.
    pub position: u64,
    /// Its place in that batch, from 0.
    pub step: u32,
    /// Grantor time.
    pub time_ms: u64,
    /// The wall clock of the server, in milliseconds since 1970.
    pub wall_ms: u64,
    /// What happened, in one stable word.
    pub kind: String,
    /// The resource, prefix, queue or cached key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// Who.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// The lease's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
    /// The session's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The number of the token that was given out, shown or ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_number: Option<String>,
    /// `exclusive`, `shared`, `slot` or `units`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access: Option<String>,
    /// The slot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slot: Option<u32>,
    /// How long a renewal lasts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// `expired` or `revoked`, with an end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Why it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// In the words of whoever did it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// To whom it is handed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// `gap` or `overlap`, with a handoff.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub style: Option<String>,
    /// The key of small state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Until when, in grantor time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until_ms: Option<u64>,
    /// How many units.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub units: Option<u64>,
    /// A position, generation or message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<u64>,
    /// The target that reported, refused a zombie or was forgotten.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// `forced` or `cooperative`, with a target that reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// The number that stood at the target, with a zombie.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mark: Option<String>,
    /// What was damaged since it was written, as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// SHA-256 of the hash before it and its text, in hexadecimal.
    pub hash: String,
}

impl EntryBody {
    /// The entry with this text and this hash.
    pub fn of(text: String, hash: &[u8]) -> Self {
        let read = serde_json::from_str(&text).unwrap_or_else(|_| Self { text: Some(text), ..Self::default() });
        Self { hash: hex(hash), ..read }
    }
}

impl From<v1::TrailEntry> for EntryBody {
    fn from(from: v1::TrailEntry) -> Self {
        Self::of(from.text, &from.hash)
    }
}

/// Entries of the audit trail, and where it ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TrailBody {
    /// The entries, in the order that was asked for.
    pub entries: Vec<EntryBody>,
    /// The number of the last entry there is.
    pub last: u64,
    /// Its hash.
    pub hash: String,
    /// Everything up to this journal position is told.
    pub position: u64,
}

impl From<v1::TrailPage> for TrailBody {
    fn from(from: v1::TrailPage) -> Self {
        Self {
            entries: from.entries.into_iter().map(Into::into).collect(),
            last: from.last,
            hash: hex(&from.hash),
            position: from.position,
        }
    }
}

/// What a walk through the whole trail found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProofBody {
    /// Whether every entry follows on the one before it.
    pub whole: bool,
    /// The number of the first entry that is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<u64>,
    /// The number of the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<u64>,
    /// How many there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entries: Option<u64>,
    /// The hash of the last: keep it elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// The file with the first broken place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// At which byte of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// What is wrong there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl ProofBody {
    /// A whole trail, from its first entry to its last.
    pub fn whole(first: u64, last: u64, hash: &[u8]) -> Self {
        Self {
            whole: true,
            first: Some(first),
            last: Some(last),
            entries: Some(last.saturating_add(1).saturating_sub(first)),
            hash: Some(hex(hash)),
            ..Self::default()
        }
    }

    /// A broken one; the place is known where a file is.
    pub fn broken(file: String, offset: u64, why: String) -> Self {
        let offset = (!file.is_empty()).then_some(offset);
        Self { file: (!file.is_empty()).then_some(file), offset, why: Some(why), ..Self::default() }
    }
}

impl From<v1::TrailVerified> for ProofBody {
    fn from(from: v1::TrailVerified) -> Self {
        match from.whole {
            true => Self::whole(from.first, from.last, &from.hash),
            false => Self::broken(from.file, from.offset, from.why),
        }
    }
}
