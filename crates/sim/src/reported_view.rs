//! What a grantor reports of its state, for comparison with the model of the records.

use leasehold_core::grantor::{Grantor, QueryBudget};

use crate::history::ReportedState;
use crate::run_constants::{QUEUE, QUEUED};

/// Leases, queues and messages that a grantor reports.
pub fn state(grantor: &Grantor) -> ReportedState {
    let (resources, _) = grantor.list("", 0, usize::MAX, usize::MAX, &mut QueryBudget::unlimited());
    let mut held: Vec<u64> =
        resources.iter().flat_map(|resource| &resource.leases).map(|lease| lease.number.get()).collect();
    held.sort_unstable();
    let queues = QUEUED.iter().map(|name| grantor.waiters(name).iter().map(|waiter| waiter.session).collect());
    ReportedState { held, queues: queues.collect(), items: items(grantor) }
}

/// Every message, as the grantor reports it.
fn items(grantor: &Grantor) -> Vec<(u64, u32, Option<u64>, bool)> {
    use leasehold_core::payload::delivery::MessageState;
    let queues = grantor.queues();
    let all = (0..200).filter_map(|item| queues.view(QUEUE, item));
    all.map(|view| match view.state {
        MessageState::Ready { .. } => (view.item, view.attempts, None, false),
        MessageState::Live { receipt, .. } => (view.item, view.attempts, Some(receipt.get()), false),
        MessageState::Dead { .. } => (view.item, view.attempts, None, true),
    })
    .collect()
}
