//! How completed operations and lost leases reach Python: keys in a list, and a byte in a socket that asyncio watches. The Rust side never
//! waits for the interpreter.

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

/// The part that Rust threads push to.
pub struct Completions {
    keys: Mutex<Vec<u64>>,
    arrived: Condvar,
    /// Written to when the list becomes non-empty.
    signal: UnixStream,
}

impl Completions {
    pub fn push(&self, key: u64) {
        let mut keys = self.lock();
        let was_empty = keys.is_empty();
        keys.push(key);
        drop(keys);
        self.arrived.notify_all();
        if was_empty {
            // If the socket is full, it is readable, and the reader finds the key.
            let _ = (&self.signal).write(&[1]);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u64>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keys of completed operations, for an event loop or for a thread.
#[pyclass(frozen, module = "leasehold._native")]
pub struct CompletionQueue {
    pub completions: Arc<Completions>,
    readable: UnixStream,
}

#[pymethods]
impl CompletionQueue {
    #[new]
    fn new() -> PyResult<Self> {
        let failed = |error: std::io::Error| PyOSError::new_err(error.to_string());
        let (readable, signal) = UnixStream::pair().map_err(failed)?;
        readable.set_nonblocking(true).map_err(failed)?;
        signal.set_nonblocking(true).map_err(failed)?;
        let completions = Completions { keys: Mutex::default(), arrived: Condvar::new(), signal };
        Ok(Self { completions: Arc::new(completions), readable })
    }

    /// The descriptor that becomes readable when there are keys.
    fn fileno(&self) -> i32 {
        self.readable.as_raw_fd()
    }

    /// The keys since the last call.
    fn drain(&self) -> Vec<u64> {
        let mut buffer = [0; 64];
        while matches!((&self.readable).read(&mut buffer), Ok(count) if count > 0) {}
        std::mem::take(&mut *self.completions.lock())
    }

    /// Waits for keys, detached from the interpreter. Empty after the timeout.
    fn wait(&self, py: Python<'_>, timeout: f64) -> Vec<u64> {
        let timeout = Duration::try_from_secs_f64(timeout).unwrap_or(Duration::from_secs(3600));
        py.detach(|| {
            let keys = self.completions.lock();
            drop(self.completions.arrived.wait_timeout_while(keys, timeout, |keys| keys.is_empty()));
        });
        self.drain()
    }

    /// Wakes a thread in `wait` and the event loop.
    fn push(&self, key: u64) {
        self.completions.push(key);
    }
}
