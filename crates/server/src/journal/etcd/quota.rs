//! Database size and quota of etcd, polled so that new grants are refused before etcd refuses every write (V4).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;

use super::client::EtcdClient;
use super::pb::StatusResponse;
use crate::journal::DiskSpace;

/// Default quota of etcd's database.
pub const QUOTA: u64 = 2 << 30;
/// Poll interval.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Database size and quota of etcd.
#[derive(Debug, Default)]
pub struct Quota {
    used: AtomicU64,
    quota: AtomicU64,
}

impl Quota {
    /// Updates from the members' statuses. The fullest member counts, with the free pages of its file, as in etcd's own check.
    pub fn update<'a>(&self, statuses: impl IntoIterator<Item = &'a StatusResponse>, default_quota: u64) {
        let (mut used, mut quota) = (0, u64::MAX);
        for member in statuses {
            used = used.max(u64::try_from(member.db_size).unwrap_or(0));
            let own = u64::try_from(member.db_size_quota).unwrap_or(0);
            quota = quota.min(if own > 0 { own } else { default_quota });
        }
        if quota < u64::MAX {
            self.used.store(used, Ordering::Relaxed);
            self.quota.store(quota, Ordering::Relaxed);
        }
    }

    /// Size of the database and its quota, in bytes.
    pub fn read(&self) -> (u64, u64) {
        (self.used.load(Ordering::Relaxed), self.quota.load(Ordering::Relaxed))
    }

    /// The space left; the last tenth is reserved for ending leases.
    pub fn disk_space(&self) -> DiskSpace {
        match self.read() {
            (used, quota) if used >= quota && quota > 0 => DiskSpace::None,
            (used, quota) if quota > 0 && used >= quota - quota / 10 => DiskSpace::ReserveOnly,
            _ => DiskSpace::Plenty,
        }
    }

    /// Polls the members in the background.
    pub fn poll(self: Arc<Self>, client: Arc<EtcdClient>, default_quota: u64) -> JoinHandle<()> {
        tokio::spawn(async move {
            loop {
                let statuses = client.each_status().await;
                self.update(statuses.iter().filter_map(|(_, status)| status.as_ref().ok()), default_quota);
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_tenth_of_the_fullest_member_is_the_reserve() {
        let quota = Quota::default();
        assert_eq!(quota.disk_space(), DiskSpace::Plenty, "not polled yet");
        let member = |db_size, db_size_quota| StatusResponse { db_size, db_size_quota, ..Default::default() };
        for (sizes, space) in
            [([10, 899], DiskSpace::Plenty), ([10, 900], DiskSpace::ReserveOnly), ([1_000, 10], DiskSpace::None)]
        {
            quota.update(&sizes.map(|size| member(size, 0)), 1_000);
            assert_eq!(quota.disk_space(), space, "{sizes:?}");
        }
        quota.update(&[member(1_000, 4_000)], 1_000);
        assert_eq!(
            (quota.disk_space(), quota.read()),
            (DiskSpace::Plenty, (1_000, 4_000)),
            "the reported quota overrides the default"
        );
        quota.update(&[], 1_000);
        assert_eq!(quota.read(), (1_000, 4_000), "without a response the last values remain");
    }
}
