//! Body of a charter, as written in charter files and in HTTP requests. Field names match those in error messages.

use leasehold_core::charter::{
    AfterRevocation, AtExpiry, Charter, HandoffMode, HandoffTerms, OnDeadlock, Payload, Preemption, RenewalProof,
    StartsFrom, Target, TargetMode, TokenOnRenewal, Uncommitted,
};
use leasehold_core::lease::Validity;
use leasehold_core::refusal::Refusal;
use serde::{Deserialize, Serialize};

/// The terms of every lease under one prefix. An absent field is an open question, which the charter check reports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(expecting = "a table with the terms of the charter", deny_unknown_fields, default)]
pub struct CharterBody {
    /// What the lease is used for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<String>,
    /// The validity that leases require: `session`, `quorum` or `issuer`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validity: Option<String>,
    /// The person or system that monitors the validity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observer: Option<String>,
    /// The damage when two holders act at the same time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price_of_failure: Option<String>,
    /// What the holder may change, item by item.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub authority: Vec<String>,
    /// Minimum ttl.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_min_ms: Option<u64>,
    /// Maximum ttl.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_max_ms: Option<u64>,
    /// Maximum time a lease may be held, including renewals.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_hold_ms: Option<u64>,
    /// What happens to uncommitted work: `reaped`, `replayed` or `lost`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uncommitted: Option<String>,
    /// Availability after a revocation: `free` or `hold_for_operator`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after_revocation: Option<String>,
    /// Reaction to a deadlock: `report`, `refuse_wait` or `revoke`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadlock: Option<String>,
    /// The token after a renewal: `keep` or `rotate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_on_renewal: Option<String>,
    /// Capacity of each resource, in units.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<u32>,
    /// What a renewal must prove.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renewal: Option<RenewalBody>,
    /// The terms of planned transfers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handoff: Option<HandoffTermsBody>,
    /// Where a successor resumes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub starts_from: Option<StartsFromBody>,
    /// What happens when a lease expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_expiry: Option<AtExpiryBody>,
    /// Whether a waiter may preempt the holder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preemption: Option<PreemptionBody>,
    /// The targets that the holder writes to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<TargetBody>,
}

/// What a renewal must prove.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(
    expecting = "a table like { proves = \"pulse\" } or { proves = \"progress\", window_ms = 30000 }",
    deny_unknown_fields
)]
pub struct RenewalBody {
    /// `pulse` or `progress`.
    pub proves: String,
    /// Longest time between two progress reports; only with `progress`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_ms: Option<u64>,
}

/// The terms of planned transfers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(expecting = "a table like { mode = \"gap\", drain_ms = 30000 }", deny_unknown_fields)]
pub struct HandoffTermsBody {
    /// `gap` or `overlap`.
    pub mode: String,
    /// How long the predecessor may drain.
    pub drain_ms: u64,
}

/// Where a successor resumes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(expecting = "a table like { at = \"newest\" } or { at = \"key\", key = \"offset\" }", deny_unknown_fields)]
pub struct StartsFromBody {
    /// `newest`, `none` or `key`.
    pub at: String,
    /// Key of the small state; only with `key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// What happens when a lease expires.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(expecting = "a table like { then = \"free\" } or { then = \"veto\", max_ms = 60000 }", deny_unknown_fields)]
pub struct AtExpiryBody {
    /// `free` or `veto`.
    pub then: String,
    /// Longest deferral of the expiry; only with `veto`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_ms: Option<u64>,
}

/// Whether a waiter may preempt the holder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(
    expecting = "a table like { rule = \"never\" } or { rule = \"lower_priority\", grace_ms = 5000 }",
    deny_unknown_fields
)]
pub struct PreemptionBody {
    /// `never` or `lower_priority`.
    pub rule: String,
    /// Grace period before the preemption; only with `lower_priority`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_ms: Option<u64>,
}

/// One system that the holder writes to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(
    expecting = "a table like { name = \"ledger\", at = \"postgres://db/ledger\", mode = \"forced\" }",
    deny_unknown_fields
)]
pub struct TargetBody {
    /// Name of the target.
    pub name: String,
    /// Address of the target, without credentials.
    pub at: String,
    /// `forced`, `cooperative`, `grantor`, `bounded_pause` or `none`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// The longest assumed pause; only with `bounded_pause`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assumed_ms: Option<u64>,
    /// The damage when a pause is longer; only with `bounded_pause`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blast_radius: Option<String>,
    /// Why the risk is accepted; only with `none`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// The identity whose reports about this target are evidence of a rollback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reporter: Option<String>,
}

/// `PUT /v1/charters/{prefix}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(expecting = "an object", deny_unknown_fields)]
pub struct SetCharterBody {
    /// Comment for the audit log.
    pub comment: String,
    /// The charter.
    pub charter: CharterBody,
}

