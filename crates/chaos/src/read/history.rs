//! A history for the simulator's checkers, made of what holders said, what the journal has and what lies in the targets.
//!
//! Nobody knows when a batch landed. It is put just before the first answer that needs it: later than it was, so that no
//! checker can accuse anybody wrongly by it. In the same way a write is put at the moment it was sent, or later if one that
//! lies before it in its target was sent later, and a claim at the moment it was answered.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use leasehold_core::command::{Answer, Current, Grant, Terms};
use leasehold_core::ids::LeaseId;
use leasehold_core::lease::{Access, Reason, Rung};
use leasehold_core::refusal::{NotCurrent, Refusal};
use leasehold_core::time::Millis;
use leasehold_core::token::{Number, Reach};
use leasehold_sim::ask::{Ask, EXCLUSIVE, How, Known};
use leasehold_sim::check::ledger::{Met, walk};
use leasehold_sim::clock::At;
use leasehold_sim::history::{Event, History, Shown, Verdict};
use leasehold_sim::stage::SERVERS;

use super::ghost::Ghost;
use super::tally::Highest;
use crate::holder::holder_name;
use crate::said::{Asks, Said, What};

/// All that is left of a run.
#[derive(Debug, Default)]
pub struct Left {
    /// What holders said, in the order of their clock.
    pub said: Vec<Said>,
    /// The journal.
    pub batches: Vec<Vec<u8>>,
    /// What lies in the targets.
    pub ghosts: Vec<Ghost>,
}

/// Where in the journal things stand.
#[derive(Debug, Default)]
pub struct Places {
    /// The batch of each grant, by its number.
    pub granted: BTreeMap<u64, usize>,
    /// The batch of each end, by its number.
    pub ended: BTreeMap<u64, usize>,
    /// Every grant: its number, its holder's name, its lease and its ttl. A client whose session is over while it waits asks
    /// again, so that one name may have several.
    grants: Vec<(u64, String, LeaseId, u64)>,
    /// Generation and grantor time after each batch.
    times: Vec<(u64, Millis)>,
}

impl Places {
    /// Looks through the journal.
    pub fn of(batches: &[Vec<u8>]) -> Self {
        let mut places = Self::default();
        let landed = |batch: &Vec<u8>| (0, Event::Landed { generation: 0, batch: Rc::from(batch.as_slice()) });
        let history = History { events: batches.iter().map(landed).collect() };
        let walked = walk(&history, |_, ledger, met| {
            let at = places.times.len();
            match met {
                Met::Batch => {
                    let ended = ledger.ended.keys().filter(|number| !places.ended.contains_key(number));
                    let ended: Vec<u64> = ended.copied().collect();
                    places.ended.extend(ended.into_iter().map(|number| (number, at)));
                    places.times.push((ledger.generation, ledger.time));
                }
                Met::After(leasehold_core::record::Record::Granted(granted)) => {
                    let number = granted.number.get();
                    places.granted.insert(number, at);
                    places.grants.push((number, granted.holder.to_owned(), granted.lease, granted.ttl.into()));
                }
                _ => {}
            }
            Ok::<(), ()>(())
        });
        debug_assert!(walked.is_ok());
        places
    }

    /// The batch that an answer needs to have landed.
    pub fn needed(&self, ask: Option<&Asks>, what: &What) -> Option<usize> {
        match (what, ask) {
            (What::Granted { number, .. } | What::Current { number, .. }, _) => self.granted.get(number).copied(),
            (What::Done { .. }, Some(Asks::Release { number, .. })) => self.ended.get(number).copied(),
            (What::Refused { code, .. }, Some(ask)) if code == "LEASE_LOST" => match ask {
                Asks::Renew { number, .. } | Asks::Confirm { number, .. } | Asks::Release { number, .. } => {
                    self.ended.get(number).copied()
                }
                Asks::Acquire { .. } => None,
            },
            _ => None,
        }
    }
}

/// What was asked, by operation.
pub fn asked(said: &[Said]) -> BTreeMap<u64, (At, Asks)> {
    let asks = said.iter().filter_map(|said| match &said.what {
        What::Asks { op, ask } => Some((*op, (said.at, ask.clone()))),
        _ => None,
    });
    asks.collect()
}

