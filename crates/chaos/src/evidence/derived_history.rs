//! Builds a history for the simulator's checkers from the holders' logs, the journal and the targets.
//!
//! The time at which a batch became durable is unknown. The history puts it just before the first reply that depends on it:
//! later than it really was, so that no checker reports a false violation. For the same reason a write is placed when it was
//! sent, or later if a preceding write in its target was sent later, and a claim is placed when it was acknowledged.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use leasehold_core::command::{AcquireOptions, Answer, CurrentLease, Grant};
use leasehold_core::ids::LeaseId;
use leasehold_core::lease::{Access, EndReason, Validity};
use leasehold_core::refusal::{NotCurrent, Refusal};
use leasehold_core::time::GrantorTime;
use leasehold_core::token::{Number, TokenScope};
use leasehold_sim::check::recorded_state::{WalkStep, walk};
use leasehold_sim::clock::SimTime;
use leasehold_sim::history::{History, HistoryEvent, PresentedWrite, TargetVerdict};
use leasehold_sim::message::SERVERS;
use leasehold_sim::request::{KnownLease, SimAcquireOptions, SimRequest};
use leasehold_sim::run_constants::EXCLUSIVE;

use super::applied_writes::AppliedWrite;
use super::sent_writes::{HighestAcknowledged, SentWrite, sent_writes};
use crate::holder::holder_name;
use crate::holder_log::{LogEntry, LoggedEvent, RequestKind};

/// Everything that remains after a run.
#[derive(Debug, Default)]
pub struct Evidence {
    /// Log entries of all holders, by time.
    pub entries: Vec<LogEntry>,
    /// Batches of the journal.
    pub batches: Vec<Vec<u8>>,
    /// Writes that the targets applied.
    pub applied_writes: Vec<AppliedWrite>,
}

/// Positions in the journal.
#[derive(Debug, Default)]
pub struct JournalIndex {
    /// Index of the batch with each grant, by token number.
    pub granted: BTreeMap<u64, usize>,
    /// Index of the batch with the end of each lease, by token number.
    pub ended: BTreeMap<u64, usize>,
    /// Every grant: number, holder name, lease and ttl. A client whose session ends while it waits sends its request again, so
    /// one name may have several grants.
    grants: Vec<(u64, String, LeaseId, u64)>,
    /// Generation and grantor time after each batch.
    times: Vec<(u64, GrantorTime)>,
}

impl JournalIndex {
    /// Builds the index of a journal.
    pub fn of(batches: &[Vec<u8>]) -> Self {
        let mut index = Self::default();
        let stored =
            |batch: &Vec<u8>| (0, HistoryEvent::BatchDurable { generation: 0, batch: Rc::from(batch.as_slice()) });
        let history = History { events: batches.iter().map(stored).collect() };
        let walked = walk(&history, |_, model, step| {
            let at = index.times.len();
            match step {
                WalkStep::Batch => {
                    let ended = model.ended.keys().filter(|number| !index.ended.contains_key(number));
                    let ended: Vec<u64> = ended.copied().collect();
                    index.ended.extend(ended.into_iter().map(|number| (number, at)));
                    index.times.push((model.generation, model.time));
                }
                WalkStep::After(leasehold_core::record::Record::Granted(granted)) => {
                    let number = granted.number.get();
                    index.granted.insert(number, at);
                    index.grants.push((number, granted.holder.to_owned(), granted.lease, granted.ttl.into()));
                }
                _ => {}
            }
            Ok::<(), ()>(())
        });
        debug_assert!(walked.is_ok());
        index
    }

    /// Index of the batch that must be durable before this reply.
    pub fn needed(&self, request: Option<&RequestKind>, event: &LoggedEvent) -> Option<usize> {
        match (event, request) {
            (LoggedEvent::Granted { number, .. } | LoggedEvent::Current { number, .. }, _) => {
                self.granted.get(number).copied()
            }
            (LoggedEvent::Done { .. }, Some(RequestKind::Release { number, .. })) => self.ended.get(number).copied(),
            (LoggedEvent::Refused { code, .. }, Some(request)) if code == "LEASE_LOST" => match request {
                RequestKind::Renew { number, .. }
                | RequestKind::Confirm { number, .. }
                | RequestKind::Release { number, .. } => self.ended.get(number).copied(),
                RequestKind::Acquire { .. } => None,
            },
            _ => None,
        }
    }
}

/// Requests to the grantor, by operation.
pub fn requests(entries: &[LogEntry]) -> BTreeMap<u64, (SimTime, RequestKind)> {
    let requesters = entries.iter().filter_map(|entry| match &entry.event {
        LoggedEvent::Requested { op, request } => Some((*op, (entry.at, request.clone()))),
        _ => None,
    });
    requesters.collect()
}

