//! Bodies of the audit log. An entry has the fields of its stored text, plus its hash.

use leasehold_core::lease::EndReason;
use serde::{Deserialize, Serialize};

use super::{ended_state, hex};
use crate::v1;

/// One recorded change. Fields that do not apply are absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct AuditEntryBody {
    /// Number of the entry, from 1 without gaps.
    pub entry: u64,
    /// Journal position of the change.
    pub position: u64,
    /// Index of the change in the batch at that position, from 0.
    pub step: u32,
    /// Grantor time.
    pub time_ms: u64,
    /// Wall clock of the server, in Unix milliseconds.
    pub wall_ms: u64,
    /// Kind of the change, as a stable word.
    pub kind: String,
    /// The resource, charter prefix, queue or cached key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// Name of the holder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// Id of the lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
    /// Id of the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Number of the token that was issued, presented or ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_number: Option<String>,
    /// `exclusive`, `shared`, `slot` or `units`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access: Option<String>,
    /// Slot number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slot: Option<u32>,
    /// Lifetime after each renewal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// `released`, `expired` or `revoked`; for an end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Reason of the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The operator's comment.
    #[serde(skip_serializing_if = "Option::is_none", alias = "why")]
    pub comment: Option<String>,
    /// Name of the successor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// `gap` or `overlap`; for a handoff.
    #[serde(skip_serializing_if = "Option::is_none", alias = "style")]
    pub handoff_mode: Option<String>,
    /// Key of the small state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Deadline, in grantor time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until_ms: Option<u64>,
    /// Number of units.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub units: Option<u64>,
    /// A position, generation or message id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<u64>,
    /// The target that reported, refused a zombie or was forgotten.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// `forced` or `cooperative`; for a report of a fence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// The mark of the fence; for a zombie.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mark: Option<String>,
    /// The identity that caused the change; absent if time did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// How the identity was known: `local`, `uid`, `mtls`, `bearer` or `anonymous`. Absent if it made its request earlier, and waited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub via: Option<String>,
    /// The first 16 hexadecimal digits of the SHA-256 of its certificate, or the id of its bearer token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
    /// The address that it connected from; absent over a unix socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The two-person proposal that was executed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proposal: Option<u64>,
    /// The operation of a distributed trace that caused the change, as in the header of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// The raw text of an entry that is damaged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// SHA-256 of the previous hash followed by the entry's text, in hexadecimal.
    pub hash: String,
}

impl AuditEntryBody {
    /// Parses the text of an entry and adds its hash.
    pub fn of(text: String, hash: &[u8]) -> Self {
        let damaged = |text| Self { text: Some(text), ..Self::default() };
        let mut entry: Self = serde_json::from_str(&text).unwrap_or_else(|_| damaged(text));
        // The stored text has the lease state, which is `expired` for a released lease too.
        if entry.reason.as_deref() == Some(EndReason::Released.word()) {
            entry.state = Some(ended_state(EndReason::Released).into());
        }
        Self { hash: hex(hash), ..entry }
    }
}

impl From<v1::AuditEntry> for AuditEntryBody {
    fn from(from: v1::AuditEntry) -> Self {
        Self::of(from.text, &from.hash)
    }
}

/// One page of the audit log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AuditPageBody {
    /// The entries, in the requested order.
    pub entries: Vec<AuditEntryBody>,
    /// Number of the last entry of the whole log.
    pub last: u64,
    /// Hash of that entry.
    pub hash: String,
    /// Journal position up to which the log is complete.
    pub position: u64,
    /// Where the search continues: the `before` of the next page, or its `after` if the oldest entry comes first. Absent if the search is
    /// complete. A page may have fewer entries than requested, or none, and continue: it reads a limited part of the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

impl From<v1::AuditPage> for AuditPageBody {
    fn from(from: v1::AuditPage) -> Self {
        Self {
            entries: from.entries.into_iter().map(Into::into).collect(),
            last: from.last,
            hash: hex(&from.hash),
            position: from.position,
            next: from.next,
        }
    }
}

