//! Sharding.

use std::sync::Arc;
use std::time::Duration;

use leasehold::recipes::shard::{Shard, ShardWorker};
use leasehold::{Client, Code, Error};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tokio::sync::Mutex;

use crate::failure::Failure;
use crate::lease::{LeaseGuard, NativeLease};
use crate::operation::{Convert, Operation, value};
use crate::runtime::OwnedByProcess;

/// A worker of a set of shards.
#[pyclass(frozen, module = "leasehold._native")]
pub struct NativeShardWorker(OwnedByProcess<Arc<Mutex<Option<ShardWorker>>>>);

impl NativeShardWorker {
    pub fn join(
        py: Python<'_>,
        client: &Client,
        prefix: String,
        count: u32,
        ttl_ms: Option<u64>,
        poll_interval_ms: Option<u64>,
    ) -> PyResult<Operation> {
        let mut shards = client.shards(prefix, count);
        if let Some(ttl) = ttl_ms {
            shards = shards.ttl(Duration::from_millis(ttl));
        }
        if let Some(interval) = poll_interval_ms {
            shards = shards.poll_interval(Duration::from_millis(interval));
        }
        Operation::start(py, async move {
            let worker = Arc::new(Mutex::new(Some(shards.join().await?)));
            Ok(value(Self(OwnedByProcess::new(worker))))
        })
    }

    fn worker(&self, py: Python<'_>) -> PyResult<Arc<Mutex<Option<ShardWorker>>>> {
        self.0.get().cloned().ok_or_else(|| Failure::Forked.into_exception(py))
    }
}

#[pymethods]
impl NativeShardWorker {
    /// Waits for the next shard: its index, its lease and the shard.
    fn next_assignment(&self, py: Python<'_>) -> PyResult<Operation> {
        let worker = self.worker(py)?;
        Operation::start(py, async move {
            let mut worker = worker.lock().await;
            let left = || Error::new(Code::Conflict, "the worker has left its shards; join again");
            let (guard, shard) = worker.as_mut().ok_or_else(left)?.next_assignment().await?;
            let lease = NativeLease::new(LeaseGuard::Lock(guard));
            Ok(value((shard.index(), lease, NativeShard(OwnedByProcess::new(shard)))))
        })
    }

    /// Leaves the set: every shard drains.
    fn leave(&self, py: Python<'_>) -> PyResult<Operation> {
        let worker = self.worker(py)?;
        Operation::start(py, async move {
            let left = worker.lock().await.take();
            if let Some(worker) = left {
                worker.leave().await;
            }
            Ok(value(()))
        })
    }
}

/// A shard that this client owns.
#[pyclass(frozen, module = "leasehold._native")]
pub struct NativeShard(OwnedByProcess<Shard>);

impl NativeShard {
    fn shard(&self, py: Python<'_>) -> PyResult<Shard> {
        self.0.get().cloned().ok_or_else(|| Failure::Forked.into_exception(py))
    }
}

#[pymethods]
impl NativeShard {
    /// The newest checkpoint: its bytes and its revision; none before the first.
    fn resume(&self, py: Python<'_>) -> PyResult<Operation> {
        let shard = self.shard(py)?;
        Operation::start(py, async move {
            let stored = shard.resume().await?;
            let convert: Convert = Box::new(move |py| {
                let row = stored.map(|stored| (PyBytes::new(py, &stored.bytes).unbind(), stored.revision));
                Ok(row.into_pyobject(py)?.into_any().unbind())
            });
            Ok(convert)
        })
    }

    fn checkpoint(&self, py: Python<'_>, bytes: Vec<u8>) -> PyResult<Operation> {
        let shard = self.shard(py)?;
        Operation::request(py, async move { shard.checkpoint(&bytes).await }, value)
    }
}