/// A charter and its prefix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(expecting = "a table with prefix and charter", deny_unknown_fields)]
pub struct CharterEntryBody {
    /// Prefix of whole segments; empty for all resources.
    pub prefix: String,
    /// The charter.
    pub charter: CharterBody,
}

impl CharterBody {
    /// Converts the body into a charter. The grantor decides whether it can honor the charter.
    pub fn to_charter(&self) -> Result<Charter, Refusal> {
        Ok(Charter {
            payload: choice(self.payload.as_deref(), Payload::from_word, "payload", PAYLOADS)?,
            validity: choice(self.validity.as_deref(), validity, "validity", "session, quorum or issuer")?,
            observer: self.observer.clone(),
            price_of_failure: self.price_of_failure.clone(),
            authority: self.authority.clone(),
            targets: self.targets.iter().map(TargetBody::read).collect::<Result<_, _>>()?,
            renewal: self.renewal.as_ref().map(RenewalBody::read).transpose()?,
            ttl_min_ms: self.ttl_min_ms,
            ttl_max_ms: self.ttl_max_ms,
            max_hold_ms: self.max_hold_ms,
            handoff: self.handoff.as_ref().map(HandoffTermsBody::read).transpose()?,
            uncommitted: choice(
                self.uncommitted.as_deref(),
                Uncommitted::from_word,
                "uncommitted",
                "reaped, replayed or lost",
            )?,
            starts_from: self.starts_from.as_ref().map(StartsFromBody::read).transpose()?,
            at_expiry: self.at_expiry.as_ref().map_or(Ok(AtExpiry::Free), AtExpiryBody::read)?,
            after_revocation: choice(
                self.after_revocation.as_deref(),
                AfterRevocation::from_word,
                "after_revocation",
                "free or hold_for_operator",
            )?
            .unwrap_or_default(),
            deadlock: choice(
                self.deadlock.as_deref(),
                OnDeadlock::from_word,
                "deadlock",
                "report, refuse_wait or revoke",
            )?
            .unwrap_or_default(),
            preemption: self.preemption.as_ref().map_or(Ok(Preemption::Never), PreemptionBody::read)?,
            token_on_renewal: choice(
                self.token_on_renewal.as_deref(),
                TokenOnRenewal::from_word,
                "token_on_renewal",
                "keep or rotate",
            )?
            .unwrap_or_default(),
            capacity: self.capacity,
        })
    }
}

const PAYLOADS: &str = "exclusion, coordination, work_item, shard, liveness, capacity, read_validity or permission";

fn choice<T>(
    word: Option<&str>,
    from_word: impl Fn(&str) -> Option<T>,
    field: &'static str,
    reason: &'static str,
) -> Result<Option<T>, Refusal> {
    word.map(|word| from_word(word).ok_or(Refusal::Invalid { field, reason })).transpose()
}

fn validity(word: &str) -> Option<Validity> {
    [Validity::Session, Validity::Quorum, Validity::Issuer].into_iter().find(|validity| validity.word() == word)
}

impl RenewalBody {
    fn read(&self) -> Result<RenewalProof, Refusal> {
        match (self.proves.as_str(), self.window_ms) {
            ("pulse", None) => Ok(RenewalProof::Pulse),
            ("progress", Some(window_ms)) => Ok(RenewalProof::Progress { window_ms }),
            _ => Err(Refusal::Invalid { field: "renewal", reason: "pulse, or progress with window_ms" }),
        }
    }
}

impl HandoffTermsBody {
    fn read(&self) -> Result<HandoffTerms, Refusal> {
        let mode = HandoffMode::from_word(&self.mode);
        let mode = mode.ok_or(Refusal::Invalid { field: "handoff.mode", reason: "gap or overlap" })?;
        Ok(HandoffTerms { mode, drain_ms: self.drain_ms })
    }
}

impl StartsFromBody {
    fn read(&self) -> Result<StartsFrom, Refusal> {
        match (self.at.as_str(), &self.key) {
            ("newest", None) => Ok(StartsFrom::Newest),
            ("none", None) => Ok(StartsFrom::Nothing),
            ("key", Some(key)) => Ok(StartsFrom::Key(key.clone())),
            _ => Err(Refusal::Invalid { field: "starts_from", reason: "newest, none, or key with the key" }),
        }
    }
}

impl AtExpiryBody {
    fn read(&self) -> Result<AtExpiry, Refusal> {
        match (self.then.as_str(), self.max_ms) {
            ("free", None) => Ok(AtExpiry::Free),
            ("veto", Some(max_ms)) => Ok(AtExpiry::Veto { max_ms }),
            _ => Err(Refusal::Invalid { field: "at_expiry", reason: "free, or veto with max_ms" }),
        }
    }
}

