//! One server's lease in etcd, its member key, and the leader key while it leads.
//!
//! The lease expires soon after the server stops, and both keys with it.

use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

use super::client::EtcdClient;
use super::error::EtcdError;
use super::keys::JournalKeys;
use super::pb::{Compare, KeyValue, RangeRequest, RequestOp, TxnRequest};
use crate::random;

/// Interval of lease renewals and timeout of one renewal: several times within etcd's shortest ttl.
const RENEW_INTERVAL: Duration = Duration::from_millis(400);

/// Identity of a writer: revision and value of the leader key. Every transaction compares both: a key that was deleted and
/// written again has another revision, and a revision that recurs after a restore has another nonce.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generation {
    /// Revision of the last change of the leader key.
    pub revision: i64,
    /// Address and nonce.
    pub value: Vec<u8>,
}

impl Generation {
    /// Conditions that hold only while this writer leads.
    pub fn conditions(&self, keys: &JournalKeys) -> Vec<Compare> {
        let leader = keys.leader();
        vec![Compare::changed_at(&leader, self.revision), Compare::has(&leader, &self.value)]
    }

    /// Whether the leader key names this writer.
    pub fn matches(&self, leader: Option<&KeyValue>) -> bool {
        leader.is_some_and(|leader| leader.mod_revision == self.revision && leader.value == self.value)
    }
}

/// A server's lease and keys in etcd.
pub struct EtcdLeadership {
    client: Arc<EtcdClient>,
    keys: JournalKeys,
    lease: i64,
    nonce: String,
    value: Vec<u8>,
    renewal: JoinHandle<()>,
}

impl EtcdLeadership {
    /// Grants a lease, renews it in the background, and writes the member key.
    pub async fn register(
        client: Arc<EtcdClient>,
        keys: JournalKeys,
        address: &str,
        ttl: i64,
    ) -> Result<Self, EtcdError> {
        let granted = client.grant(ttl).await?;
        let lease = granted.id;
        let mut nonce = String::new();
        for byte in random::bytes::<16>() {
            // Writing to a string does not fail.
            let _ = write!(nonce, "{byte:02x}");
        }
        let value = format!("{address} {nonce}").into_bytes();
        // It may be longer than requested.
        let ttl = Duration::from_secs(u64::try_from(granted.ttl).unwrap_or(0));
        let renewal = tokio::spawn(renew_lease(client.clone(), keys.clone(), lease, ttl));
        let leadership = Self { client, keys, lease, nonce, value, renewal };
        let entry = RequestOp::put(&leadership.keys.member(&leadership.nonce), leadership.value.clone(), lease);
        leadership.client.txn(TxnRequest { success: vec![entry], ..Default::default() }).await?;
        Ok(leadership)
    }

    pub(super) const fn client(&self) -> &Arc<EtcdClient> {
        &self.client
    }

    pub(super) const fn keys(&self) -> &JournalKeys {
        &self.keys
    }

    /// Whether the lease has expired because this server could not renew it.
    pub fn is_expired(&self) -> bool {
        self.renewal.is_finished()
    }

    /// The leader key.
    pub async fn leader(&self) -> Result<Option<KeyValue>, EtcdError> {
        let range = RangeRequest { key: self.keys.leader(), ..Default::default() };
        Ok(self.client.range_with_retry(range).await?.kvs.pop())
    }

    /// Claims the leadership if there is no leader; `None` if another server was faster.
    pub async fn claim(&self) -> Result<Option<Generation>, EtcdError> {
        self.claim_if(Compare::absent(&self.keys.leader())).await
    }

    /// Deposes the leader: its lease is revoked, and its transactions fail from now on.
    pub async fn claim_by_force(&self) -> Result<Option<Generation>, EtcdError> {
        let Some(old) = self.leader().await? else { return self.claim().await };
        let generation = self.claim_if(Compare::changed_at(&old.key, old.mod_revision)).await?;
        if generation.is_some() && old.lease != self.lease {
            // If this fails, the lease expires by itself.
            let _ = self.client.revoke(old.lease).await;
        }
        Ok(generation)
    }

