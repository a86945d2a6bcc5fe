//! Limits on connections that are not known yet: handshakes at once, in all and per source address (A16).
//!
//! A connection beyond a limit waits, within the time of its handshake. One address can neither use up the handshakes of the others
//! nor fill the queue.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Time for a handshake, from the accept to the verified certificate.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Handshakes at once.
const MAX_HANDSHAKES: usize = 256;
/// Handshakes at once of one source address.
const MAX_PER_ADDRESS: usize = 32;
/// Connections that handshake or wait for it.
const MAX_PENDING: usize = 1_024;
/// The same, of one source address.
const MAX_PENDING_PER_ADDRESS: usize = 256;

/// Limits on handshakes.
#[derive(Debug)]
pub struct HandshakeLimit {
    handshakes: Arc<Semaphore>,
    pending: Mutex<PendingHandshakes>,
}

#[derive(Debug, Default)]
struct PendingHandshakes {
    count: usize,
    addresses: HashMap<IpAddr, AddressHandshakes>,
}

#[derive(Debug)]
struct AddressHandshakes {
    count: usize,
    handshakes: Arc<Semaphore>,
}

/// A connection that handshakes or waits for it.
#[derive(Debug)]
pub struct PendingHandshake {
    limit: Arc<HandshakeLimit>,
    address: IpAddr,
    handshakes: Arc<Semaphore>,
}

impl HandshakeLimit {
    pub fn new() -> Arc<Self> {
        Arc::new(Self { handshakes: Arc::new(Semaphore::new(MAX_HANDSHAKES)), pending: Mutex::default() })
    }

    /// Registers a new connection; `None` if too many are pending, in all or from this address.
    pub fn register(self: &Arc<Self>, address: IpAddr) -> Option<PendingHandshake> {
        let mut pending = self.pending();
        let total = pending.count;
        let new = || AddressHandshakes { count: 0, handshakes: Arc::new(Semaphore::new(MAX_PER_ADDRESS)) };
        let entry = pending.addresses.entry(address).or_insert_with(new);
        if total >= MAX_PENDING || entry.count >= MAX_PENDING_PER_ADDRESS {
            if entry.count == 0 {
                pending.addresses.remove(&address);
            }
            return None;
        }
        entry.count += 1;
        let handshakes = entry.handshakes.clone();
        pending.count += 1;
        Some(PendingHandshake { limit: self.clone(), address, handshakes })
    }

    fn pending(&self) -> MutexGuard<'_, PendingHandshakes> {
        self.pending.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl PendingHandshake {
    /// Waits until this handshake may begin. It ends when the permits are dropped.
    pub async fn begin(&self) -> [OwnedSemaphorePermit; 2] {
        let open = "the semaphore is never closed";
        // The address first: what waits for its own address must not keep others from the handshakes of all.
        let address = self.handshakes.clone().acquire_owned().await.expect(open);
        [address, self.limit.handshakes.clone().acquire_owned().await.expect(open)]
    }
}

impl Drop for PendingHandshake {
    fn drop(&mut self) {
        let mut pending = self.limit.pending();
        pending.count -= 1;
        if let Some(entry) = pending.addresses.get_mut(&self.address) {
            entry.count -= 1;
            if entry.count == 0 {
                pending.addresses.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    fn address(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    #[tokio::test]
    async fn one_address_has_32_handshakes_and_leaves_the_others_theirs() {
        let limit = HandshakeLimit::new();
        let pending: Vec<_> = (0..40).map(|_| limit.register(address(1)).expect("below the limit")).collect();
        let mut begun = Vec::new();
        for one in &pending[..32] {
            begun.push(one.begin().now_or_never().expect("below the limit of the address"));
        }
        assert!(pending[32].begin().now_or_never().is_none(), "the address has 32 at once");
        let other = limit.register(address(2)).expect("another address");
        assert!(other.begin().now_or_never().is_some());
        drop(begun.pop());
        assert!(pending[32].begin().now_or_never().is_some());
    }

    #[tokio::test]
    async fn at_most_256_handshakes_are_done_at_once() {
        let limit = HandshakeLimit::new();
        let pending: Vec<_> = (0..9)
            .flat_map(|at| (0..32).map(move |_| at))
            .map(|at| limit.register(address(at)).expect("below"))
            .collect();
        // The runtime would make a task pause that polls this often.
        let begin = |one: &PendingHandshake| tokio::task::unconstrained(one.begin()).now_or_never();
        assert_eq!(pending.iter().filter_map(begin).collect::<Vec<_>>().len(), 256);
    }

    #[test]
    fn pending_connections_are_limited_and_forgotten_when_they_end() {
        let limit = HandshakeLimit::new();
        let one: Vec<_> = std::iter::from_fn(|| limit.register(address(1))).collect();
        assert_eq!(one.len(), MAX_PENDING_PER_ADDRESS);
        let others: Vec<_> = (2..=255).map_while(|at| limit.register(address(at))).collect();
        assert_eq!(others.len(), 254, "other addresses are not affected");
        drop((one, others));
        assert!(limit.pending().addresses.is_empty());
        assert_eq!(limit.pending().count, 0);
    }
}
