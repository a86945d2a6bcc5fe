//! Attribution of a batch's records to the callers that caused them (A13).
//!
//! The records of a request follow a record of its caller. That record is written only if the request causes audit entries, if the
//! caller is not `local` or names a trace, and if the records before it are of another caller; so renewals and a server without
//! identities write nothing. It is inserted when the request is done, because only then it is known whether it is needed.

use std::ops::Range;

use super::Grantor;
use crate::access::Attribution;
use crate::mutants::{self, Mutant};
use crate::record::Record;

/// Which identity the records of the current batch are attributed to.
#[derive(Debug, Default)]
pub(super) struct BatchAttribution {
    /// Offset of the first record.
    records_at: usize,
    /// The record of the last caller; empty if the records so far are of none.
    current: Range<usize>,
    /// Whether a record with audit entries was written since the last request began.
    audited: bool,
    scratch: Vec<u8>,
}

impl BatchAttribution {
    pub fn clear(&mut self) {
        (self.records_at, self.current, self.audited) = (0, 0..0, false);
    }

    pub fn batch_started(&mut self, records_at: usize) {
        self.records_at = records_at;
    }

    pub fn recorded(&mut self, record: &Record<'_>) {
        self.audited |= record.is_audited();
    }
}

impl Grantor {
    /// Starts the records of one caller; returns where they start.
    #[inline]
    pub(super) fn begin_attribution(&mut self) -> usize {
        self.attribution.audited = false;
        self.out.batch.len()
    }

    /// Attributes the records since `start`; to no one for time, the server itself and `local` callers.
    #[inline]
    pub(super) fn end_attribution(&mut self, start: usize, to: Option<&Attribution<'_>>) {
        if self.attribution.audited && !mutants::on(Mutant::ActorMissing) {
            self.attribute(start, to);
        }
    }

    fn attribute(&mut self, start: usize, to: Option<&Attribution<'_>>) {
        let state = &mut self.attribution;
        state.scratch.clear();
        match to {
            Some(to) => Record::AttributedTo(*to).encode(&mut state.scratch),
            None if state.current.is_empty() || mutants::on(Mutant::ActorCarriedOver) => return,
            None => Record::AttributionEnded.encode(&mut state.scratch),
        }
        if self.out.batch[state.current.clone()] == state.scratch[..] {
            return;
        }
        let at = start.max(state.records_at);
        state.current = if to.is_some() { at..at + state.scratch.len() } else { 0..0 };
        self.out.batch.splice(at..at, state.scratch.iter().copied());
    }
}
