//! Encoding and decoding of charters.

use leasehold_core::charter::{
    AfterRevocation, AtExpiry, Charter, HandoffMode, HandoffTerms, OnDeadlock, Preemption, RenewalProof, StartsFrom,
    Target, TargetMode, TokenOnRenewal,
};
use leasehold_core::refusal::Refusal;

use crate::enums::{decode_enum, encode_optional, missing_field, optional_enum, required_enum};
use crate::v1;

/// Encodes the terms of a handoff.
pub fn encode_handoff_terms(from: HandoffTerms) -> v1::HandoffTerms {
    v1::HandoffTerms { mode: v1::HandoffMode::from(from.mode).into(), drain_ms: from.drain_ms }
}

/// Encodes a charter.
pub fn encode_charter(from: &Charter) -> v1::Charter {
    let window = |renewal: RenewalProof| match renewal {
        RenewalProof::Pulse => v1::RenewalTerms { window_ms: None },
        RenewalProof::Progress { window_ms } => v1::RenewalTerms { window_ms: Some(window_ms) },
    };
    v1::Charter {
        payload: encode_optional::<_, v1::Payload>(from.payload),
        validity: encode_optional::<_, v1::Validity>(from.validity),
        observer: from.observer.clone(),
        price_of_failure: from.price_of_failure.clone(),
        authority: from.authority.clone(),
        targets: from.targets.iter().map(encode_target).collect(),
        renewal: from.renewal.map(window),
        ttl_min_ms: from.ttl_min_ms,
        ttl_max_ms: from.ttl_max_ms,
        max_hold_ms: from.max_hold_ms,
        handoff: from.handoff.map(encode_handoff_terms),
        uncommitted: encode_optional::<_, v1::Uncommitted>(from.uncommitted),
        starts_from: from.starts_from.as_ref().map(encode_starts_from),
        veto_ms: match from.at_expiry {
            AtExpiry::Free => None,
            AtExpiry::Veto { max_ms } => Some(max_ms),
        },
        after_revocation: v1::AfterRevocation::from(from.after_revocation).into(),
        deadlock: v1::OnDeadlock::from(from.deadlock).into(),
        preempt_after_ms: match from.preemption {
            Preemption::Never => None,
            Preemption::LowerPriority { grace_ms } => Some(grace_ms),
        },
        token_on_renewal: v1::TokenOnRenewal::from(from.token_on_renewal).into(),
        capacity: from.capacity,
    }
}

/// Decodes a charter. The grantor decides whether it can honor it.
pub fn decode_charter(from: &v1::Charter) -> Result<Charter, Refusal> {
    let renewal = |terms: &v1::RenewalTerms| match terms.window_ms {
        None => RenewalProof::Pulse,
        Some(window_ms) => RenewalProof::Progress { window_ms },
    };
    let handoff = |terms: &v1::HandoffTerms| {
        let style = required_enum::<v1::HandoffMode, HandoffMode>(terms.mode, "handoff.mode")?;
        Ok::<_, Refusal>(HandoffTerms { mode: style, drain_ms: terms.drain_ms })
    };
    Ok(Charter {
        payload: optional_enum::<v1::Payload, _>(from.payload, "payload")?,
        validity: optional_enum::<v1::Validity, _>(from.validity, "validity")?,
        observer: from.observer.clone(),
        price_of_failure: from.price_of_failure.clone(),
        authority: from.authority.clone(),
        targets: from.targets.iter().map(decode_target).collect(),
        renewal: from.renewal.as_ref().map(renewal),
        ttl_min_ms: from.ttl_min_ms,
        ttl_max_ms: from.ttl_max_ms,
        max_hold_ms: from.max_hold_ms,
        handoff: from.handoff.as_ref().map(handoff).transpose()?,
        uncommitted: optional_enum::<v1::Uncommitted, _>(from.uncommitted, "uncommitted")?,
        starts_from: from.starts_from.as_ref().map(decode_starts_from).transpose()?,
        at_expiry: from.veto_ms.map_or(AtExpiry::Free, |max_ms| AtExpiry::Veto { max_ms }),
        after_revocation: AfterRevocation::from(decode_enum::<v1::AfterRevocation>(
            from.after_revocation,
            "after_revocation",
        )?),
        deadlock: OnDeadlock::from(decode_enum::<v1::OnDeadlock>(from.deadlock, "deadlock")?),
        preemption: from.preempt_after_ms.map_or(Preemption::Never, |grace_ms| Preemption::LowerPriority { grace_ms }),
        token_on_renewal: TokenOnRenewal::from(decode_enum::<v1::TokenOnRenewal>(
            from.token_on_renewal,
            "token_on_renewal",
        )?),
        capacity: from.capacity,
    })
}

fn encode_starts_from(from: &StartsFrom) -> v1::StartsFrom {
    use v1::starts_from::At;
    let at = match from {
        StartsFrom::Newest => At::Newest(true),
        StartsFrom::Nothing => At::Nothing(true),
        StartsFrom::Key(key) => At::Key(key.clone()),
    };
    v1::StartsFrom { at: Some(at) }
}

fn decode_starts_from(from: &v1::StartsFrom) -> Result<StartsFrom, Refusal> {
    use v1::starts_from::At;
    Ok(match from.at.as_ref().ok_or(missing_field("starts_from"))? {
        At::Newest(_) => StartsFrom::Newest,
        At::Nothing(_) => StartsFrom::Nothing,
        At::Key(key) => StartsFrom::Key(key.clone()),
    })
}

fn encode_target(from: &Target) -> v1::Target {
    use v1::target::Mode as WireMode;
    let mode = from.mode.as_ref().map(|mode| match mode {
        TargetMode::Forced => WireMode::Forced(true),
        TargetMode::Cooperative => WireMode::Cooperative(true),
        TargetMode::Grantor => WireMode::Grantor(true),
        TargetMode::BoundedPause { assumed_ms, blast_radius } => {
            WireMode::BoundedPause(v1::BoundedPause { assumed_ms: *assumed_ms, blast_radius: blast_radius.clone() })
        }
        TargetMode::None { comment } => WireMode::None(v1::Unfenced { comment: comment.clone() }),
    });
    v1::Target { name: from.name.clone(), at: from.at.clone(), mode, reporter: from.reporter.clone() }
}

fn decode_target(from: &v1::Target) -> Target {
    use v1::target::Mode as WireMode;
    let mode = from.mode.as_ref().map(|mode| match mode {
        WireMode::Forced(_) => TargetMode::Forced,
        WireMode::Cooperative(_) => TargetMode::Cooperative,
        WireMode::Grantor(_) => TargetMode::Grantor,
        WireMode::BoundedPause(pause) => {
            TargetMode::BoundedPause { assumed_ms: pause.assumed_ms, blast_radius: pause.blast_radius.clone() }
        }
        WireMode::None(unfenced) => TargetMode::None { comment: unfenced.comment.clone() },
    });
    Target { name: from.name.clone(), at: from.at.clone(), mode, reporter: from.reporter.clone() }
}
