//! Last renewals of leases and sessions on grantor time, as decided and as replied. L2 and L9 are computed from them.

use std::collections::BTreeMap;

use leasehold_core::command::Answer;
use leasehold_core::record::Record;
use leasehold_core::time::GrantorTime;

use super::recorded_state::Model;
use crate::history::HistoryEvent;
use crate::request::SimRequest;

/// A lease by its number, or a session by its slot and reuse count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeadlineKey {
    /// A lease.
    Lease(u64),
    /// A session.
    Session(u32, u32),
}

/// The last renewal of a lease or session.
#[derive(Clone, Copy, Debug)]
pub struct DeadlineEntry {
    /// Ttl in milliseconds.
    pub ttl: u64,
    /// Generation that renewed it.
    pub generation: u64,
    /// Grantor time of the renewal.
    pub time: GrantorTime,
}

/// All deadlines along a history.
#[derive(Debug, Default)]
pub struct Deadlines {
    /// Whether renewals count when the reply is sent; otherwise when they are decided.
    pub replies_only: bool,
    /// Last renewal of each lease and session.
    pub entries: BTreeMap<DeadlineKey, DeadlineEntry>,
    requested: BTreeMap<u64, DeadlineKey>,
    opened: Vec<(u64, GrantorTime)>,
    stalls: Vec<(u64, GrantorTime, u64)>,
}

impl Deadlines {
    /// Follows replies, or decisions.
    pub fn new(replies_only: bool) -> Self {
        Self { replies_only, ..Self::default() }
    }

    /// Follows an applied record.
    pub fn record(&mut self, model: &Model, record: &Record<'_>) {
        let (generation, time) = (model.generation, model.time);
        match record {
            Record::Opened { generation, .. } => self.opened.push((*generation, time)),
            Record::Granted(granted) if granted.ttl > 0 => {
                let entry = DeadlineEntry { ttl: u64::from(granted.ttl), generation, time };
                self.entries.insert(DeadlineKey::Lease(granted.number.get()), entry);
            }
            Record::Rotated { lease, .. } => {
                // The new number continues the old deadline, which is known again only after the next renewal.
                if let Some(lease) = model.leases.get(lease) {
                    self.entries.remove(&DeadlineKey::Lease(lease.number));
                }
            }
            Record::SessionOpened { session, ttl, .. } => {
                let entry = DeadlineEntry { ttl: u64::from(*ttl), generation, time };
                self.entries.insert(DeadlineKey::Session(session.slot, session.reuse), entry);
            }
            _ => {}
        }
    }

    /// Follows any other event.
    pub fn event(&mut self, event: &HistoryEvent) {
        match event {
            HistoryEvent::Requested { op, request: SimRequest::Renew { held, .. }, .. } => {
                self.requested.insert(*op, DeadlineKey::Lease(held.number.get()));
            }
            HistoryEvent::Requested {
                op,
                request: SimRequest::RenewSession { session } | SimRequest::Resume { session, .. },
                ..
            } => {
                self.requested.insert(*op, DeadlineKey::Session(session.slot, session.reuse));
            }
            HistoryEvent::ReplySent { op, generation, time, answer, .. } if self.replies_only => {
                self.renewed(*op, *generation, *time, answer);
            }
            HistoryEvent::Decided { op, generation, time, answer, .. } if !self.replies_only => {
                self.renewed(*op, *generation, *time, answer);
            }
            HistoryEvent::Stalled { generation, time, ms, .. } => self.stalls.push((*generation, *time, *ms)),
            _ => {}
        }
    }

    fn renewed(&mut self, op: u64, generation: u64, time: GrantorTime, answer: &Answer) {
        let (Answer::Current(_) | Answer::Session(_)) = answer else { return };
        let Some(entry) = self.requested.get(&op).and_then(|key| self.entries.get_mut(key)) else { return };
        if (generation, time) >= (entry.generation, entry.time) {
            (entry.generation, entry.time) = (generation, time);
        }
    }

    /// The journal was reverted: earlier renewals are unknown now.
    pub fn journal_reverted(&mut self) {
        self.entries.clear();
        self.opened.clear();
    }

    /// Start of the ttl under this generation: the renewal, or the opening after the tenure of the renewal.
    pub fn base(&self, entry: &DeadlineEntry, generation: u64) -> GrantorTime {
        if entry.generation == generation {
            return entry.time;
        }
        let next = self.opened.iter().find(|(opened, _)| *opened > entry.generation);
        next.map_or(entry.time, |(_, time)| *time)
    }

    /// Stall time of a generation after `since`.
    pub fn stalled_since(&self, generation: u64, since: GrantorTime) -> u64 {
        let stalls = self.stalls.iter().filter(|(g, time, _)| *g == generation && *time > since);
        stalls.map(|(_, _, ms)| *ms).sum()
    }

    /// Stall time of a generation just before `at`.
    pub fn stalled_at(&self, generation: u64, at: GrantorTime) -> u64 {
        let stalls = self.stalls.iter().filter(|(g, time, _)| *g == generation && *time == at);
        stalls.map(|(_, _, ms)| *ms).sum()
    }
}

/// Leases and sessions that a record ends because they were not renewed.
pub fn ends(model: &Model, record: &Record<'_>) -> Vec<DeadlineKey> {
    use leasehold_core::lease::EndReason;
    match record {
        Record::Ended { number, reason: EndReason::Ttl, .. } => vec![DeadlineKey::Lease(number.get())],
        Record::Expired(ends) => ends.0.iter().map(|(_, number)| DeadlineKey::Lease(number.get())).collect(),
        Record::SessionEnded { session, reason: EndReason::Ttl } => {
            let known = model.sessions.get(&session.slot).map(|known| known.reuse);
            vec![DeadlineKey::Session(session.slot, known.unwrap_or(session.reuse))]
        }
        _ => Vec::new(),
    }
}
