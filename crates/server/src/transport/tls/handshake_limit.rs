//! Limits on connections that are not known yet: handshakes at once, in all and per source address (A16).
//!
//! A connection counts as a handshake from its complete ClientHello on; until then it only waits. Beyond a limit a new connection is not
//! refused as long as a silent one, one of an address with more connections, or a stalled handshake can be closed for it. So strangers
//! from many addresses cannot keep those out who belong here.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

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
/// Time after which a handshake is closed if another one waits.
const STALL_TIME: Duration = Duration::from_secs(2);
/// How often one that waits looks for such a handshake.
const STALL_CHECK: Duration = Duration::from_millis(250);

/// Limits on handshakes.
#[derive(Debug)]
pub struct HandshakeLimit {
    handshakes: Arc<Semaphore>,
    pending: Mutex<PendingHandshakes>,
}

#[derive(Debug, Default)]
struct PendingHandshakes {
    next_id: u64,
    /// In the order in which they were accepted.
    connections: BTreeMap<u64, PendingConnection>,
    addresses: HashMap<IpAddr, AddressHandshakes>,
}

#[derive(Debug)]
struct PendingConnection {
    address: IpAddr,
    stage: HandshakeStage,
    displaced: Arc<Notify>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HandshakeStage {
    /// Its ClientHello is not complete.
    Silent,
    /// It waits until it may begin.
    Waiting,
    /// It began then.
    InProgress(Instant),
}

#[derive(Debug)]
struct AddressHandshakes {
    count: usize,
    silent: usize,
    handshakes: Arc<Semaphore>,
}

/// A connection that handshakes or waits for it.
#[derive(Debug)]
pub struct PendingHandshake {
    limit: Arc<HandshakeLimit>,
    id: u64,
    address: IpAddr,
    handshakes: Arc<Semaphore>,
    displaced: Arc<Notify>,
}

impl HandshakeLimit {
    pub fn new() -> Arc<Self> {
        Arc::new(Self { handshakes: Arc::new(Semaphore::new(MAX_HANDSHAKES)), pending: Mutex::default() })
    }

    /// Registers a new connection. At a limit another one is closed for it; `None` if there is none that may be.
    pub fn register(self: &Arc<Self>, address: IpAddr) -> Option<PendingHandshake> {
        let mut pending = self.pending();
        let own = pending.addresses.get(&address).map_or(0, |entry| entry.count);
        let displaced = if own >= MAX_PENDING_PER_ADDRESS {
            Some(pending.oldest_silent(address)?)
        } else if pending.connections.len() >= MAX_PENDING {
            Some(pending.displaceable(own)?)
        } else {
            None
        };
        if let Some(id) = displaced {
            pending.displace(id);
        }
        let new = || AddressHandshakes { count: 0, silent: 0, handshakes: Arc::new(Semaphore::new(MAX_PER_ADDRESS)) };
        let entry = pending.addresses.entry(address).or_insert_with(new);
        entry.count += 1;
        entry.silent += 1;
        let (handshakes, displaced) = (entry.handshakes.clone(), Arc::new(Notify::new()));
        let id = pending.next_id;
        pending.next_id += 1;
        let connection = PendingConnection { address, stage: HandshakeStage::Silent, displaced: displaced.clone() };
        pending.connections.insert(id, connection);
        Some(PendingHandshake { limit: self.clone(), id, address, handshakes, displaced })
    }

