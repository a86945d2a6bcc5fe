//! Service discovery.

use std::sync::Arc;

use futures::TryStreamExt;
use leasehold::Client;
use leasehold::recipes::discovery::{Discovery, Instance, InstanceChange};
use pyo3::prelude::*;
use tokio::sync::Mutex;

use crate::failure::Failure;
use crate::operation::{Operation, value};
use crate::runtime::OwnedByProcess;

/// An instance: name, holder, details and number.
type InstanceRow = (String, String, String, u64);

fn row(instance: &Instance) -> InstanceRow {
    (instance.name.clone(), instance.holder.clone(), instance.details.clone(), instance.number)
}

/// The instances of a service.
#[pyclass(frozen, module = "leasehold._native")]
pub struct NativeDiscovery {
    initial: Vec<InstanceRow>,
    discovery: OwnedByProcess<Arc<Mutex<Discovery>>>,
}

impl NativeDiscovery {
    pub fn open(py: Python<'_>, client: Client, service: String) -> PyResult<Operation> {
        Operation::start(py, async move {
            let discovery = client.discover(&service).await?;
            let initial = discovery.instances().map(row).collect();
            Ok(value(Self { initial, discovery: OwnedByProcess::new(Arc::new(Mutex::new(discovery))) }))
        })
    }
}

#[pymethods]
impl NativeDiscovery {
    /// The instances when the discovery was opened.
    fn initial(&self) -> Vec<InstanceRow> {
        self.initial.clone()
    }

    /// Waits for the next change: whether the instance joined, and the instance.
    fn next(&self, py: Python<'_>) -> PyResult<Operation> {
        let discovery = self.discovery.get().cloned().ok_or_else(|| Failure::Forked.into_exception(py))?;
        Operation::start(py, async move {
            match discovery.lock().await.try_next().await? {
                Some(InstanceChange::Joined(instance)) => Ok(value((true, row(&instance)))),
                Some(InstanceChange::Left(instance)) => Ok(value((false, row(&instance)))),
                _ => Err(Failure::Other("the stream of changes ended".into())),
            }
        })
    }
}
