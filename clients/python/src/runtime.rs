//! The runtime of this process, on which operations run. A forked child starts its own: threads do not survive a fork.
//!
//! It is looked up only by threads that are attached to the interpreter. A fork happens on such a thread, so that no other thread can
//! hold this lock at that moment.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use tokio::runtime::{Builder, Runtime};

/// Threads of the runtime. One starts requests in the order in which the program made them, and only passes them to session workers.
const THREADS: usize = 1;

/// A runtime and the process that started it.
static RUNTIME: Mutex<Option<(u32, Arc<Runtime>)>> = Mutex::new(None);

/// The runtime of this process. Starts it if necessary.
pub fn runtime(_attached: Python<'_>) -> PyResult<Arc<Runtime>> {
    let mut slot = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    match &*slot {
        Some((pid, runtime)) if *pid == std::process::id() => Ok(runtime.clone()),
        _ => {
            let started =
                Builder::new_multi_thread().worker_threads(THREADS).thread_name("leasehold-io").enable_all().build();
            let runtime = Arc::new(started.map_err(|error| PyOSError::new_err(error.to_string()))?);
            // The runtime of the parent is leaked: dropping it would wait for threads that do not exist here.
            if let Some((_, stale)) = slot.replace((std::process::id(), runtime.clone())) {
                std::mem::forget(stale);
            }
            Ok(runtime)
        }
    }
}

/// A value that belongs to the process that made it. In a forked child it is out of reach, and never dropped: its locks may be held by
/// threads that do not exist there.
pub struct OwnedByProcess<T> {
    pid: u32,
    value: Option<T>,
}

impl<T> OwnedByProcess<T> {
    pub fn new(value: T) -> Self {
        Self { pid: std::process::id(), value: Some(value) }
    }

    /// The value; none in a forked child.
    pub fn get(&self) -> Option<&T> {
        self.value.as_ref().filter(|_| self.pid == std::process::id())
    }
}

impl<T> Drop for OwnedByProcess<T> {
    fn drop(&mut self) {
        if self.pid != std::process::id() {
            std::mem::forget(self.value.take());
        }
    }
}
