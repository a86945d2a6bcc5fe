//! Leader election.

use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt;
use leasehold::Client;
use leasehold::recipes::leader::{Election, Leader, LeaderUpdates};
use pyo3::prelude::*;
use tokio::sync::Mutex;

use crate::failure::Failure;
use crate::lease::{LeaseGuard, NativeLease};
use crate::operation::{Operation, value};
use crate::runtime::OwnedByProcess;

/// An election.
#[pyclass(frozen, module = "leasehold._native")]
pub struct NativeElection(OwnedByProcess<Election>);

impl NativeElection {
    pub fn new(
        client: &Client,
        resource: String,
        ttl_ms: Option<u64>,
        priority: Option<u8>,
        metadata: Option<&str>,
    ) -> Self {
        let mut election = client.election(resource);
        if let Some(ttl) = ttl_ms {
            election = election.ttl(Duration::from_millis(ttl));
        }
        if let Some(priority) = priority {
            election = election.priority(priority);
        }
        if let Some(metadata) = metadata {
            election = election.metadata(metadata);
        }
        Self(OwnedByProcess::new(election))
    }

    fn election(&self, py: Python<'_>) -> PyResult<Election> {
        self.0.get().cloned().ok_or_else(|| Failure::Forked.into_exception(py))
    }
}

fn row(leader: Option<Leader>) -> Option<(String, u64, String)> {
    leader.map(|leader| (leader.holder, leader.token_number, leader.metadata))
}

#[pymethods]
impl NativeElection {
    /// Waits until this client leads. Returns the lease.
    fn campaign(&self, py: Python<'_>) -> PyResult<Operation> {
        let election = self.election(py)?;
        Operation::start(py, async move {
            Ok(value(NativeLease::new(LeaseGuard::Lock(election.campaign().await?.into_guard()))))
        })
    }

    /// The leader now, as holder, token number and metadata.
    fn leader(&self, py: Python<'_>) -> PyResult<Operation> {
        let election = self.election(py)?;
        Operation::start(py, async move { Ok(value(row(election.leader().await?))) })
    }

    fn observe(&self, py: Python<'_>) -> PyResult<Operation> {
        let election = self.election(py)?;
        Operation::start(py, async move {
            let updates = Arc::new(Mutex::new(election.observe().await?));
            Ok(value(NativeLeaderUpdates(OwnedByProcess::new(updates))))
        })
    }
}

/// Changes of the leader.
#[pyclass(frozen, module = "leasehold._native")]
pub struct NativeLeaderUpdates(OwnedByProcess<Arc<Mutex<LeaderUpdates>>>);

#[pymethods]
impl NativeLeaderUpdates {
    /// Waits for the next leader.
    fn next(&self, py: Python<'_>) -> PyResult<Operation> {
        let updates = self.0.get().cloned().ok_or_else(|| Failure::Forked.into_exception(py))?;
        Operation::start(py, async move { Ok(value(row(updates.lock().await.try_next().await?.flatten()))) })
    }
}
