//! etcd's own lock, as its users take it: a lease for the holder, and a key that only the first one creates. It is here to
//! be measured beside the journal.

use std::time::Duration;

use prost::bytes::Bytes;
use tonic::transport::{Channel, Endpoint};

use super::pb::kv_client::KvClient;
use super::pb::lease_client::LeaseClient;
use super::pb::{Compare, LeaseGrantRequest, RequestOp, TxnRequest};

/// How long one call may take.
const CALL: Duration = Duration::from_secs(30);

/// One connection to a member of etcd.
#[derive(Clone)]
pub struct Bare {
    channel: Channel,
}

impl Bare {
    /// A connection of its own, made when it is first used.
    pub fn connect(endpoint: &str) -> Result<Self, String> {
        let endpoint = Endpoint::from_shared(format!("http://{endpoint}")).map_err(|error| error.to_string())?;
        Ok(Self { channel: endpoint.timeout(CALL).tcp_nodelay(true).connect_lazy() })
    }

    /// Takes a lock for the first time: one lease and one key, each agreed on by etcd. False if somebody has it.
    pub async fn lock(&self, name: &str, ttl_seconds: i64) -> Result<bool, String> {
        let told = |status: tonic::Status| format!("etcd: {}", status.message());
        let grant = LeaseGrantRequest { ttl: ttl_seconds, id: 0 };
        let lease = LeaseClient::new(self.channel.clone()).lease_grant(grant).await.map_err(told)?.into_inner().id;
        let txn = TxnRequest {
            compare: vec![Compare::absent(name.as_bytes())],
            success: vec![RequestOp::put(name.as_bytes(), Bytes::new(), lease)],
            failure: vec![RequestOp::get(name.as_bytes())],
        };
        let told = KvClient::new(self.channel.clone()).txn(txn).await.map_err(told)?;
        Ok(told.into_inner().succeeded)
    }
}
