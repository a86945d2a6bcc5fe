//! When leases and sessions were last renewed, as decided and as told, on grantor time: what L2 and L9 are reckoned from.

use std::collections::BTreeMap;

use leasehold_core::command::Answer;
use leasehold_core::record::Record;
use leasehold_core::time::Millis;

use super::ledger::Ledger;
use crate::ask::Ask;
use crate::history::Event;

/// A lease by its number, or a session by its place and reuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// A lease.
    Lease(u64),
    /// A session.
    Session(u32, u32),
}

/// The last renewal of something.
#[derive(Clone, Copy, Debug)]
pub struct Term {
    /// Milliseconds a renewal lasts.
    pub ttl: u64,
    /// By which generation.
    pub generation: u64,
    /// When, on its time.
    pub time: Millis,
}

/// All terms, followed along the history.
#[derive(Debug, Default)]
pub struct Terms {
    /// Which answers count: those that were decided, or those that were told.
    pub told: bool,
    /// By what they belong to.
    pub of: BTreeMap<Key, Term>,
    asked: BTreeMap<u64, Key>,
    opened: Vec<(u64, Millis)>,
    stood: Vec<(u64, Millis, u64)>,
}

impl Terms {
    /// Reckoned by what was told, or by what was decided.
    pub fn new(told: bool) -> Self {
        Self { told, ..Self::default() }
    }

    /// A record was applied.
    pub fn record(&mut self, ledger: &Ledger, record: &Record<'_>) {
        let (generation, time) = (ledger.generation, ledger.time);
        match record {
            Record::Opened { generation, .. } => self.opened.push((*generation, time)),
            Record::Granted(granted) if granted.ttl > 0 => {
                let term = Term { ttl: u64::from(granted.ttl), generation, time };
                self.of.insert(Key::Lease(granted.number.get()), term);
            }
            Record::Rotated { lease, .. } => {
                // A new number goes on with the old term; what is known of it is what its next renewal tells.
                if let Some(lease) = ledger.leases.get(lease) {
                    self.of.remove(&Key::Lease(lease.number));
                }
            }
            Record::SessionOpened { session, ttl, .. } => {
                let term = Term { ttl: u64::from(*ttl), generation, time };
                self.of.insert(Key::Session(session.slot, session.reuse), term);
            }
            _ => {}
        }
    }

    /// Anything else happened.
    pub fn event(&mut self, event: &Event) {
        match event {
            Event::Asked { op, ask: Ask::Renew { held, .. }, .. } => {
                self.asked.insert(*op, Key::Lease(held.number.get()));
            }
            Event::Asked { op, ask: Ask::RenewSession { session } | Ask::Resume { session, .. }, .. } => {
                self.asked.insert(*op, Key::Session(session.slot, session.reuse));
            }
            Event::Told { op, generation, time, answer, .. } if self.told => {
                self.renewed(*op, *generation, *time, answer);
            }
            Event::Decided { op, generation, time, answer, .. } if !self.told => {
                self.renewed(*op, *generation, *time, answer);
            }
            Event::Stood { generation, time, ms, .. } => self.stood.push((*generation, *time, *ms)),
            _ => {}
        }
    }

    fn renewed(&mut self, op: u64, generation: u64, time: Millis, answer: &Answer) {
        let (Answer::Current(_) | Answer::Session(_)) = answer else { return };
        let Some(term) = self.asked.get(&op).and_then(|key| self.of.get_mut(key)) else { return };
        if (generation, time) >= (term.generation, term.time) {
            (term.generation, term.time) = (generation, time);
        }
    }

    /// The journal was set back: nothing is known any more of what was renewed.
    pub fn set_back(&mut self) {
        self.of.clear();
        self.opened.clear();
    }

    /// From when a term counts under this generation: its renewal, or the opening after the tenure it was renewed in.
    pub fn base(&self, term: &Term, generation: u64) -> Millis {
        if term.generation == generation {
            return term.time;
        }
        let next = self.opened.iter().find(|(opened, _)| *opened > term.generation);
        next.map_or(term.time, |(_, time)| *time)
    }

    /// What a generation stood still after a time.
    pub fn stood_since(&self, generation: u64, since: Millis) -> u64 {
        let stood = self.stood.iter().filter(|(g, time, _)| *g == generation && *time > since);
        stood.map(|(_, _, ms)| *ms).sum()
    }

    /// What a generation stood still just before this time.
    pub fn stood_at(&self, generation: u64, at: Millis) -> u64 {
        let stood = self.stood.iter().filter(|(g, time, _)| *g == generation && *time == at);
        stood.map(|(_, _, ms)| *ms).sum()
    }
}

/// What a record ends for want of renewal.
pub fn ends(ledger: &Ledger, record: &Record<'_>) -> Vec<Key> {
    use leasehold_core::lease::Reason;
    match record {
        Record::Ended { number, reason: Reason::Ttl, .. } => vec![Key::Lease(number.get())],
        Record::Expired(ends) => ends.0.iter().map(|(_, number)| Key::Lease(number.get())).collect(),
        Record::SessionEnded { session, reason: Reason::Ttl } => {
            let known = ledger.sessions.get(&session.slot).map(|known| known.reuse);
            vec![Key::Session(session.slot, known.unwrap_or(session.reuse))]
        }
        _ => Vec::new(),
    }
}
