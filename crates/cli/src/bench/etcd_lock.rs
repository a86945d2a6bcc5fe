//! etcd's own lock, as its users take it: a lease for the holder and a key that only the first holder creates.

use std::time::Duration;

use leasehold_server::journal::etcd::pb::kv_client::KvClient;
use leasehold_server::journal::etcd::pb::lease_client::LeaseClient;
use leasehold_server::journal::etcd::pb::{Compare, LeaseGrantRequest, RequestOp, TxnRequest};
use tonic::transport::{Channel, Endpoint};

/// Timeout of one call.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// A connection to one etcd member.
#[derive(Clone)]
pub struct EtcdLock {
    channel: Channel,
}

impl EtcdLock {
    /// A connection that is established on first use.
    pub fn connect(endpoint: &str) -> Result<Self, String> {
        let endpoint = Endpoint::from_shared(format!("http://{endpoint}")).map_err(|error| error.to_string())?;
        Ok(Self { channel: endpoint.timeout(CALL_TIMEOUT).tcp_nodelay(true).connect_lazy() })
    }

    /// Acquires a lock with one etcd lease and one key. False if the lock is held.
    pub async fn lock(&self, name: &str, ttl_seconds: i64) -> Result<bool, String> {
        let failed = |status: tonic::Status| format!("etcd: {}", status.message());
        let grant = LeaseGrantRequest { ttl: ttl_seconds, id: 0 };
        let lease = LeaseClient::new(self.channel.clone()).lease_grant(grant).await.map_err(failed)?.into_inner().id;
        let txn = TxnRequest {
            compare: vec![Compare::absent(name.as_bytes())],
            success: vec![RequestOp::put(name.as_bytes(), "", lease)],
            failure: vec![RequestOp::get(name.as_bytes())],
        };
        let response = KvClient::new(self.channel.clone()).txn(txn).await.map_err(failed)?;
        Ok(response.into_inner().succeeded)
    }
}