    fn pending(&self) -> MutexGuard<'_, PendingHandshakes> {
        self.pending.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl PendingHandshakes {
    /// The oldest connection of an address that has not sent its ClientHello.
    fn oldest_silent(&self, address: IpAddr) -> Option<u64> {
        let is_silent = |one: &PendingConnection| one.stage == HandshakeStage::Silent && one.address == address;
        self.connections.iter().find(|(_, one)| is_silent(one)).map(|(id, _)| *id)
    }

    /// The connection to close for a new one of an address that has `own`: the oldest silent one of the address with the most of
    /// them, else the last that waits of the address with the most connections. An address with fewer than `own` loses none.
    fn displaceable(&self, own: usize) -> Option<u64> {
        let larger = self.addresses.iter().filter(|(_, entry)| entry.count >= own);
        let (address, most) = larger.max_by_key(|(_, entry)| entry.silent)?;
        if most.silent > 0 {
            return self.oldest_silent(*address);
        }
        let (address, most) = self.addresses.iter().max_by_key(|(_, entry)| entry.count)?;
        let waits = |one: &PendingConnection| one.stage == HandshakeStage::Waiting && one.address == *address;
        let last = self.connections.iter().rev().find(|(_, one)| waits(one)).map(|(id, _)| *id);
        last.filter(|_| most.count > own)
    }

    /// A handshake that is in progress for too long while others wait: the oldest of this address, or of the address with the most.
    fn stalled(&self, address: Option<IpAddr>) -> Option<u64> {
        let mut in_progress: HashMap<IpAddr, usize> = HashMap::new();
        let mut stalled = Vec::new();
        for (id, one) in &self.connections {
            if let HandshakeStage::InProgress(since) = one.stage {
                *in_progress.entry(one.address).or_default() += 1;
                if since.elapsed() >= STALL_TIME && address.is_none_or(|address| address == one.address) {
                    stalled.push((*id, one.address, since));
                }
            }
        }
        let most = |(_, address, since): &(u64, IpAddr, Instant)| (in_progress[address], Reverse(*since));
        stalled.into_iter().max_by_key(most).map(|(id, ..)| id)
    }

    /// Closes a connection. It no longer counts.
    fn displace(&mut self, id: u64) {
        if let Some(one) = self.remove(id) {
            one.displaced.notify_one();
        }
    }

    fn remove(&mut self, id: u64) -> Option<PendingConnection> {
        let removed = self.connections.remove(&id)?;
        if let Some(entry) = self.addresses.get_mut(&removed.address) {
            entry.count -= 1;
            entry.silent -= usize::from(removed.stage == HandshakeStage::Silent);
            if entry.count == 0 {
                self.addresses.remove(&removed.address);
            }
        }
        Some(removed)
    }

    fn set_stage(&mut self, id: u64, stage: HandshakeStage) {
        // A connection that was displaced no longer counts.
        let Some(one) = self.connections.get_mut(&id) else { return };
        let before = std::mem::replace(&mut one.stage, stage);
        if let (HandshakeStage::Silent, Some(entry)) = (before, self.addresses.get_mut(&one.address)) {
            entry.silent -= 1;
        }
    }
}

impl PendingHandshake {
    /// Waits until this handshake, whose ClientHello is complete, may begin. It ends when the permits are dropped.
    pub async fn begin(&self) -> [OwnedSemaphorePermit; 2] {
        self.limit.pending().set_stage(self.id, HandshakeStage::Waiting);
        // The address first: what waits for its own address must not keep others from the handshakes of all.
        let of_address = self.acquire(&self.handshakes, Some(self.address)).await;
        let of_all = self.acquire(&self.limit.handshakes, None).await;
        self.limit.pending().set_stage(self.id, HandshakeStage::InProgress(Instant::now()));
        [of_address, of_all]
    }

    /// Resolves when this connection is closed for another one.
    pub async fn displaced(&self) {
        self.displaced.notified().await;
    }

    /// A permit, for which stalled handshakes make room.
    async fn acquire(&self, permits: &Arc<Semaphore>, address: Option<IpAddr>) -> OwnedSemaphorePermit {
        let mut permit = pin!(permits.clone().acquire_owned());
        loop {
            tokio::select! {
                biased;
                permit = permit.as_mut() => return permit.expect("the semaphore is never closed"),
                () = tokio::time::sleep(STALL_CHECK) => {
                    let mut pending = self.limit.pending();
                    if let Some(id) = pending.stalled(address) {
                        pending.displace(id);
                    }
                }
            }
        }
    }
}

impl Drop for PendingHandshake {
    fn drop(&mut self) {
        self.limit.pending().remove(self.id);
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
        let one: Vec<_> = (0..300).map_while(|_| said_hello(&limit, address(1))).collect();
        assert_eq!(one.len(), MAX_PENDING_PER_ADDRESS);
        let others: Vec<_> = (2..=255).map_while(|at| limit.register(address(at))).collect();
        assert_eq!(others.len(), 254, "other addresses are not affected");
        drop((one, others));
        let pending = limit.pending();
        assert!(pending.addresses.is_empty() && pending.connections.is_empty());
    }

