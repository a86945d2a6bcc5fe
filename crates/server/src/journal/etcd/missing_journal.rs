//! A prefix without `meta`: a new journal may begin there only if no batch was lost.

use super::local::HighWater;
use super::open::CheckedEtcd;
use crate::journal::{EtcdOpenError, FIRST, OpenError};

impl CheckedEtcd {
    /// Fails if the prefix had a journal at a revision where it has no `meta`: if batches are left, if this server has seen batches
    /// (it has replayed them up to `position`, or its high-water mark names one), or if another server left a marker. A server that
    /// has seen batches leaves a marker, so that one that has seen nothing does not begin another journal under the same prefix.
    pub async fn check_missing(&self, revision: i64, position: u64) -> Result<(), OpenError> {
        let reader = self.reader(revision);
        let prefix = self.keys.prefix().to_owned();
        if reader.has_content().await.map_err(|error| self.read_error(error))? {
            let (key, reason) = (format!("{prefix}meta"), "missing, although there are batches".to_owned());
            return Err(OpenError::Etcd(EtcdOpenError::Corrupt { key, reason }));
        }
        let high_water = self.local.high_water();
        let seen = high_water.as_ref().map_or(0, |seen| seen.sequence).max(position);
        if seen >= FIRST {
            let what = format!("this server has seen batch {seen}, and etcd has none");
            let accepted = reader.accepted().await.map_err(|error| self.read_error(error))?;
            self.leave_marker(&what, accepted).await;
            return Err(OpenError::Etcd(EtcdOpenError::Emptied { prefix, what }));
        }
        if let Some(marker) = reader.rolled_back().await.map_err(|error| self.read_error(error))? {
            let what = format!("another server found this ({marker})");
            return Err(OpenError::Etcd(EtcdOpenError::Emptied { prefix, what }));
        }
        match high_water {
            Some(HighWater { journal, .. }) => {
                let found = "none".to_owned();
                Err(OpenError::Etcd(EtcdOpenError::OtherJournal { prefix, seen: journal, found }))
            }
            None => Ok(()),
        }
    }
}