/// The history of a run.
pub fn history(evidence: &Evidence) -> History {
    let index = JournalIndex::of(&evidence.batches);
    let requests = requests(&evidence.entries);
    let mut history = History::default();
    let mut stored = 0;
    let mut store_up_to = |history: &mut History, at: SimTime, up_to: usize| {
        while stored < up_to {
            let (generation, _) = index.times[stored];
            let batch = Rc::from(evidence.batches[stored].as_slice());
            history.add(at, HistoryEvent::BatchDurable { generation, batch });
            stored += 1;
        }
        stored.checked_sub(1).map_or((0, GrantorTime(0)), |last| index.times[last])
    };
    // Grantor time known when the request was sent; the decision is not earlier.
    let mut known: BTreeMap<u64, (u64, GrantorTime)> = BTreeMap::new();
    let mut unanswered: BTreeSet<u64> = BTreeSet::new();
    let mut requesters: BTreeMap<u64, u32> = BTreeMap::new();
    for entry in &evidence.entries {
        let actor = actor_index(entry.holder);
        if let LoggedEvent::Requested { op, request } = &entry.event {
            known.insert(*op, store_up_to(&mut history, entry.at, 0));
            history.add(entry.at, HistoryEvent::Requested { op: *op, actor, request: sim_request(request) });
            unanswered.insert(*op);
            requesters.insert(*op, entry.holder);
        }
        let Some((op, answer)) = sim_answer(&entry.event, &requests) else {
            add_other(&mut history, entry);
            continue;
        };
        if let Some(needed) = index.needed(requests.get(&op).map(|(_, request)| request), &entry.event) {
            store_up_to(&mut history, entry.at, needed + 1);
        }
        let (generation, time) = known.get(&op).copied().unwrap_or((0, GrantorTime(0)));
        history.add(entry.at, HistoryEvent::ReplySent { op, server: 0, generation, time, answer: answer.clone() });
        history.add(entry.at, HistoryEvent::ReplyReceived { op, actor, answer });
        unanswered.remove(&op);
    }
    let end = evidence.entries.last().map_or(0, |entry| entry.at) + 1;
    store_up_to(&mut history, end, evidence.batches.len());
    // A grant whose reply no holder received: the client never got it, or had stopped waiting. It becomes a request of its own,
    // under its number, that never ends.
    let received = evidence.entries.iter().filter_map(|entry| match entry.event {
        LoggedEvent::Granted { number, .. } => Some(number),
        _ => None,
    });
    let received: BTreeSet<u64> = received.collect();
    let names: BTreeMap<String, (u64, u32)> =
        requesters.iter().map(|(op, actor)| (holder_name(*actor, *op), (*op, *actor))).collect();
    for (number, name, lease, ttl) in index.grants.iter().filter(|(number, ..)| !received.contains(number)) {
        let Some((op, actor)) = names.get(name) else { continue };
        let Some((at, request)) = requests.get(op) else { continue };
        let (generation, time) = known.get(op).copied().unwrap_or((0, GrantorTime(0)));
        let (actor, answer) = (actor_index(*actor), Answer::Granted(grant(*number, *lease, *ttl, *ttl)));
        history.add(*at, HistoryEvent::Requested { op: *number, actor, request: sim_request(request) });
        history.add(end, HistoryEvent::ReplySent { op: *number, server: 0, generation, time, answer: answer.clone() });
        history.add(end, HistoryEvent::ReplyReceived { op: *number, actor, answer });
    }
    let is_acquire = |op: &u64| matches!(requests.get(op), Some((_, RequestKind::Acquire { .. })));
    let forgotten: BTreeSet<u64> = unanswered.into_iter().filter(is_acquire).collect();
    history.events.retain(|(_, event)| !matches!(event, HistoryEvent::Requested { op, .. } if forgotten.contains(op)));
    add_writes(&mut history, evidence);
    history.events.sort_by_key(|(at, _)| *at);
    history
}

/// The actor index of a holder in the simulator's traces.
pub fn actor_index(actor: u32) -> u32 {
    SERVERS as u32 + 5 + actor
}

fn add_other(history: &mut History, entry: &LogEntry) {
    match &entry.event {
        LoggedEvent::OutcomeUnknown { op, .. } => {
            history.add(entry.at, HistoryEvent::Abandoned { op: *op, reason: "no reply" })
        }
        LoggedEvent::BelievedHeld { number } => {
            if let Some(number) = Number::new(*number) {
                history.add(
                    entry.at,
                    HistoryEvent::HolderActed { actor: actor_index(entry.holder), number, clock_ok: true },
                );
            }
        }
        _ => {}
    }
}

