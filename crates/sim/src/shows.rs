//! What a grantor shows of its state, to be compared with what is on record.

use leasehold_core::grantor::Grantor;

use crate::ask::{QUEUE, QUEUED};
use crate::history::State;

/// Leases, queues and messages, as anybody may see them.
pub fn state(grantor: &Grantor) -> State {
    let (resources, _) = grantor.list("", 0, usize::MAX, u32::MAX);
    let mut held: Vec<u64> =
        resources.iter().flat_map(|resource| &resource.leases).map(|lease| lease.number.get()).collect();
    held.sort_unstable();
    let queues = QUEUED.iter().map(|name| grantor.waiters(name).iter().map(|waiter| waiter.session).collect());
    State { held, queues: queues.collect(), items: items(grantor) }
}

/// Every message, as the grantor shows it.
fn items(grantor: &Grantor) -> Vec<(u64, u32, Option<u64>, bool)> {
    use leasehold_core::payload::delivery::Standing;
    let queues = grantor.queues();
    let all = (0..200).filter_map(|item| queues.view(QUEUE, item));
    all.map(|view| match view.standing {
        Standing::Ready { .. } => (view.item, view.attempts, None, false),
        Standing::Live { receipt, .. } => (view.item, view.attempts, Some(receipt.get()), false),
        Standing::Dead { .. } => (view.item, view.attempts, None, true),
    })
    .collect()
}
