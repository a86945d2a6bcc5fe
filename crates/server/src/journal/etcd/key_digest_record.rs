//! The record of the keys that the servers of a cluster share. It holds digests and ids, so that a server with other keys is found
//! before it leads.

use std::time::Duration;

use super::leadership::EtcdLeadership;
use super::open::CheckedEtcd;
use super::pb::{RequestOp, TxnRequest};
use super::{EtcdOpenError, Generation};
use crate::journal::{KeyMismatch, OpenError};

/// Interval at which the leader looks whether its keys have changed.
const RECORD_INTERVAL: Duration = Duration::from_secs(1);

/// The keys of one server, as its journal records and compares them.
pub trait KeyDigestRecord: Send + Sync {
    /// What a leader records. It contains no secret.
    fn record(&self) -> String;

    /// Compares the own keys with the record of a leader, which is in the key `at`.
    fn compare(&self, recorded: Option<&str>, at: &str) -> Result<(), KeyMismatch>;
}

impl CheckedEtcd {
    /// Refuses a server that starts with other keys than the last leader had.
    pub async fn check_keys(&self, own: Option<&dyn KeyDigestRecord>) -> Result<(), OpenError> {
        self.compare_keys(own).await?.map_err(|mismatch| OpenError::Etcd(EtcdOpenError::OtherKeys { mismatch }))
    }

    /// The same for a server that leads next.
    pub async fn check_leading_keys(&self, own: Option<&dyn KeyDigestRecord>) -> Result<(), OpenError> {
        match self.compare_keys(own).await? {
            Err(mismatch @ KeyMismatch::ClusterKey(_)) => Err(OpenError::Etcd(EtcdOpenError::OtherKeys { mismatch })),
            Err(KeyMismatch::SealKeys(problem) | KeyMismatch::StampKeys(problem)) => {
                tracing::error!("leading with other keys than the last leader: {problem}");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    async fn compare_keys(&self, own: Option<&dyn KeyDigestRecord>) -> Result<Result<(), KeyMismatch>, OpenError> {
        let Some(own) = own else { return Ok(Ok(())) };
        let recorded = self.reader(0).key_digests().await.map_err(|error| self.read_error(error))?;
        let recorded = recorded.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        Ok(own.compare(recorded.as_deref(), &String::from_utf8_lossy(&self.keys.key_digests())))
    }
}

impl EtcdLeadership {
    /// Records the keys of the leader now and whenever they change, until this server no longer leads.
    pub async fn record_keys(&self, generation: &Generation, own: &dyn KeyDigestRecord) {
        let mut recorded = None;
        loop {
            let record = own.record();
            if recorded.as_ref() != Some(&record) {
                let put = RequestOp::put(&self.keys().key_digests(), record.clone().into_bytes(), 0);
                let txn =
                    TxnRequest { compare: generation.conditions(self.keys()), success: vec![put], failure: Vec::new() };
                match self.client().txn(txn).await {
                    Ok(response) if response.succeeded => recorded = Some(record),
                    // Another server leads.
                    Ok(_) => return std::future::pending().await,
                    Err(error) => tracing::warn!(%error, "cannot record the ids of keys in etcd"),
                }
            }
            tokio::time::sleep(RECORD_INTERVAL).await;
        }
    }
}
