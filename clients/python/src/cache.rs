//! Caches that are consistent with writes. Values are Python objects; they are loaded by the thread that waits for them.

use std::sync::Arc;
use std::time::Duration;

use leasehold::Client;
use leasehold::recipes::cache::{Cache, FillError};
use pyo3::prelude::*;

use crate::failure::{Failure, exception};
use crate::operation::{Convert, Operation, value};
use crate::runtime::OwnedByProcess;

/// A cache of Python objects.
#[pyclass(frozen, module = "leasehold._native")]
pub struct NativeCache(OwnedByProcess<Cache<Py<PyAny>>>);

/// A callback of Python failed.
struct CallbackError;

fn object(object: Arc<Py<PyAny>>) -> Convert {
    Box::new(move |py| Ok(object.clone_ref(py)))
}

impl NativeCache {
    pub fn new(
        py: Python<'_>,
        client: &Client,
        ttl_ms: Option<u64>,
        timeout_ms: Option<u64>,
        capacity: Option<usize>,
    ) -> PyResult<Self> {
        let mut builder = client.cache();
        if let Some(ttl) = ttl_ms {
            builder = builder.ttl(Duration::from_millis(ttl));
        }
        if let Some(timeout) = timeout_ms {
            builder = builder.timeout(Duration::from_millis(timeout));
        }
        if let Some(capacity) = capacity {
            builder = builder.capacity(capacity);
        }
        Ok(Self(OwnedByProcess::new(builder.build().map_err(|error| exception(py, error))?)))
    }

    fn cache(&self, py: Python<'_>) -> PyResult<Cache<Py<PyAny>>> {
        self.0.get().cloned().ok_or_else(|| Failure::Forked.into_exception(py))
    }
}

#[pymethods]
impl NativeCache {
    /// The cached value, in a tuple; none if there is none that may be used now.
    fn peek(&self, py: Python<'_>, key: &str) -> PyResult<Option<(Py<PyAny>,)>> {
        Ok(self.cache(py)?.peek(key).map(|value| (value.clone_ref(py),)))
    }

    /// The cached value, or the value of the callback `load`.
    fn get(&self, py: Python<'_>, key: String) -> PyResult<Operation> {
        let cache = self.cache(py)?;
        Operation::start_with_callbacks(py, |callbacks| async move {
            let load = || async { callbacks.call("load", 0).await.ok_or(CallbackError) };
            match cache.get(&key, load).await {
                Ok(value) => Ok(object(value)),
                Err(CallbackError) => Err(Failure::Callback),
            }
        })
    }

    /// The cached value; otherwise the value of the callback `find`, or of `fill`, each with the version.
    fn get_or_fill(&self, py: Python<'_>, key: String) -> PyResult<Operation> {
        let cache = self.cache(py)?;
        Operation::start_with_callbacks(py, |callbacks| async move {
            let find = |version| {
                let callbacks = callbacks.clone();
                async move { callbacks.call("find", version).await }
            };
            let fill = |version| {
                let callbacks = callbacks.clone();
                async move { callbacks.call("fill", version).await.ok_or(CallbackError) }
            };
            match cache.get_or_fill(&key, find, fill).await {
                Ok(value) => Ok(object(value)),
                Err(FillError::Rejected(error)) => Err(error.into()),
                Err(_) => Err(Failure::Callback),
            }
        })
    }

    /// Runs the callback `work` with the number of the write intent when no reader has a valid copy. Returns the new version.
    fn write(&self, py: Python<'_>, key: String, wait_ms: u64) -> PyResult<Operation> {
        let cache = self.cache(py)?;
        Operation::start_with_callbacks(py, |callbacks| async move {
            let work = |intent: leasehold::recipes::cache::WriteIntent| {
                let callbacks = callbacks.clone();
                async move { callbacks.call("work", intent.number.get()).await }
            };
            let written = cache.write(&key, Duration::from_millis(wait_ms), work).await?;
            match written.output {
                Some(_) => Ok(value(written.version?)),
                None => Err(Failure::Callback),
            }
        })
    }

    /// Removes an entry and ends its read lease.
    fn remove(&self, py: Python<'_>, key: &str) -> PyResult<()> {
        self.cache(py)?.remove(key);
        Ok(())
    }
}
