//! Charters for tests: a complete one, and a strategy that generates arbitrary ones.

use proptest::prelude::*;

use super::*;
use crate::limits;

/// A change to a charter, for tables of test cases.
pub(crate) type CharterEdit = fn(&mut Charter);

pub(crate) fn target(name: &str, mode: Option<TargetMode>) -> Target {
    Target { name: name.into(), at: format!("where {name} is kept"), mode, reporter: None }
}

/// A charter that answers every question without a warning.
pub(crate) fn complete() -> Charter {
    Charter {
        payload: Some(Payload::Shard),
        validity: Some(Validity::Quorum),
        observer: Some("The grantor, on its own clock; a paused holder may still believe.".into()),
        price_of_failure: Some("A payment is settled twice: a day of refunds.".into()),
        authority: vec!["rows of the ledger for this shard".into(), "the shard's checkpoint".into()],
        targets: vec![target("ledger", Some(TargetMode::Forced)), target("checkpoint", Some(TargetMode::Grantor))],
        renewal: Some(RenewalProof::Progress { window_ms: 30_000 }),
        ttl_min_ms: Some(1_000),
        ttl_max_ms: Some(15_000),
        max_hold_ms: Some(3_600_000),
        handoff: Some(HandoffTerms { mode: HandoffMode::Gap, drain_ms: 5_000 }),
        uncommitted: Some(Uncommitted::Replayed),
        starts_from: Some(StartsFrom::Newest),
        after_revocation: AfterRevocation::HoldForOperator,
        ..Charter::default()
    }
}

fn choice<T: Copy + std::fmt::Debug + 'static>(all: &'static [T]) -> impl Strategy<Value = T> {
    prop::sample::select(all)
}

fn text() -> impl Strategy<Value = String> {
    "\\PC{0,40}"
}

fn mode() -> impl Strategy<Value = TargetMode> {
    prop_oneof![
        Just(TargetMode::Forced),
        Just(TargetMode::Cooperative),
        Just(TargetMode::Grantor),
        (any::<u64>(), prop::option::of(text()))
            .prop_map(|(assumed_ms, blast_radius)| TargetMode::BoundedPause { assumed_ms, blast_radius }),
        prop::option::of(text()).prop_map(|comment| TargetMode::None { comment }),
    ]
}

fn one_target() -> impl Strategy<Value = Target> {
    ("[a-z]{0,12}", text(), prop::option::of(mode()), prop::option::of("[a-z:/]{1,20}"))
        .prop_map(|(name, at, mode, reporter)| Target { name, at, mode, reporter })
}

fn answers() -> impl Strategy<Value = Charter> {
    let starts_from = prop_oneof![
        Just(StartsFrom::Newest),
        Just(StartsFrom::Nothing),
        proptest::string::string_regex("[a-z/]{0,20}").expect("a pattern").prop_map(StartsFrom::Key),
    ];
    (
        prop::option::of(choice(Payload::ALL)),
        prop::option::of(choice(&[Validity::Session, Validity::Quorum, Validity::Issuer])),
        prop::option::of(text()),
        prop::option::of(text()),
        prop::collection::vec(text(), 0..5),
        prop::collection::vec(one_target(), 0..5),
        prop::option::of(choice(Uncommitted::ALL)),
        prop::option::of(starts_from),
    )
        .prop_map(
            |(payload, validity, observer, price_of_failure, authority, targets, uncommitted, starts_from)| Charter {
                payload,
                validity,
                observer,
                price_of_failure,
                authority,
                targets,
                uncommitted,
                starts_from,
                ..Charter::default()
            },
        )
}

/// Any charter that fits its size limits, valid or not.
pub(crate) fn any_charter() -> impl Strategy<Value = Charter> {
    let renewal = prop_oneof![
        Just(RenewalProof::Pulse),
        any::<u64>().prop_map(|window_ms| RenewalProof::Progress { window_ms }),
    ];
    let handoff = (choice(HandoffMode::ALL), any::<u64>()).prop_map(|(mode, drain_ms)| HandoffTerms { mode, drain_ms });
    let preemption = prop_oneof![
        Just(Preemption::Never),
        (0..limits::GRACE_MAX).prop_map(|grace_ms| Preemption::LowerPriority { grace_ms }),
    ];
    let at_expiry =
        prop_oneof![Just(AtExpiry::Free), (0..limits::GRACE_MAX).prop_map(|max_ms| AtExpiry::Veto { max_ms })];
    let terms = (
        prop::option::of(renewal),
        prop::option::of(handoff),
        preemption,
        at_expiry,
        choice(AfterRevocation::ALL),
        choice(OnDeadlock::ALL),
        choice(TokenOnRenewal::ALL),
        prop::option::of(any::<u32>()),
        prop::array::uniform3(prop::option::of(any::<u64>())),
    );
    (answers(), terms).prop_map(|(answers, terms)| {
        let (renewal, handoff, preemption, at_expiry, after_revocation, deadlock, token_on_renewal, capacity, times) =
            terms;
        let [ttl_min_ms, ttl_max_ms, max_hold_ms] = times;
        Charter {
            renewal,
            handoff,
            preemption,
            at_expiry,
            after_revocation,
            deadlock,
            token_on_renewal,
            capacity,
            ttl_min_ms,
            ttl_max_ms,
            max_hold_ms,
            ..answers
        }
    })
}
