//! Role of a server and status of the cluster, as every server reports them.

use std::sync::Arc;
use std::time::Instant;

use leasehold_wire::v1;

use crate::journal::etcd::{EtcdMember, EtcdStatusReader};

/// Role of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerRole {
    /// Its journal is not shared.
    Standalone,
    /// It follows the leader.
    Standby,
    /// It decides.
    Leader,
}

/// Status of one server and access to the status of the cluster.
pub struct ServerStatus {
    address: String,
    role: ServerRole,
    since: Instant,
    /// None for a standalone server.
    etcd: Option<Arc<EtcdStatusReader>>,
}

impl ServerStatus {
    /// A server whose journal is not shared.
    pub fn standalone(address: String) -> Self {
        Self { address, role: ServerRole::Standalone, since: Instant::now(), etcd: None }
    }

    /// A server of a cluster that takes its role now.
    pub fn in_cluster(address: String, role: ServerRole, etcd: Arc<EtcdStatusReader>) -> Self {
        Self { address, role, since: Instant::now(), etcd: Some(etcd) }
    }

    /// The address at which clients reach this server.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Whether this server leads unless another one has taken over.
    pub fn may_lead(&self) -> bool {
        self.role == ServerRole::Leader
    }

    /// The cluster as seen at a journal position; `leads` if this server has just confirmed that it leads.
    pub async fn view(&self, position: u64, leads: bool) -> v1::ClusterView {
        let role_age_ms = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        let address = self.address.clone();
        let Some(etcd) = &self.etcd else {
            let role = v1::Role::Standalone.into();
            let (leader, servers) = (address.clone(), vec![address.clone()]);
            return v1::ClusterView { address, role, role_age_ms, position, leader, servers, ..Default::default() };
        };
        let status = etcd.read().await;
        let mut leader = status.leader.unwrap_or_default();
        let mut problem = status.problem.unwrap_or_default();
        // etcd may name another server before this one has noticed.
        let leads = leads && (leader.is_empty() || leader == self.address);
        if leads {
            leader = address.clone();
        } else if self.may_lead() && (leader.is_empty() || leader == self.address) {
            // Its key may outlive its leadership, so it is not a claim to lead.
            leader.clear();
            if problem.is_empty() {
                problem = "this server cannot confirm that it still leads".to_owned();
            }
        }
        v1::ClusterView {
            address,
            role: if leads { v1::Role::Leader } else { v1::Role::Standby }.into(),
            role_age_ms,
            position,
            leader,
            servers: status.servers,
            etcd: status.members.into_iter().map(member_view).collect(),
            database_bytes: status.database.0,
            quota_bytes: status.database.1,
            problem,
        }
    }

    /// The address of the leader according to etcd, if it names one.
    pub async fn leader(&self) -> Option<String> {
        match &self.etcd {
            Some(etcd) => etcd.read().await.leader,
            None => Some(self.address.clone()),
        }
    }

    /// Whether another server stands by. False for a standalone server.
    pub async fn has_successor(&self) -> bool {
        match &self.etcd {
            Some(etcd) => etcd.has_other_server(&self.address).await,
            None => false,
        }
    }

    /// Whether the journal is not shared.
    pub fn is_standalone(&self) -> bool {
        self.etcd.is_none()
    }
}

fn member_view(member: EtcdMember) -> v1::EtcdMember {
    v1::EtcdMember {
        endpoint: member.endpoint,
        healthy: member.problem.is_none(),
        version: member.version,
        is_leader: member.leads,
        database_bytes: member.database.0,
        in_use_bytes: member.database.1,
        problem: member.problem.unwrap_or_default(),
    }
}
