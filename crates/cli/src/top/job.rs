//! Requests of the screen to the thread that talks to the server, and its answers.

use leasehold::json::{
    AuditEntryBody, ClusterBody, CoverageBody, DeadlockBody, ListedLeaseBody, ResourceBody, StatusBody, WaiterBody,
};
use leasehold::types::{LeaseId, LeaseSort};
use leasehold_server::dashboard::action_effects::OperatorAction;
use leasehold_server::dashboard::handovers::HandoverRow;

use super::counters::{ServerCounters, ServerRates};
use super::filter::Filter;
use crate::resource_sentence::AgesByLease;

/// A request to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerJob {
    /// The overview, and one page.
    Refresh(ScreenQuery),
    /// What an action would do.
    Preview(OperatorAction, String),
    /// An action on a resource, on the leases of its preview, with its reason.
    Act(OperatorAction, String, Vec<LeaseId>, String),
}

/// A page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScreenQuery {
    Leases(LeaseQuery),
    Waits,
    Deadlocks,
    Coverage { prefix: String, cursor: u32, rows: u32 },
    Handovers,
    Cluster,
    Audit { resource: String, before: u64, rows: u32 },
    Resource(String),
}

/// A page of held leases, which the server filters and sorts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseQuery {
    pub filter: Filter,
    pub stuck: bool,
    pub sort: Option<LeaseSort>,
    pub descending: bool,
    /// Where the page starts; empty for the first one.
    pub cursor: String,
    pub rows: u32,
}

/// The state of the grantor and of its server.
#[derive(Clone, Debug)]
pub struct ServerOverview {
    pub status: StatusBody,
    /// The cluster; none if the caller may not see it.
    pub cluster: Option<ClusterBody>,
    /// None if the caller may not read metrics.
    pub counters: Option<ServerCounters>,
    /// None until counters were read twice.
    pub rates: Option<ServerRates>,
}

/// The data of a page.
#[derive(Clone, Debug)]
pub enum PageData {
    Leases { leases: Vec<ListedLeaseBody>, next: Option<String> },
    Waits(Vec<ResourceWaiters>),
    Deadlocks(Vec<DeadlockBody>),
    Coverage { resources: Vec<CoverageBody>, next: Option<u32> },
    Handovers { rows: Vec<HandoverRow>, entries: usize },
    Cluster { first: ClusterBody, servers: Vec<(String, Result<ClusterBody, String>)> },
    Audit { entries: Vec<AuditEntryBody>, next: Option<u64> },
    Resource(Box<ResourceData>),
}

/// A resource with waiters.
#[derive(Clone, Debug, Default)]
pub struct ResourceWaiters {
    pub resource: String,
    /// Names of the holders that are listed.
    pub holders: Vec<String>,
    pub waiters: u64,
    /// The first waiters: the name, and the remaining wait time.
    pub first: Vec<(String, u64)>,
}

/// What is known of one resource. A part that the caller may not see is an error.
#[derive(Clone, Debug)]
pub struct ResourceData {
    /// None if it does not exist now.
    pub view: Result<Option<ResourceBody>, String>,
    /// How long ago its first leases were renewed; empty if the caller may not see it.
    pub ages: AgesByLease,
    pub waiters: Result<Vec<WaiterBody>, String>,
    pub coverage: Result<CoverageBody, String>,
    /// Newest first.
    pub history: Result<Vec<AuditEntryBody>, String>,
}

/// What an action would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PreviewText {
    /// The leases that it concerns, and that the action is limited to.
    pub leases: Vec<LeaseId>,
    pub effects: Vec<String>,
    /// What the targets do to the old holder: whether all refuse it, a summary, and a line for each.
    pub targets: Option<(bool, String, Vec<String>)>,
}

/// An answer.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "a message contains it in a box")]
pub enum ServerAnswer {
    Refreshed {
        query: ScreenQuery,
        overview: Result<Box<ServerOverview>, String>,
        page: Result<PageData, String>,
        /// How long it took.
        took_ms: u64,
    },
    Preview {
        action: OperatorAction,
        resource: String,
        result: Result<PreviewText, String>,
    },
    Acted {
        action: OperatorAction,
        resource: String,
        reason: String,
        result: Result<(), String>,
    },
}