/// The history of a run.
pub fn history(left: &Left) -> History {
    let places = Places::of(&left.batches);
    let asked = asked(&left.said);
    let mut history = History::default();
    let mut landed = 0;
    let mut lands = |history: &mut History, at: At, up_to: usize| {
        while landed < up_to {
            let (generation, _) = places.times[landed];
            let batch = Rc::from(left.batches[landed].as_slice());
            history.add(at, Event::Landed { generation, batch });
            landed += 1;
        }
        landed.checked_sub(1).map_or((0, Millis(0)), |last| places.times[last])
    };
    // What was known of grantor time when a request was asked: not later than it was decided.
    let mut known: BTreeMap<u64, (u64, Millis)> = BTreeMap::new();
    let mut unanswered: BTreeSet<u64> = BTreeSet::new();
    let mut asks: BTreeMap<u64, u32> = BTreeMap::new();
    for said in &left.said {
        let who = actor(said.who);
        if let What::Asks { op, ask } = &said.what {
            known.insert(*op, lands(&mut history, said.at, 0));
            history.add(said.at, Event::Asked { op: *op, who, ask: ask_of(ask) });
            unanswered.insert(*op);
            asks.insert(*op, said.who);
        }
        let Some((op, answer)) = answer_of(&said.what, &asked) else {
            others(&mut history, said);
            continue;
        };
        if let Some(needed) = places.needed(asked.get(&op).map(|(_, ask)| ask), &said.what) {
            lands(&mut history, said.at, needed + 1);
        }
        let (generation, time) = known.get(&op).copied().unwrap_or((0, Millis(0)));
        history.add(said.at, Event::Told { op, server: 0, generation, time, answer: answer.clone() });
        history.add(said.at, Event::Answered { op, who, answer });
        unanswered.remove(&op);
    }
    let end = left.said.last().map_or(0, |said| said.at) + 1;
    lands(&mut history, end, left.batches.len());
    // A grant that no holder was told of: its client never heard, or had stopped waiting. It stands for a request of its own,
    // under its number, without an end.
    let told = left.said.iter().filter_map(|said| match said.what {
        What::Granted { number, .. } => Some(number),
        _ => None,
    });
    let told: BTreeSet<u64> = told.collect();
    let names: BTreeMap<String, (u64, u32)> =
        asks.iter().map(|(op, who)| (holder_name(*who, *op), (*op, *who))).collect();
    for (number, name, lease, ttl) in places.grants.iter().filter(|(number, ..)| !told.contains(number)) {
        let Some((op, who)) = names.get(name) else { continue };
        let Some((at, ask)) = asked.get(op) else { continue };
        let (generation, time) = known.get(op).copied().unwrap_or((0, Millis(0)));
        let (who, answer) = (actor(*who), Answer::Granted(grant(*number, *lease, *ttl, *ttl)));
        history.add(*at, Event::Asked { op: *number, who, ask: ask_of(ask) });
        history.add(end, Event::Told { op: *number, server: 0, generation, time, answer: answer.clone() });
        history.add(end, Event::Answered { op: *number, who, answer });
    }
    let is_acquire = |op: &u64| matches!(asked.get(op), Some((_, Asks::Acquire { .. })));
    let forgotten: BTreeSet<u64> = unanswered.into_iter().filter(is_acquire).collect();
    history.events.retain(|(_, event)| !matches!(event, Event::Asked { op, .. } if forgotten.contains(op)));
    writes(&mut history, left);
    history.events.sort_by_key(|(at, _)| *at);
    history
}

/// Holders as the simulator's traces call them.
pub fn actor(who: u32) -> u32 {
    SERVERS as u32 + 5 + who
}

fn others(history: &mut History, said: &Said) {
    match &said.what {
        What::Unknown { op, .. } => history.add(said.at, Event::GaveUp { op: *op, why: "the answer did not come" }),
        What::Believes { number } => {
            if let Some(number) = Number::new(*number) {
                history.add(said.at, Event::Acts { who: actor(said.who), number, honest: true });
            }
        }
        _ => {}
    }
}

/// A write or a claim as it was sent.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the fields are named by the vocabulary")]
pub struct Sent {
    pub at: At,
    pub target: u32,
    pub number: u64,
    /// A write; otherwise a claim.
    pub value: bool,
}

/// Everything that was sent to targets, by operation.
pub fn sent(said: &[Said]) -> BTreeMap<u64, Sent> {
    let sends = said.iter().filter_map(|said| match said.what {
        What::Sends { op, target, number, value } => Some((op, Sent { at: said.at, target, number, value })),
        _ => None,
    });
    sends.collect()
}

