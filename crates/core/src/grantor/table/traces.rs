//! Which leases and waits belong to a distributed trace. They are few, so that a lease without one costs nothing.

use std::collections::BTreeMap;

use super::actors::Waiter;
use super::lease::StoredLease;
use crate::codec::{DecodeError, Reader, Write};
use crate::store::slab::Slab;
use crate::trace_context::TraceContext;

/// Trace contexts by the slots of held leases and of waits.
#[derive(Debug, Default)]
pub(crate) struct Traces {
    leases: BTreeMap<u32, TraceContext>,
    waits: BTreeMap<u32, TraceContext>,
}

impl Traces {
    pub fn is_empty(&self) -> bool {
        self.leases.is_empty() && self.waits.is_empty()
    }

    pub fn set_lease(&mut self, lease: u32, trace: TraceContext) {
        self.leases.insert(lease, trace);
    }

    pub fn set_wait(&mut self, waiter: u32, trace: TraceContext) {
        self.waits.insert(waiter, trace);
    }

    pub fn of_lease(&self, lease: u32) -> Option<TraceContext> {
        self.leases.get(&lease).copied()
    }

    pub fn of_wait(&self, waiter: u32) -> Option<TraceContext> {
        self.waits.get(&waiter).copied()
    }

    pub fn lease_ended(&mut self, lease: u32) {
        if !self.leases.is_empty() {
            self.leases.remove(&lease);
        }
    }

    pub fn wait_ended(&mut self, waiter: u32) {
        if !self.waits.is_empty() {
            self.waits.remove(&waiter);
        }
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        for traces in [&self.leases, &self.waits] {
            out.num(traces.len() as u64);
            for (slot, trace) in traces {
                out.num(u64::from(*slot));
                trace.encode(out);
            }
        }
    }

    /// Decodes the traces of these leases and waits.
    pub fn decode(
        leases: &Slab<StoredLease>,
        waiters: &Slab<Waiter>,
        from: &mut Reader<'_>,
    ) -> Result<Self, DecodeError> {
        let leases = decode_slots(from, |slot| leases.is_live(slot))?;
        let waits = decode_slots(from, |slot| waiters.is_live(slot))?;
        Ok(Self { leases, waits })
    }
}

fn decode_slots(
    from: &mut Reader<'_>,
    is_live: impl Fn(u32) -> bool,
) -> Result<BTreeMap<u32, TraceContext>, DecodeError> {
    let mut traces = BTreeMap::new();
    for _ in 0..from.num()? {
        let slot = from.num32()?;
        if !is_live(slot) {
            return Err(from.wrong("a trace of a lease or wait that does not exist"));
        }
        if traces.last_key_value().is_some_and(|(before, _)| *before >= slot) {
            return Err(from.wrong("traces out of order"));
        }
        traces.insert(slot, TraceContext::decode(from)?);
    }
    Ok(traces)
}
