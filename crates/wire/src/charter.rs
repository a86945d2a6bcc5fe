//! Charters, term by term.

use leasehold_core::charter::{
    AfterRevocation, AtExpiry, Charter, Handoff, Mode, OnDeadlock, Preemption, Renewal, StartsFrom, Style, Target,
    TokenOnRenewal,
};
use leasehold_core::refusal::Refusal;

use crate::v1;
use crate::words::{absent, known, maybe, must_say, said};

/// A charter as it is told.
pub fn charter(from: &Charter) -> v1::Charter {
    let window = |renewal: Renewal| match renewal {
        Renewal::Pulse => v1::RenewalTerms { window_ms: None },
        Renewal::Progress { window_ms } => v1::RenewalTerms { window_ms: Some(window_ms) },
    };
    let handoff = |handoff: Handoff| v1::HandoffTerms {
        style: v1::Style::from(handoff.style).into(),
        drain_ms: handoff.drain_ms,
    };
    v1::Charter {
        payload: maybe::<_, v1::Payload>(from.payload),
        rung: maybe::<_, v1::Rung>(from.rung),
        observer: from.observer.clone(),
        price_of_failure: from.price_of_failure.clone(),
        authority: from.authority.clone(),
        targets: from.targets.iter().map(target).collect(),
        renewal: from.renewal.map(window),
        ttl_min_ms: from.ttl_min_ms,
        ttl_max_ms: from.ttl_max_ms,
        max_hold_ms: from.max_hold_ms,
        handoff: from.handoff.map(handoff),
        uncommitted: maybe::<_, v1::Uncommitted>(from.uncommitted),
        starts_from: from.starts_from.as_ref().map(starts_from),
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

/// A charter as it is read. Whether it can be kept is for the grantor to say.
pub fn read_charter(from: &v1::Charter) -> Result<Charter, Refusal> {
    let renewal = |terms: &v1::RenewalTerms| match terms.window_ms {
        None => Renewal::Pulse,
        Some(window_ms) => Renewal::Progress { window_ms },
    };
    let handoff = |terms: &v1::HandoffTerms| {
        let style = must_say::<v1::Style, Style>(terms.style, "handoff.style")?;
        Ok::<_, Refusal>(Handoff { style, drain_ms: terms.drain_ms })
    };
    Ok(Charter {
        payload: said::<v1::Payload, _>(from.payload, "payload")?,
        rung: said::<v1::Rung, _>(from.rung, "rung")?,
        observer: from.observer.clone(),
        price_of_failure: from.price_of_failure.clone(),
        authority: from.authority.clone(),
        targets: from.targets.iter().map(read_target).collect(),
        renewal: from.renewal.as_ref().map(renewal),
        ttl_min_ms: from.ttl_min_ms,
        ttl_max_ms: from.ttl_max_ms,
        max_hold_ms: from.max_hold_ms,
        handoff: from.handoff.as_ref().map(handoff).transpose()?,
        uncommitted: said::<v1::Uncommitted, _>(from.uncommitted, "uncommitted")?,
        starts_from: from.starts_from.as_ref().map(read_starts_from).transpose()?,
        at_expiry: from.veto_ms.map_or(AtExpiry::Free, |max_ms| AtExpiry::Veto { max_ms }),
        after_revocation: AfterRevocation::from(known::<v1::AfterRevocation>(
            from.after_revocation,
            "after_revocation",
        )?),
        deadlock: OnDeadlock::from(known::<v1::OnDeadlock>(from.deadlock, "deadlock")?),
        preemption: from.preempt_after_ms.map_or(Preemption::Never, |grace_ms| Preemption::LowerPriority { grace_ms }),
        token_on_renewal: TokenOnRenewal::from(known::<v1::TokenOnRenewal>(from.token_on_renewal, "token_on_renewal")?),
        capacity: from.capacity,
    })
}

fn starts_from(from: &StartsFrom) -> v1::StartsFrom {
    use v1::starts_from::At;
    let at = match from {
        StartsFrom::Newest => At::Newest(true),
        StartsFrom::Nothing => At::Nothing(true),
        StartsFrom::Key(key) => At::Key(key.clone()),
    };
    v1::StartsFrom { at: Some(at) }
}

fn read_starts_from(from: &v1::StartsFrom) -> Result<StartsFrom, Refusal> {
    use v1::starts_from::At;
    Ok(match from.at.as_ref().ok_or(absent("starts_from"))? {
        At::Newest(_) => StartsFrom::Newest,
        At::Nothing(_) => StartsFrom::Nothing,
        At::Key(key) => StartsFrom::Key(key.clone()),
    })
}

fn target(from: &Target) -> v1::Target {
    use v1::target::Mode as Told;
    let mode = from.mode.as_ref().map(|mode| match mode {
        Mode::Forced => Told::Forced(true),
        Mode::Cooperative => Told::Cooperative(true),
        Mode::Grantor => Told::Grantor(true),
        Mode::BoundedPause { assumed_ms, blast_radius } => {
            Told::BoundedPause(v1::BoundedPause { assumed_ms: *assumed_ms, blast_radius: blast_radius.clone() })
        }
        Mode::None { why } => Told::None(v1::Unfenced { why: why.clone() }),
    });
    v1::Target { name: from.name.clone(), at: from.at.clone(), mode }
}

fn read_target(from: &v1::Target) -> Target {
    use v1::target::Mode as Told;
    let mode = from.mode.as_ref().map(|mode| match mode {
        Told::Forced(_) => Mode::Forced,
        Told::Cooperative(_) => Mode::Cooperative,
        Told::Grantor(_) => Mode::Grantor,
        Told::BoundedPause(told) => {
            Mode::BoundedPause { assumed_ms: told.assumed_ms, blast_radius: told.blast_radius.clone() }
        }
        Told::None(told) => Mode::None { why: told.why.clone() },
    });
    Target { name: from.name.clone(), at: from.at.clone(), mode }
}
