//! Status of a cluster: the leader, the standbys, and the members of etcd.

use std::sync::Arc;

use super::EtcdLocation;
use super::client::EtcdClient;
use super::error::EtcdError;
use super::keys::JournalKeys;
use super::leadership::address;
use super::pb::{RangeRequest, StatusResponse};
use super::quota::Quota;
use crate::journal::{EtcdOpenError, OpenError};

/// Reads the status of a cluster. It changes nothing.
pub struct EtcdStatusReader {
    client: Arc<EtcdClient>,
    keys: JournalKeys,
    quota_bytes: u64,
}

/// Status of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EtcdStatus {
    /// Address of the leader.
    pub leader: Option<String>,
    /// Addresses of all servers.
    pub servers: Vec<String>,
    /// Members of etcd.
    pub members: Vec<EtcdMember>,
    /// Size of the fullest database and its quota, in bytes.
    pub database: (u64, u64),
    /// The reason why the leader is unknown.
    pub problem: Option<String>,
}

/// A member of etcd.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EtcdMember {
    /// `HOST:PORT`.
    pub endpoint: String,
    /// Its version.
    pub version: String,
    /// Whether it leads etcd.
    pub leads: bool,
    /// Size of its database and the part in use, in bytes.
    pub database: (u64, u64),
    /// The problem of this member, if it has one.
    pub problem: Option<String>,
}

impl EtcdLocation {
    /// A reader of the cluster's status with its own connections.
    pub fn status_reader(&self) -> Result<EtcdStatusReader, OpenError> {
        let client = EtcdClient::new(&self.endpoints)
            .map_err(|reason| OpenError::Etcd(EtcdOpenError::Unreachable { reason }))?;
        Ok(EtcdStatusReader {
            client: Arc::new(client),
            keys: JournalKeys::under(&self.prefix),
            quota_bytes: self.quota_bytes,
        })
    }
}

impl EtcdStatusReader {
    /// Reads the status. Failures are part of the result.
    pub async fn read(&self) -> EtcdStatus {
        let (statuses, servers) = tokio::join!(self.client.each_status(), self.servers());
        let quota = Quota::default();
        quota.update(statuses.iter().filter_map(|(_, status)| status.as_ref().ok()), self.quota_bytes);
        let members = statuses.iter().map(|(endpoint, status)| member(endpoint, status)).collect();
        let (leader, servers, problem) = match servers {
            Ok((leader, servers)) => (leader, servers, None),
            Err(error) => (None, Vec::new(), Some(error.to_string())),
        };
        EtcdStatus { leader, servers, members, database: quota.read(), problem }
    }

    /// Whether there is a server at another address.
    pub async fn has_other_server(&self, address: &str) -> bool {
        self.servers().await.is_ok_and(|(_, servers)| servers.iter().any(|server| server != address))
    }

    async fn servers(&self) -> Result<(Option<String>, Vec<String>), EtcdError> {
        let leader = RangeRequest { key: self.keys.leader(), ..Default::default() };
        let leader = self.client.range_with_retry(leader).await?.kvs.pop();
        let (key, range_end) = self.keys.members();
        let members = self.client.range_with_retry(RangeRequest { key, range_end, ..Default::default() }).await?;
        let mut servers: Vec<_> = members.kvs.iter().map(|member| address(&member.value)).collect();
        servers.sort_unstable();
        // A restarted server has two member keys until the old lease expires.
        servers.dedup();
        Ok((leader.map(|leader| address(&leader.value)), servers))
    }
}

fn member(endpoint: &str, status: &Result<StatusResponse, EtcdError>) -> EtcdMember {
    let endpoint = endpoint.to_owned();
    match status {
        Ok(status) => {
            let own = status.header.as_ref().map_or(0, |header| header.member_id);
            let bytes = |bytes: i64| u64::try_from(bytes).unwrap_or(0);
            let problem = if status.leader == 0 { Some("the member has no leader".to_owned()) } else { None };
            EtcdMember {
                endpoint,
                version: status.version.clone(),
                leads: own != 0 && status.leader == own,
                database: (bytes(status.db_size), bytes(status.db_size_in_use)),
                problem: status.errors.first().cloned().or(problem),
            }
        }
        Err(error) => EtcdMember { endpoint, problem: Some(error.to_string()), ..EtcdMember::default() },
    }
}
