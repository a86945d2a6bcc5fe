//! What may happen in a run, drawn by chance: who asks for what, how time passes, what breaks.

use leasehold_core::lease::Access;

use super::chance::Chance;
use super::charters::RESOURCES;
use super::model::Name;

/// One thing that happens. An ask is drawn from its seed and from what the clients know when its turn comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Somebody asks; it waits at the door until the next turn.
    Ask(u64),
    /// Every session is renewed in the next turn.
    RenewSessions,
    /// Every lease that a client knows is renewed in the next turn.
    RenewLeases,
    /// So many milliseconds pass in one piece, then a turn is taken; long ones are stalls.
    Turn(u64),
    /// So many milliseconds pass in turns that are on time.
    Serve(u64),
    /// The grantor dies in its turn. Its batch has landed or not; nobody hears its answers. Another one opens, perhaps
    /// after one that opened and died before it served.
    Crash { landed: bool, unserved: bool, outage: u64 },
    /// The state is kept as a snapshot; later openings may start from it.
    Snapshot,
    /// The journal is set back by some batches behind everybody's back, and opened again.
    RollBack { batches: u64, outage: u64 },
    /// A backup from some batches ago is restored.
    Restore { batches: u64, outage: u64, floor: bool },
}

/// Which resources and ways a run prefers, so that few things meet often.
#[derive(Clone, Debug)]
pub struct Flavour {
    pub resources: Vec<Name>,
    pub accesses: Vec<Access>,
    pub kinds: Vec<(u64, Kind)>,
    pub waits: Vec<u64>,
}

/// What an ask is about.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Open,
    Session,
    Acquire,
    AcquireAll,
    Held,
    Cancel,
    Revoke,
    HandOff,
    Units,
    Pins,
    Operator,
    Show,
    Report,
    Retry,
}

impl Flavour {
    pub fn new(seed: u64) -> Self {
        let mut chance = Chance(seed ^ 0x00f1_a700);
        let style = chance.below(6);
        let few = |chance: &mut Chance, from: &[Name], n: usize| {
            let mut some: Vec<Name> = (0..n).map(|_| chance.pick(from)).collect();
            some.sort_unstable();
            some.dedup();
            some
        };
        let exclusive = vec![Access::Exclusive];
        let counted = vec![Access::Slot, Access::Slot, Access::Units(1), Access::Units(2), Access::Units(3)];
        let mixed =
            vec![Access::Exclusive, Access::Exclusive, Access::Shared, Access::Shared, Access::Slot, Access::Units(1)];
        let most = [
            (3, Kind::Open),
            (4, Kind::Session),
            (24, Kind::Acquire),
            (3, Kind::AcquireAll),
            (16, Kind::Held),
            (2, Kind::Cancel),
            (2, Kind::Revoke),
            (3, Kind::HandOff),
            (3, Kind::Units),
            (1, Kind::Pins),
            (1, Kind::Operator),
            (2, Kind::Show),
            (4, Kind::Retry),
            (3, Kind::Report),
        ];
        let long = vec![0, 300, 2_000, 20_000, 20_000];
        match style {
            // Who waits for whom: few names, long waits.
            0 | 1 => Self {
                resources: few(
                    &mut chance,
                    &["plain/a", "plain/b", "plain/c", "revoke/x", "report/x", "urgent/x", "pool/x"],
                    3,
                ),
                accesses: if style == 0 { exclusive } else { mixed },
                kinds: vec![
                    (2, Kind::Open),
                    (1, Kind::Session),
                    (30, Kind::Acquire),
                    (6, Kind::AcquireAll),
                    (10, Kind::Held),
                    (2, Kind::Cancel),
                    (1, Kind::HandOff),
                    (1, Kind::Units),
                    (style, Kind::Pins),
                    (2, Kind::Retry),
                ],
                waits: vec![20_000],
            },
            // Units.
            2 => Self {
                resources: few(&mut chance, &["pool/x", "seats/x", "urgent/x", "plain/a"], 2),
                accesses: counted,
                kinds: vec![
                    (3, Kind::Open),
                    (2, Kind::Session),
                    (24, Kind::Acquire),
                    (2, Kind::AcquireAll),
                    (10, Kind::Held),
                    (1, Kind::Cancel),
                    (1, Kind::Revoke),
                    (3, Kind::HandOff),
                    (14, Kind::Units),
                    (2, Kind::Retry),
                ],
                waits: long,
            },
            // Handoffs and authority.
            3 => Self {
                resources: few(&mut chance, &["overlap/x", "held/x", "urgent/x", "plain/a", "work/x"], 2),
                accesses: vec![Access::Exclusive, Access::Exclusive, Access::Slot],
                kinds: vec![
                    (3, Kind::Open),
                    (2, Kind::Session),
                    (24, Kind::Acquire),
                    (14, Kind::Held),
                    (1, Kind::Cancel),
                    (5, Kind::Revoke),
                    (12, Kind::HandOff),
                    (1, Kind::Units),
                    (5, Kind::Operator),
                    (2, Kind::Retry),
                    (3, Kind::Report),
                ],
                waits: long,
            },
            _ => {
                Self { resources: few(&mut chance, &RESOURCES, 4), accesses: mixed, kinds: most.to_vec(), waits: long }
            }
        }
    }
}

/// A whole run.
pub fn draw(seed: u64, length: usize) -> Vec<Act> {
    let mut chance = Chance(seed);
    let mut acts: Vec<Act> = Vec::new();
    // A few sessions to begin with; nothing can wait without one.
    for _ in 0..3 {
        acts.push(Act::Ask(chance.next() << 4 | 1));
    }
    while acts.len() < length {
        let act = match chance.below(100) {
            0..64 => Act::Ask(chance.next() & !0xf),
            64..80 => Act::Turn(chance.pick(&[0, 1, 20, 50, 50, 99, 100])),
            80..83 => Act::Turn(chance.below(1_500)),
            83..86 => Act::Serve(chance.below(1_200)),
            86..93 => Act::RenewSessions,
            93..96 => Act::RenewLeases,
            96..98 => Act::Crash { landed: chance.one_in(2), unserved: chance.one_in(5), outage: chance.below(3_000) },
            98 => Act::Snapshot,
            _ if chance.one_in(2) => Act::RenewSessions,
            _ if chance.one_in(2) => Act::RollBack { batches: chance.below(5), outage: 1 + chance.below(3_000) },
            _ => Act::Restore { batches: chance.below(8), outage: 1 + chance.below(3_000), floor: chance.one_in(4) },
        };
        acts.push(act);
    }
    acts
}