fn add_writes(history: &mut History, evidence: &Evidence) {
    let sent = sent_writes(&evidence.entries);
    let highest = HighestAcknowledged::of(&evidence.entries, &sent);
    let presented =
        |number: u64| Number::new(number).map(|number| PresentedWrite { number, incarnation: 1, valid: true });
    let mut last: BTreeMap<u32, SimTime> = BTreeMap::new();
    for applied_write in &evidence.applied_writes {
        let (Some(presented), Some(write)) = (presented(applied_write.number), sent.get(&applied_write.op)) else {
            continue;
        };
        let last = last.entry(applied_write.target).or_default();
        *last = (*last).max(write.at);
        let (target, actor, value) = (applied_write.target, actor_index(applied_write.holder), Some(applied_write.op));
        history.add(
            *last,
            HistoryEvent::WriteDecided {
                target,
                actor,
                id: applied_write.op,
                presented,
                value,
                verdict: TargetVerdict::Applied,
            },
        );
    }
    for entry in &evidence.entries {
        let (op, verdict) = match &entry.event {
            LoggedEvent::WriteAcknowledged { op } => (op, TargetVerdict::Applied),
            LoggedEvent::WriteRefused { op, .. } => (op, TargetVerdict::Refused("stale")),
            _ => continue,
        };
        let Some(SentWrite { at, target, number, value }) = sent.get(op).copied() else { continue };
        if verdict == TargetVerdict::Applied {
            // The target itself shows applied writes; a claim leaves only the mark. If a higher number was acknowledged between
            // sending a claim and its reply, the claim may have been first; then the higher number covers it.
            let overtaken = highest.is_above(target, number, entry.at) && !highest.is_above(target, number, at);
            if value || overtaken {
                continue;
            }
        }
        if let Some(presented) = presented(number) {
            let value = value.then_some(*op);
            history.add(
                entry.at,
                HistoryEvent::WriteDecided {
                    target,
                    actor: actor_index(entry.holder),
                    id: *op,
                    presented,
                    value,
                    verdict,
                },
            );
        }
    }
}

fn known_lease(number: u64, lease: &str) -> KnownLease {
    let lease = lease.parse().expect("the log contains valid lease ids");
    KnownLease { lease, number: Number::new(number).expect("the log contains valid numbers"), session: None }
}

fn sim_request(request: &RequestKind) -> SimRequest {
    match request {
        RequestKind::Acquire { resource, ttl, wait } => SimRequest::Acquire {
            resource: EXCLUSIVE[*resource],
            session: None,
            access: Access::Exclusive,
            options: SimAcquireOptions {
                ttl: Some(*ttl),
                wait: *wait,
                max_hold: None,
                priority: AcquireOptions::DEFAULT_PRIORITY,
                reentrant: false,
            },
        },
        RequestKind::Renew { number, lease } => SimRequest::Renew { held: known_lease(*number, lease), progress: None },
        RequestKind::Confirm { number, lease } => SimRequest::Confirm { held: known_lease(*number, lease) },
        RequestKind::Release { number, lease } => SimRequest::Release { held: known_lease(*number, lease) },
    }
}

fn sim_answer(event: &LoggedEvent, requests: &BTreeMap<u64, (SimTime, RequestKind)>) -> Option<(u64, Answer)> {
    Some(match event {
        LoggedEvent::Granted { op, number, lease, ttl, remaining } => {
            (*op, Answer::Granted(grant(*number, lease.parse().ok()?, *ttl, *remaining)))
        }
        LoggedEvent::Current { op, number, remaining } => {
            let (number, remaining_ms) = (Number::new(*number)?, *remaining);
            (*op, Answer::Current(CurrentLease { number, remaining_ms, drain_ms: None, overlaps_ms: None }))
        }
        LoggedEvent::Done { op } => (*op, Answer::Done),
        LoggedEvent::Refused { op, code, reason } => {
            let (_, request) = requests.get(op)?;
            let lost = reason.as_ref().and_then(|word| EndReason::ALL.into_iter().find(|reason| reason.word() == word));
            let refusal = match (code.as_str(), request) {
                ("LEASE_LOST", _) => Refusal::Lost(lost?),
                ("NOT_CURRENT", _) => Refusal::NotCurrent(NotCurrent::NotHolder),
                ("BUSY", _) => Refusal::busy(1),
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
        number: Number::new(number).expect("the log contains valid numbers"),
        scope: TokenScope::Slot(0),
        ttl_ms: ttl,
        remaining_ms: remaining,
        validity: Validity::Session,
        drain_ms: 0,
        overlaps_ms: None,
        depth: 1,
        rotates: false,
    }
}