    /// A connection whose ClientHello is complete.
    fn said_hello(limit: &Arc<HandshakeLimit>, address: IpAddr) -> Option<PendingHandshake> {
        let pending = limit.register(address)?;
        limit.pending().set_stage(pending.id, HandshakeStage::Waiting);
        Some(pending)
    }

    fn is_displaced(pending: &PendingHandshake) -> bool {
        pending.displaced().now_or_never().is_some()
    }

    #[test]
    fn a_full_queue_closes_the_oldest_silent_connection_of_the_address_with_the_most() {
        let limit = HandshakeLimit::new();
        let few: Vec<_> = (0..10).map(|_| limit.register(address(1)).expect("below the limit")).collect();
        let most: Vec<_> = (0..200).map(|_| limit.register(address(2)).expect("below the limit")).collect();
        let others: Vec<_> =
            (0..814).map(|at| limit.register(address(3 + (at % 8) as u8)).expect("below the limit")).collect();
        let new = limit.register(address(99)).expect("the queue makes room");
        let again = limit.register(address(2)).expect("the queue makes room");
        let closed: Vec<usize> =
            most.iter().enumerate().filter(|(_, one)| is_displaced(one)).map(|(at, _)| at).collect();
        assert_eq!(closed, [0, 1], "the oldest ones");
        assert!(!few.iter().chain(&others).chain([&new, &again]).any(is_displaced));
        assert_eq!(limit.pending().connections.len(), MAX_PENDING);
    }

    #[test]
    fn a_full_address_closes_its_own_oldest_silent_connection() {
        let limit = HandshakeLimit::new();
        let first = said_hello(&limit, address(1)).expect("below the limit");
        let silent: Vec<_> = (0..255).map(|_| limit.register(address(1)).expect("below the limit")).collect();
        let new = limit.register(address(1)).expect("a silent one makes room");
        assert!(is_displaced(&silent[0]) && !is_displaced(&silent[1]) && !is_displaced(&first) && !is_displaced(&new));
    }

    #[test]
    fn if_none_is_silent_the_address_with_the_most_connections_makes_room() {
        let limit = HandshakeLimit::new();
        let address_of = |at: usize| address((at % 8) as u8);
        let waiting: Vec<_> =
            (0..1_024).map(|at| said_hello(&limit, address_of(at)).expect("below the limit")).collect();
        let new = limit.register(address(99)).expect("another address makes room");
        let closed: Vec<usize> =
            waiting.iter().enumerate().filter(|(_, one)| is_displaced(one)).map(|(at, _)| at).collect();
        assert!(closed.len() == 1 && closed[0] >= 1_016, "the last of one address: {closed:?}");
        let others = (0..8).map(address).filter(|other| *other != address_of(closed[0]));
        for other in others {
            assert!(limit.register(other).is_none(), "no address gains from one that has no more than it");
        }
        assert!(!is_displaced(&new), "the larger addresses take no place of a smaller one, although it is silent");
    }

    #[tokio::test]
    async fn stalled_handshakes_make_room_for_one_that_waits() {
        let limit = HandshakeLimit::new();
        let mut held = Vec::new();
        for at in 0..256 {
            let pending = limit.register(address((at % 8) as u8)).expect("below the limit");
            let permits = tokio::task::unconstrained(pending.begin()).await;
            held.push((pending, permits));
        }
        let new = limit.register(address(99)).expect("below the limit");
        let mut begun = pin!(new.begin());
        assert!(begun.as_mut().now_or_never().is_none());
        let displaced = async {
            loop {
                if let Some(at) = held.iter().position(|(pending, _)| is_displaced(pending)) {
                    break at;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let at = tokio::select! {
            at = displaced => at,
            _ = begun.as_mut() => panic!("no handshake has ended"),
        };
        drop(held.swap_remove(at));
        drop(begun.await);
    }
}
