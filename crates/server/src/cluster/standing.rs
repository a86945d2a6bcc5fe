//! What a server says about itself and the others, whether it leads or not.

use std::sync::Arc;
use std::time::Instant;

use leasehold_wire::v1;

use crate::journal::etcd::{Member, Survey};

/// What a server does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It has a journal of its own.
    Alone,
    /// It follows the one that leads.
    StandsBy,
    /// It decides.
    Leads,
}

/// One server among those over its journal.
pub struct Standing {
    address: String,
    role: Role,
    since: Instant,
    survey: Option<Arc<Survey>>,
}

impl Standing {
    /// A server with a journal of its own.
    pub fn alone(address: String) -> Self {
        Self { address, role: Role::Alone, since: Instant::now(), survey: None }
    }

    /// One of several, from now on.
    pub fn among(address: String, role: Role, survey: Arc<Survey>) -> Self {
        Self { address, role, since: Instant::now(), survey: Some(survey) }
    }

    /// What is to be told, at this journal position.
    pub async fn view(&self, position: u64) -> v1::ClusterView {
        let since_ms = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        let address = self.address.clone();
        let Some(survey) = &self.survey else {
            let role = v1::Role::Alone.into();
            let (leader, servers) = (address.clone(), vec![address.clone()]);
            return v1::ClusterView { address, role, since_ms, position, leader, servers, ..Default::default() };
        };
        let found = survey.look().await;
        let leader = found.leader.unwrap_or_default();
        // Whoever was deposed may not know it yet; etcd does.
        let leads = self.role == Role::Leads && (leader == self.address || found.problem.is_some());
        v1::ClusterView {
            address,
            role: if leads { v1::Role::Leads } else { v1::Role::StandsBy }.into(),
            since_ms,
            position,
            leader,
            servers: found.servers,
            etcd: found.members.into_iter().map(told).collect(),
            database_bytes: found.database.0,
            quota_bytes: found.database.1,
            problem: found.problem.unwrap_or_default(),
        }
    }

    /// Whether another server could lead, if this one has others beside it.
    pub async fn has_successor(&self) -> bool {
        match &self.survey {
            Some(survey) => survey.has_other(&self.address).await,
            None => false,
        }
    }

    /// Whether there can be others at all.
    pub fn is_alone(&self) -> bool {
        self.survey.is_none()
    }
}

fn told(member: Member) -> v1::EtcdMember {
    v1::EtcdMember {
        endpoint: member.endpoint,
        healthy: member.problem.is_none(),
        version: member.version,
        leads: member.leads,
        database_bytes: member.database.0,
        in_use_bytes: member.database.1,
        problem: member.problem.unwrap_or_default(),
    }
}