/// The result of a verification of the audit log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AuditVerificationBody {
    /// Whether the hash chain is unbroken.
    pub intact: bool,
    /// Number of the first retained entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<u64>,
    /// Number of the last entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<u64>,
    /// Number of entries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entries: Option<u64>,
    /// Hash of the last entry. Store it elsewhere to detect truncation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// Entries that say that entries before them are missing; absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gaps: Option<u64>,
    /// Signed heads that were compared with the log; absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heads: Option<u64>,
    /// The file that contains the first damage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Byte offset in that file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// Description of the damage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl AuditVerificationBody {
    /// An intact log, with its first and last entry.
    pub fn whole(first: u64, last: u64, hash: &[u8]) -> Self {
        Self {
            intact: true,
            first: Some(first),
            last: Some(last),
            entries: Some(last.saturating_add(1).saturating_sub(first)),
            hash: Some(hex(hash)),
            ..Self::default()
        }
    }

    /// The same log, with this many entries that report missing ones.
    #[must_use]
    pub fn with_gaps(self, gaps: u64) -> Self {
        Self { gaps: (gaps > 0).then_some(gaps), ..self }
    }

    /// The same log, with this many signed heads that agree with it.
    #[must_use]
    pub fn with_heads(self, heads: u64) -> Self {
        Self { heads: (heads > 0).then_some(heads), ..self }
    }

    /// A damaged log. The offset is only known if the file is.
    pub fn broken(file: String, offset: u64, problem: String) -> Self {
        let offset = (!file.is_empty()).then_some(offset);
        Self { file: (!file.is_empty()).then_some(file), offset, problem: Some(problem), ..Self::default() }
    }
}

impl From<v1::AuditVerification> for AuditVerificationBody {
    fn from(from: v1::AuditVerification) -> Self {
        match from.intact {
            true => Self::whole(from.first, from.last, &from.hash).with_gaps(from.gaps).with_heads(from.heads),
            false => Self::broken(from.file, from.offset, from.problem),
        }
    }
}

/// An end of the audit log that a seal key of the cluster has signed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AuditHeadBody {
    /// The cluster.
    pub cluster: String,
    /// Number of the last entry.
    pub entry: u64,
    /// Hash of that entry, in hexadecimal.
    pub hash: String,
    /// Journal position up to which the log was complete.
    pub position: u64,
    /// When it was signed, in Unix milliseconds.
    pub wall_ms: u64,
    /// Id of the key.
    pub kid: String,
    /// Signature of all fields above, in base64url.
    pub signature: String,
}

impl From<v1::AuditHead> for AuditHeadBody {
    fn from(from: v1::AuditHead) -> Self {
        let v1::AuditHead { cluster, entry, hash, position, wall_ms, kid, signature } = from;
        Self { cluster, entry, hash, position, wall_ms, kid, signature }
    }
}

/// A request that the access rules refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DenialBody {
    /// When, in Unix milliseconds.
    pub wall_ms: u64,
    /// The identity.
    pub principal: String,
    /// How it was known: `local`, `uid`, `mtls`, `bearer` or `anonymous`.
    pub via: String,
    /// The first 16 hexadecimal digits of the SHA-256 of its certificate, or the id of its bearer token.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub credential: String,
    /// The address that it connected from; absent over a unix socket.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub from: String,
    /// The action that it requested.
    pub action: String,
    /// Why: `role`, `owner` or `hidden`.
    pub reason: String,
}

impl From<v1::Denial> for DenialBody {
    fn from(from: v1::Denial) -> Self {
        let v1::Denial { wall_ms, principal, via, credential, from, action, reason } = from;
        Self { wall_ms, principal, via, credential, from, action, reason }
    }
}

/// The last denials of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DenialsBody {
    /// The denials, newest first.
    pub denials: Vec<DenialBody>,
    /// All denials since the server started.
    pub total: u64,
}

impl From<v1::Denials> for DenialsBody {
    fn from(from: v1::Denials) -> Self {
        Self { denials: from.denials.into_iter().map(Into::into).collect(), total: from.total }
    }
}
