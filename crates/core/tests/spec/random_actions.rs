//! Random actions of a run: requests, passing time and faults.

use leasehold_core::lease::Access;
use leasehold_testkit::rng::SplitMix64;

use super::charters::RESOURCES;
use super::model::Name;

/// One action. A request is generated from its seed and from what the clients know when its turn comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A client sends a request, which the next turn processes.
    Request(u64),
    /// Every session is renewed in the next turn.
    RenewSessions,
    /// Every lease that a client knows is renewed in the next turn.
    RenewLeases,
    /// This many milliseconds pass, then one turn runs. A long time is a stall.
    Turn(u64),
    /// This many milliseconds pass, with turns on time.
    Serve(u64),
    /// The grantor dies during its turn. Its batch is durable or not; its answers are lost. Another grantor opens,
    /// possibly after one that opened and died before it served.
    Crash { durable: bool, unserved: bool, outage: u64 },
    /// Takes a snapshot. Later recoveries may start from it.
    Snapshot,
    /// The journal silently loses its last batches and is opened again.
    RollBack { batches: u64, outage: u64 },
    /// A backup from some batches ago is restored.
    Restore { batches: u64, outage: u64, floor: bool },
}

/// The resources and requests that a run prefers, so that conflicts are frequent.
#[derive(Clone, Debug)]
pub struct RunProfile {
    pub resources: Vec<Name>,
    pub accesses: Vec<Access>,
    pub kinds: Vec<(u64, RequestKind)>,
    pub waits: Vec<u64>,
}

/// The kind of a request.
#[derive(Clone, Copy, Debug)]
pub enum RequestKind {
    OpenSession,
    Session,
    Acquire,
    AcquireAll,
    OwnLease,
    Cancel,
    Revoke,
    HandOff,
    Units,
    Pins,
    Operator,
    ObserveToken,
    Report,
    Retry,
    /// A request under an idempotency key that its client made.
    Key,
}

impl RunProfile {
    pub fn new(seed: u64) -> Self {
        let mut rng = SplitMix64::new(seed ^ 0x00f1_a700);
        let variant = rng.below(6);
        let few = |rng: &mut SplitMix64, from: &[Name], n: usize| {
            let mut some: Vec<Name> = (0..n).map(|_| rng.pick(from)).collect();
            some.sort_unstable();
            some.dedup();
            some
        };
        let exclusive = vec![Access::Exclusive];
        let counted = vec![Access::Slot, Access::Slot, Access::Units(1), Access::Units(2), Access::Units(3)];
        let mixed =
            vec![Access::Exclusive, Access::Exclusive, Access::Shared, Access::Shared, Access::Slot, Access::Units(1)];
        let all_kinds = [
            (3, RequestKind::OpenSession),
            (4, RequestKind::Session),
            (24, RequestKind::Acquire),
            (3, RequestKind::AcquireAll),
            (16, RequestKind::OwnLease),
            (2, RequestKind::Cancel),
            (2, RequestKind::Revoke),
            (3, RequestKind::HandOff),
            (3, RequestKind::Units),
            (1, RequestKind::Pins),
            (1, RequestKind::Operator),
            (2, RequestKind::ObserveToken),
            (4, RequestKind::Retry),
            (3, RequestKind::Report),
            (4, RequestKind::Key),
        ];
        let long = vec![0, 300, 2_000, 20_000, 20_000];
        match variant {
            // Deadlocks: few names, long waits.
            0 | 1 => Self {
                resources: few(
                    &mut rng,
                    &["plain/a", "plain/b", "plain/c", "revoke/x", "report/x", "urgent/x", "pool/x"],
                    3,
                ),
                accesses: if variant == 0 { exclusive } else { mixed },
                kinds: vec![
                    (2, RequestKind::OpenSession),
                    (1, RequestKind::Session),
                    (30, RequestKind::Acquire),
                    (6, RequestKind::AcquireAll),
                    (10, RequestKind::OwnLease),
                    (2, RequestKind::Cancel),
                    (1, RequestKind::HandOff),
                    (1, RequestKind::Units),
                    (variant, RequestKind::Pins),
                    (2, RequestKind::Retry),
                ],
                waits: vec![20_000],
            },
            // Units.
            2 => Self {
                resources: few(&mut rng, &["pool/x", "seats/x", "urgent/x", "plain/a"], 2),
                accesses: counted,
                kinds: vec![
                    (3, RequestKind::OpenSession),
                    (2, RequestKind::Session),
                    (24, RequestKind::Acquire),
                    (2, RequestKind::AcquireAll),
                    (10, RequestKind::OwnLease),
                    (1, RequestKind::Cancel),
                    (1, RequestKind::Revoke),
                    (3, RequestKind::HandOff),
                    (14, RequestKind::Units),
                    (2, RequestKind::Retry),
                    (2, RequestKind::Key),
                ],
                waits: long,
            },
            // Handoffs and authority.
            3 => Self {
                resources: few(&mut rng, &["overlap/x", "held/x", "urgent/x", "plain/a", "work/x"], 2),
                accesses: vec![Access::Exclusive, Access::Exclusive, Access::Slot],
                kinds: vec![
                    (3, RequestKind::OpenSession),
                    (2, RequestKind::Session),
                    (24, RequestKind::Acquire),
                    (14, RequestKind::OwnLease),
                    (1, RequestKind::Cancel),
                    (5, RequestKind::Revoke),
                    (12, RequestKind::HandOff),
                    (1, RequestKind::Units),
                    (5, RequestKind::Operator),
                    (2, RequestKind::Retry),
                    (3, RequestKind::Report),
                ],
                waits: long,
            },
            _ => Self {
                resources: few(&mut rng, &RESOURCES, 4),
                accesses: mixed,
                kinds: all_kinds.to_vec(),
                waits: long,
            },
        }
    }
}

/// Generates the actions of a whole run.
pub fn generate(seed: u64, length: usize) -> Vec<Action> {
    let mut rng = SplitMix64::new(seed);
    let mut actions: Vec<Action> = Vec::new();
    // Open a few sessions first: without a session no request can wait.
    for _ in 0..3 {
        actions.push(Action::Request(rng.next_u64() << 4 | 1));
    }
    while actions.len() < length {
        let action = match rng.below(100) {
            0..64 => Action::Request(rng.next_u64() & !0xf),
            64..80 => Action::Turn(rng.pick(&[0, 1, 20, 50, 50, 99, 100])),
            80..83 => Action::Turn(rng.below(1_500)),
            83..86 => Action::Serve(rng.below(1_200)),
            86..93 => Action::RenewSessions,
            93..96 => Action::RenewLeases,
            96..98 => Action::Crash { durable: rng.one_in(2), unserved: rng.one_in(5), outage: rng.below(3_000) },
            98 => Action::Snapshot,
            _ if rng.one_in(2) => Action::RenewSessions,
            _ if rng.one_in(2) => Action::RollBack { batches: rng.below(5), outage: 1 + rng.below(3_000) },
            _ => Action::Restore { batches: rng.below(8), outage: 1 + rng.below(3_000), floor: rng.one_in(4) },
        };
        actions.push(action);
    }
    actions
}
