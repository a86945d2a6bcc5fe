//! The servers over one journal, in JSON.

use serde::{Deserialize, Serialize};

use crate::v1;

/// One server, and what it sees of the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ClusterBody {
    /// Where others reach it.
    pub address: String,
    /// `alone`, `stands_by` or `leads`.
    pub role: String,
    /// For how long it has done that.
    pub since_ms: u64,
    /// The journal position up to which it knows everything.
    pub position: u64,
    /// Where the server is that leads; absent if nobody does.
    pub leader: Option<String>,
    /// Where the servers are that may lead, this one among them.
    pub servers: Vec<String>,
    /// What the journal lies in, member by member; empty where it lies on this machine.
    pub etcd: Vec<EtcdMemberBody>,
    /// Bytes of the fullest member's database.
    pub database_bytes: u64,
    /// How many it may have.
    pub quota_bytes: u64,
    /// Why something of this is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A member of etcd.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EtcdMemberBody {
    /// Where it is asked.
    pub endpoint: String,
    /// Whether it answers and has no complaint.
    pub healthy: bool,
    /// Its version.
    pub version: String,
    /// Whether it leads etcd.
    pub leads: bool,
    /// Bytes of its database.
    pub database_bytes: u64,
    /// Bytes of them that are in use.
    pub in_use_bytes: u64,
    /// What is wrong with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// `POST /v1/cluster:step_down`: there is nothing to say beside it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct StepDownBody {}

fn said(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

impl From<v1::ClusterView> for ClusterBody {
    fn from(from: v1::ClusterView) -> Self {
        let role = match from.role() {
            v1::Role::Unspecified => "",
            v1::Role::Alone => "alone",
            v1::Role::StandsBy => "stands_by",
            v1::Role::Leads => "leads",
        };
        Self {
            role: role.to_owned(),
            address: from.address,
            since_ms: from.since_ms,
            position: from.position,
            leader: said(from.leader),
            servers: from.servers,
            etcd: from.etcd.into_iter().map(Into::into).collect(),
            database_bytes: from.database_bytes,
            quota_bytes: from.quota_bytes,
            problem: said(from.problem),
        }
    }
}

impl From<v1::EtcdMember> for EtcdMemberBody {
    fn from(from: v1::EtcdMember) -> Self {
        Self {
            endpoint: from.endpoint,
            healthy: from.healthy,
            version: from.version,
            leads: from.leads,
            database_bytes: from.database_bytes,
            in_use_bytes: from.in_use_bytes,
            problem: said(from.problem),
        }
    }
}