    async fn claim_if(&self, condition: Compare) -> Result<Option<Generation>, EtcdError> {
        let leader = self.keys.leader();
        let claim = TxnRequest {
            compare: vec![condition],
            success: vec![RequestOp::put(&leader, self.value.clone(), self.lease)],
            failure: vec![RequestOp::get(&leader)],
        };
        let mut attempts = self.client.max_attempts();
        loop {
            attempts -= 1;
            match self.client.txn(claim.clone()).await {
                Ok(response) if response.succeeded => {
                    let revision = response.header.map_or(0, |header| header.revision);
                    return Ok(Some(Generation { revision, value: self.value.clone() }));
                }
                // An earlier attempt may have succeeded without a response.
                Ok(response) => return Ok(response.got(0).and_then(|leader| self.generation_of(leader))),
                Err(EtcdError::Unknown(_) | EtcdError::Behind) if attempts > 0 => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// This server's generation, if the leader key names it.
    pub fn generation_of(&self, leader: &KeyValue) -> Option<Generation> {
        let own = leader.value == self.value;
        own.then(|| Generation { revision: leader.mod_revision, value: self.value.clone() })
    }

    /// Transfers the leader key to another server in one transaction and returns its address. `None` if there is no other server,
    /// or if this server no longer leads.
    pub async fn transfer(&self, generation: &Generation) -> Option<String> {
        let (key, range_end) = self.keys.members();
        let response =
            self.client.range_with_retry(RangeRequest { key, range_end, ..Default::default() }).await.ok()?;
        let own = self.keys.member(&self.nonce);
        for other in response.kvs.iter().filter(|other| other.key != own && other.lease != 0) {
            let mut compare = generation.conditions(&self.keys);
            compare.push(Compare::changed_at(&other.key, other.mod_revision));
            let transfer = RequestOp::put(&self.keys.leader(), other.value.clone(), other.lease);
            let transferred =
                self.client.txn(TxnRequest { compare, success: vec![transfer], failure: Vec::new() }).await;
            if transferred.is_ok_and(|response| response.succeeded) {
                return Some(address(&other.value));
            }
        }
        None
    }

    /// Revokes the lease, which deletes both keys.
    pub async fn end(&self) {
        self.renewal.abort();
        // If this fails, the lease expires by itself.
        let _ = self.client.revoke(self.lease).await;
    }
}

impl Drop for EtcdLeadership {
    fn drop(&mut self) {
        self.renewal.abort();
    }
}

/// The address in a leader or member key.
pub fn address(value: &[u8]) -> String {
    let text = String::from_utf8_lossy(value);
    text.split_once(' ').map_or_else(|| text.to_string(), |(address, _)| address.to_owned())
}

/// Renews a lease as long as it can. It says nothing about the leader key, which can be deleted while the lease lives.
async fn renew_lease(client: Arc<EtcdClient>, keys: JournalKeys, lease: i64, ttl: Duration) {
    let mut last_response = Instant::now();
    loop {
        tokio::time::sleep(RENEW_INTERVAL).await;
        // If etcd receives renewals but its responses are lost, it would keep the leader key of a server that cannot work. So after
        // a ttl without a response, a read must succeed before the next renewal.
        if last_response.elapsed() > ttl {
            if client.range(RangeRequest { key: keys.leader(), ..Default::default() }).await.is_err() {
                continue;
            }
            last_response = Instant::now();
        }
        match tokio::time::timeout(RENEW_INTERVAL, client.keep_alive(lease)).await {
            Ok(Ok(0) | Err(EtcdError::LeaseGone)) => return,
            Ok(Ok(_)) => last_response = Instant::now(),
            Ok(Err(_)) => {}
            // This endpoint may stay silent for longer than the ttl.
            Err(_) => client.next_endpoint(),
        }
    }
}