fn writes(history: &mut History, left: &Left) {
    let sent = sent(&left.said);
    let highest = Highest::of(&left.said, &sent);
    let shown = |number: u64| Number::new(number).map(|number| Shown { number, incarnation: 1, right: true });
    let mut last: BTreeMap<u32, At> = BTreeMap::new();
    for ghost in &left.ghosts {
        let (Some(shown), Some(write)) = (shown(ghost.number), sent.get(&ghost.op)) else { continue };
        let last = last.entry(ghost.target).or_default();
        *last = (*last).max(write.at);
        let (target, who, value) = (ghost.target, actor(ghost.who), Some(ghost.op));
        history.add(*last, Event::Wrote { target, who, id: ghost.op, shown, value, verdict: Verdict::Applied });
    }
    for said in &left.said {
        let (op, verdict) = match &said.what {
            What::Written { op } => (op, Verdict::Applied),
            What::Stopped { op, .. } => (op, Verdict::Refused("stale")),
            _ => continue,
        };
        let Some(Sent { at, target, number, value }) = sent.get(op).copied() else { continue };
        if verdict == Verdict::Applied {
            // Of writes that were applied the target itself has told; a claim leaves nothing but its mark. One that a higher
            // number overtook between its sending and its answer may have been first, and then that number covers it.
            let overtaken = highest.is_above(target, number, said.at) && !highest.is_above(target, number, at);
            if value || overtaken {
                continue;
            }
        }
        if let Some(shown) = shown(number) {
            let value = value.then_some(*op);
            history.add(said.at, Event::Wrote { target, who: actor(said.who), id: *op, shown, value, verdict });
        }
    }
}

fn known(number: u64, lease: &str) -> Known {
    let lease = lease.parse().expect("a lease that was written as one");
    Known { lease, number: Number::new(number).expect("a number that was written as one"), session: None }
}

fn ask_of(ask: &Asks) -> Ask {
    match ask {
        Asks::Acquire { resource, ttl, wait } => Ask::Acquire {
            resource: EXCLUSIVE[*resource],
            session: None,
            access: Access::Exclusive,
            how: How { ttl: Some(*ttl), wait: *wait, max_hold: None, priority: Terms::PRIORITY, again: false },
        },
        Asks::Renew { number, lease } => Ask::Renew { held: known(*number, lease), progress: None },
        Asks::Confirm { number, lease } => Ask::Confirm { held: known(*number, lease) },
        Asks::Release { number, lease } => Ask::Release { held: known(*number, lease) },
    }
}

fn answer_of(what: &What, asked: &BTreeMap<u64, (At, Asks)>) -> Option<(u64, Answer)> {
    Some(match what {
        What::Granted { op, number, lease, ttl, remaining } => {
            (*op, Answer::Granted(grant(*number, lease.parse().ok()?, *ttl, *remaining)))
        }
        What::Current { op, number, remaining } => {
            let (number, remaining_ms) = (Number::new(*number)?, *remaining);
            (*op, Answer::Current(Current { number, remaining_ms, drain_ms: None, overlaps_ms: None }))
        }
        What::Done { op } => (*op, Answer::Done),
        What::Refused { op, code, reason } => {
            let (_, ask) = asked.get(op)?;
            let lost = reason.as_ref().and_then(|word| Reason::ALL.into_iter().find(|reason| reason.word() == word));
            let refusal = match (code.as_str(), ask) {
                ("LEASE_LOST", _) => Refusal::Lost(lost?),
                ("NOT_CURRENT", _) => Refusal::NotCurrent(NotCurrent::NotHolder),
                ("BUSY", _) => Refusal::Busy { position: 1 },
                ("TIMEOUT", _) => Refusal::Timeout,
                ("STORAGE_FULL", _) => Refusal::StorageFull,
                _ => Refusal::Cancelled,
            };
            (*op, Answer::Refused(refusal))
        }
        _ => return None,
    })
}

fn grant(number: u64, lease: LeaseId, ttl: u64, remaining: u64) -> Grant {
    Grant {
        lease,
        number: Number::new(number).expect("a number that was written as one"),
        reach: Reach::Slot(0),
        ttl_ms: ttl,
        remaining_ms: remaining,
        rung: Rung::Session,
        drain_ms: 0,
        overlaps_ms: None,
        depth: 1,
        rotates: false,
    }
}
