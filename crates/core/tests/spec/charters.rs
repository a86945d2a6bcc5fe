//! Names and charters of a run. Every rule of a charter applies to some resource.

use leasehold_core::charter::{
    AfterRevocation, AtExpiry, Charter, HandoffMode, HandoffTerms, OnDeadlock, Payload, Preemption, RenewalProof,
    Target, TargetMode, TokenOnRenewal,
};

use super::model::Name;

/// Every resource of a run; the first ones have no charter.
pub const RESOURCES: [Name; 12] = [
    "plain/a",
    "plain/b",
    "plain/c",
    "pool/x",
    "held/x",
    "urgent/x",
    "rotate/x",
    "report/x",
    "revoke/x",
    "overlap/x",
    "work/x",
    "seats/x",
];

/// Holders and actors. There are few, so that two sessions often share a name.
pub const HOLDERS: [Name; 4] = ["ann", "bob", "cat", "dan"];

/// Every prefix with a charter.
pub const PREFIXES: [Name; 8] = ["held", "urgent", "rotate", "report", "revoke", "overlap", "work", "seats"];

/// One target that fences may report, and one that has no mode.
fn targets(mode: TargetMode) -> Vec<Target> {
    let target = |name: &str, mode| Target { name: name.into(), at: "sqlite:/var/x".into(), mode, reporter: None };
    vec![target("ledger", Some(mode)), target("mail", None)]
}

/// The charter that covers a resource or prefix.
pub fn of(resource: &str) -> Option<Charter> {
    let plain = Charter::default;
    Some(match resource.split('/').next()? {
        "held" => Charter { after_revocation: AfterRevocation::HoldForOperator, ..plain() },
        "urgent" => Charter { preemption: Preemption::LowerPriority { grace_ms: 250 }, capacity: Some(2), ..plain() },
        "rotate" => Charter { token_on_renewal: TokenOnRenewal::Rotate, max_hold_ms: Some(4_000), ..plain() },
        "report" => Charter { deadlock: OnDeadlock::Report, targets: targets(TargetMode::Forced), ..plain() },
        "revoke" => Charter { deadlock: OnDeadlock::Revoke, targets: targets(TargetMode::Cooperative), ..plain() },
        "overlap" => Charter { handoff: Some(HandoffTerms { mode: HandoffMode::Overlap, drain_ms: 350 }), ..plain() },
        "work" => Charter { renewal: Some(RenewalProof::Progress { window_ms: 700 }), ..plain() },
        "seats" => Charter {
            payload: Some(Payload::Capacity),
            capacity: Some(4),
            at_expiry: AtExpiry::Veto { max_ms: 400 },
            ..plain()
        },
        _ => return None,
    })
}
