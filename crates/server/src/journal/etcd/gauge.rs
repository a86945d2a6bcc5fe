//! How full etcd is, looked at now and then, so that new grants are refused before etcd refuses everything (V4).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;

use super::pb::StatusResponse;
use super::reach::Reach;
use crate::journal::Room;

/// How large etcd's database may become, unless etcd says otherwise: what it is set to if nobody sets it.
pub const QUOTA: u64 = 2 << 30;
/// How often it is looked at.
const EVERY: Duration = Duration::from_secs(2);

/// How full etcd is.
#[derive(Debug, Default)]
pub struct Gauge {
    used: AtomicU64,
    quota: AtomicU64,
}

impl Gauge {
    /// What the members say. The fullest counts, and its file, free pages and all: that is what etcd's own bound is about.
    pub fn look<'a>(&self, told: impl IntoIterator<Item = &'a StatusResponse>, assumed: u64) {
        let (mut used, mut quota) = (0, u64::MAX);
        for member in told {
            used = used.max(u64::try_from(member.db_size).unwrap_or(0));
            let own = u64::try_from(member.db_size_quota).unwrap_or(0);
            quota = quota.min(if own > 0 { own } else { assumed });
        }
        if quota < u64::MAX {
            self.used.store(used, Ordering::Relaxed);
            self.quota.store(quota, Ordering::Relaxed);
        }
    }

    /// Bytes of the database, and how many it may have.
    pub fn read(&self) -> (u64, u64) {
        (self.used.load(Ordering::Relaxed), self.quota.load(Ordering::Relaxed))
    }

    /// The last tenth is for ending what is held.
    pub fn room(&self) -> Room {
        match self.read() {
            (used, quota) if used >= quota && quota > 0 => Room::None,
            (used, quota) if quota > 0 && used >= quota - quota / 10 => Room::ReserveOnly,
            _ => Room::Plenty,
        }
    }

    /// Looks now and then.
    pub fn watch(self: Arc<Self>, reach: Arc<Reach>, assumed: u64) -> JoinHandle<()> {
        tokio::spawn(async move {
            loop {
                let told = reach.each_status().await;
                self.look(told.iter().filter_map(|(_, told)| told.as_ref().ok()), assumed);
                tokio::time::sleep(EVERY).await;
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_tenth_of_the_fullest_member_is_the_reserve() {
        let gauge = Gauge::default();
        assert_eq!(gauge.room(), Room::Plenty, "nobody was asked yet");
        let member = |db_size, db_size_quota| StatusResponse { db_size, db_size_quota, ..Default::default() };
        for (sizes, room) in [([10, 899], Room::Plenty), ([10, 900], Room::ReserveOnly), ([1_000, 10], Room::None)] {
            gauge.look(&sizes.map(|size| member(size, 0)), 1_000);
            assert_eq!(gauge.room(), room, "{sizes:?}");
        }
        gauge.look(&[member(1_000, 4_000)], 1_000);
        assert_eq!((gauge.room(), gauge.read()), (Room::Plenty, (1_000, 4_000)), "what etcd says goes before");
        gauge.look(&[], 1_000);
        assert_eq!(gauge.read(), (1_000, 4_000), "nobody answers: what was known is kept");
    }
}
