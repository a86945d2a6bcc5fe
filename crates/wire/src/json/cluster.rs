//! Bodies of commands about the cluster, and of the cluster view: servers and etcd members.

use serde::{Deserialize, Serialize};

use crate::duration::HumanDuration;
use crate::v1;
use crate::v1::request::Operation;

/// One server and its view of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ClusterBody {
    /// Address at which others reach this server.
    pub address: String,
    /// `standalone`, `standby` or `leader`.
    pub role: String,
    /// How long the server has had this role.
    pub role_age_ms: u64,
    /// Journal position that the server has applied.
    pub position: u64,
    /// Address of the leader; null if there is none.
    pub leader: Option<String>,
    /// Addresses of all servers that can lead, including this one.
    pub servers: Vec<String>,
    /// Members of the etcd cluster that stores the journal; empty for a local journal.
    pub etcd: Vec<EtcdMemberBody>,
    /// Size of the largest member database.
    pub database_bytes: u64,
    /// Quota of the member databases.
    pub quota_bytes: u64,
    /// Why parts of this view are unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A member of the etcd cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EtcdMemberBody {
    /// Client endpoint.
    pub endpoint: String,
    /// Whether the member responds and raises no alarm.
    pub healthy: bool,
    /// Version of etcd.
    pub version: String,
    /// Whether the member leads the etcd cluster.
    pub is_leader: bool,
    /// Size of the database.
    pub database_bytes: u64,
    /// Bytes of the database in use.
    pub in_use_bytes: u64,
    /// What is wrong with the member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// `POST /v1/cluster:step_down`. The body is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(expecting = "an object", deny_unknown_fields)]
pub struct StepDownBody {}

/// `POST /v1/cluster:set_max_ttl`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(expecting = "an object", deny_unknown_fields)]
pub struct SetMaxTtlBody {
    /// The new maximum ttl of the cluster.
    pub max_ttl: HumanDuration,
    /// Comment for the audit log; required.
    pub comment: String,
}

impl SetMaxTtlBody {
    /// Converts the body into the request.
    pub fn into_operation(self) -> Operation {
        Operation::SetMaxTtl(v1::SetMaxTtl { max_ttl_ms: self.max_ttl.millis(), comment: self.comment })
    }
}

fn non_empty(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

/// `POST /v1/quarantine:waive`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(expecting = "an object", deny_unknown_fields)]
pub struct WaiveBody {
    /// Comment for the audit log.
    pub comment: String,
}

impl WaiveBody {
    /// Converts the body into the request.
    pub fn into_operation(self) -> Operation {
        Operation::WaiveQuarantine(v1::WaiveQuarantine { comment: self.comment })
    }
}

impl From<v1::ClusterView> for ClusterBody {
    fn from(from: v1::ClusterView) -> Self {
        let role = match from.role() {
            v1::Role::Unspecified => "",
            v1::Role::Standalone => "standalone",
            v1::Role::Standby => "standby",
            v1::Role::Leader => "leader",
        };
        Self {
            role: role.to_owned(),
            address: from.address,
            role_age_ms: from.role_age_ms,
            position: from.position,
            leader: non_empty(from.leader),
            servers: from.servers,
            etcd: from.etcd.into_iter().map(Into::into).collect(),
            database_bytes: from.database_bytes,
            quota_bytes: from.quota_bytes,
            problem: non_empty(from.problem),
        }
    }
}

impl From<v1::EtcdMember> for EtcdMemberBody {
    fn from(from: v1::EtcdMember) -> Self {
        Self {
            endpoint: from.endpoint,
            healthy: from.healthy,
            version: from.version,
            is_leader: from.is_leader,
            database_bytes: from.database_bytes,
            in_use_bytes: from.in_use_bytes,
            problem: non_empty(from.problem),
        }
    }
}