impl PreemptionBody {
    fn read(&self) -> Result<Preemption, Refusal> {
        match (self.rule.as_str(), self.grace_ms) {
            ("never", None) => Ok(Preemption::Never),
            ("lower_priority", Some(grace_ms)) => Ok(Preemption::LowerPriority { grace_ms }),
            _ => Err(Refusal::Invalid { field: "preemption", reason: "never, or lower_priority with grace_ms" }),
        }
    }
}

impl TargetBody {
    fn read(&self) -> Result<Target, Refusal> {
        let extra = (self.assumed_ms, &self.blast_radius, &self.comment);
        let mode = match (self.mode.as_deref(), extra) {
            (None, (None, None, None)) => None,
            (Some("forced"), (None, None, None)) => Some(TargetMode::Forced),
            (Some("cooperative"), (None, None, None)) => Some(TargetMode::Cooperative),
            (Some("grantor"), (None, None, None)) => Some(TargetMode::Grantor),
            (Some("bounded_pause"), (Some(assumed_ms), blast_radius, None)) => {
                Some(TargetMode::BoundedPause { assumed_ms, blast_radius: blast_radius.clone() })
            }
            (Some("none"), (None, None, comment)) => Some(TargetMode::None { comment: comment.clone() }),
            _ => {
                return Err(Refusal::Invalid {
                    field: "targets.mode",
                    reason: "forced, cooperative, grantor, bounded_pause with assumed_ms and blast_radius, or none with comment",
                });
            }
        };
        Ok(Target { name: self.name.clone(), at: self.at.clone(), mode, reporter: self.reporter.clone() })
    }
}

impl From<&Charter> for CharterBody {
    fn from(from: &Charter) -> Self {
        Self {
            payload: from.payload.map(|word| word.word().into()),
            validity: from.validity.map(|word| word.word().into()),
            observer: from.observer.clone(),
            price_of_failure: from.price_of_failure.clone(),
            authority: from.authority.clone(),
            ttl_min_ms: from.ttl_min_ms,
            ttl_max_ms: from.ttl_max_ms,
            max_hold_ms: from.max_hold_ms,
            uncommitted: from.uncommitted.map(|word| word.word().into()),
            after_revocation: Some(from.after_revocation.word().into()),
            deadlock: Some(from.deadlock.word().into()),
            token_on_renewal: Some(from.token_on_renewal.word().into()),
            capacity: from.capacity,
            renewal: from.renewal.map(renewal_body),
            handoff: from
                .handoff
                .map(|terms| HandoffTermsBody { mode: terms.mode.word().into(), drain_ms: terms.drain_ms }),
            starts_from: from.starts_from.as_ref().map(starts_from_body),
            at_expiry: Some(at_expiry_body(from.at_expiry)),
            preemption: Some(preemption_body(from.preemption)),
            targets: from.targets.iter().map(target_body).collect(),
        }
    }
}

fn renewal_body(from: RenewalProof) -> RenewalBody {
    match from {
        RenewalProof::Pulse => RenewalBody { proves: "pulse".into(), window_ms: None },
        RenewalProof::Progress { window_ms } => RenewalBody { proves: "progress".into(), window_ms: Some(window_ms) },
    }
}

fn starts_from_body(from: &StartsFrom) -> StartsFromBody {
    match from {
        StartsFrom::Newest => StartsFromBody { at: "newest".into(), key: None },
        StartsFrom::Nothing => StartsFromBody { at: "none".into(), key: None },
        StartsFrom::Key(key) => StartsFromBody { at: "key".into(), key: Some(key.clone()) },
    }
}

fn at_expiry_body(from: AtExpiry) -> AtExpiryBody {
    match from {
        AtExpiry::Free => AtExpiryBody { then: "free".into(), max_ms: None },
        AtExpiry::Veto { max_ms } => AtExpiryBody { then: "veto".into(), max_ms: Some(max_ms) },
    }
}

fn preemption_body(from: Preemption) -> PreemptionBody {
    match from {
        Preemption::Never => PreemptionBody { rule: "never".into(), grace_ms: None },
        Preemption::LowerPriority { grace_ms } => {
            PreemptionBody { rule: "lower_priority".into(), grace_ms: Some(grace_ms) }
        }
    }
}

fn target_body(from: &Target) -> TargetBody {
    let (assumed_ms, blast_radius, comment) = match &from.mode {
        Some(TargetMode::BoundedPause { assumed_ms, blast_radius }) => (Some(*assumed_ms), blast_radius.clone(), None),
        Some(TargetMode::None { comment }) => (None, None, comment.clone()),
        Some(TargetMode::Forced | TargetMode::Cooperative | TargetMode::Grantor) | None => (None, None, None),
    };
    let mode = from.mode.as_ref().map(|mode| mode.word().into());
    let (name, at, reporter) = (from.name.clone(), from.at.clone(), from.reporter.clone());
    TargetBody { name, at, mode, assumed_ms, blast_radius, comment, reporter }
}
