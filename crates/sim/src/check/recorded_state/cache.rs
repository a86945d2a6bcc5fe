//! Model of the cached key.

use std::collections::BTreeMap;

use leasehold_core::payload::cache::{CacheRecord, OwnerKind};
use leasehold_core::time::GrantorTime;

/// Readers and the pending writer of the cached key, by the records.
#[derive(Clone, Debug, Default)]
pub struct ModelCache {
    /// Readers by lease number: session, ttl of the copy, and time of the last renewal.
    pub readers: BTreeMap<u64, (Option<u32>, u64, GrantorTime)>,
    /// Number and session of the write intent.
    pub intent: Option<(u64, Option<u32>)>,
}

impl ModelCache {
    /// Applies a record.
    pub fn apply(&mut self, record: &CacheRecord, time: GrantorTime) {
        match record {
            CacheRecord::Read { lease, session, ttl_ms, .. } => {
                self.readers.insert(lease.get(), (session.map(|session| session.slot), *ttl_ms, time));
            }
            CacheRecord::Renewed { lease } => {
                self.readers.get_mut(&lease.get()).into_iter().for_each(|reader| reader.2 = time);
            }
            CacheRecord::Began { kind: OwnerKind::Intent, number, session, .. } => {
                self.intent = Some((number.get(), session.map(|session| session.slot)));
            }
            CacheRecord::Done { number } | CacheRecord::Ended { number, .. } => {
                self.readers.remove(&number.get());
                self.intent = self.intent.filter(|(intent, _)| *intent != number.get());
            }
            CacheRecord::Began { .. } | CacheRecord::Forgotten { .. } => {}
        }
    }

    /// Ends the copies and the intent of a session.
    pub fn session_ended(&mut self, slot: u32) {
        self.readers.retain(|_, (session, ..)| *session != Some(slot));
        self.intent = self.intent.filter(|(_, session)| *session != Some(slot));
    }
}
