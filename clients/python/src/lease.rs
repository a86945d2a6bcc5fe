//! A held lease: token, state, deadline and calls under it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold::recipes::discovery::Registration;
use leasehold::recipes::pin::PinGuard;
use leasehold::types::TokenScope;
use leasehold::{Error, Guard, GuardState, HandoffMode, HandoffOptions, LeaseHandle, Loss};
use pyo3::prelude::*;
use tokio::task::AbortHandle;

use crate::completion_queue::CompletionQueue;
use crate::failure::{Failure, exception};
use crate::operation::{Operation, value};
use crate::runtime::{OwnedByProcess, runtime};

/// Exit code of a process that `on_lost="exit"` ends: that of `LEASE_LOST` on the command line.
const EXIT_LOST: i32 = 3;

/// What releases the lease when it is dropped.
pub enum LeaseGuard {
    Lock(Guard),
    Pin(PinGuard),
    Service(Registration),
}

impl LeaseGuard {
    fn handle(&self) -> LeaseHandle {
        match self {
            Self::Lock(guard) => guard.handle().clone(),
            Self::Pin(guard) => (**guard).clone(),
            Self::Service(guard) => (**guard).clone(),
        }
    }

    async fn release(self) -> Result<(), Error> {
        match self {
            Self::Lock(guard) => guard.release().await.map_err(Error::from),
            Self::Pin(guard) => guard.release().await,
            Self::Service(guard) => guard.deregister().await,
        }
    }
}

/// The guard of a lease, until it is released.
pub type GuardSlot = Arc<tokio::sync::Mutex<Option<LeaseGuard>>>;

/// A held lease. Dropping it releases the lease.
#[pyclass(frozen, module = "leasehold._native")]
pub struct NativeLease(OwnedByProcess<HeldState>);

struct HeldState {
    handle: LeaseHandle,
    guard: GuardSlot,
    /// How often work had to stop before the lease was handed out.
    suspensions: u32,
    /// Set by a release, so that its end is not taken for a loss.
    released: Arc<AtomicBool>,
    /// Whether work had to stop before the release.
    stopped_before_release: Arc<AtomicBool>,
    watchers: Mutex<Vec<AbortHandle>>,
}

impl Drop for HeldState {
    fn drop(&mut self) {
        self.released.store(true, Ordering::Release);
        for watcher in self.watchers.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            watcher.abort();
        }
    }
}

impl NativeLease {
    pub fn new(guard: LeaseGuard) -> Self {
        let handle = guard.handle();
        Self(OwnedByProcess::new(HeldState {
            suspensions: handle.suspensions(),
            handle,
            guard: Arc::new(tokio::sync::Mutex::new(Some(guard))),
            released: Arc::default(),
            stopped_before_release: Arc::default(),
            watchers: Mutex::default(),
        }))
    }

    fn held(&self, py: Python<'_>) -> PyResult<&HeldState> {
        self.0.get().ok_or_else(|| Failure::Forked.into_exception(py))
    }

    pub fn handle(&self, py: Python<'_>) -> PyResult<LeaseHandle> {
        Ok(self.held(py)?.handle.clone())
    }

    pub fn guard(&self, py: Python<'_>) -> PyResult<GuardSlot> {
        Ok(self.held(py)?.guard.clone())
    }

    /// Runs `act` on the runtime when work must stop, unless the lease is released before. A release that comes just after the stop does
    /// not hide it.
    fn when_stopped(&self, py: Python<'_>, act: impl FnOnce() + Send + 'static) -> PyResult<()> {
        let held = self.held(py)?;
        let (handle, suspensions) = (held.handle.clone(), held.suspensions);
        let (released, stopped) = (held.released.clone(), held.stopped_before_release.clone());
        let task = runtime(py)?.spawn(async move {
            handle.wait_stopped_since(suspensions).await;
            if !released.load(Ordering::Acquire) || stopped.load(Ordering::Acquire) {
                act();
            }
        });
        held.watchers.lock().unwrap_or_else(PoisonError::into_inner).push(task.abort_handle());
        Ok(())
    }
}

/// Words for a loss: the state it led to, and its reason.
fn loss_words(loss: Loss) -> (Option<&'static str>, &'static str) {
    match loss {
        Loss::Ended(reason) => (Some(reason.outcome()), reason.word()),
        Loss::NotCurrent => (None, "not_current"),
    }
}

#[pymethods]
impl NativeLease {
    #[getter]
    fn resource(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.held(py)?.handle.resource().to_owned())
    }

    #[getter]
    fn lease_id(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.held(py)?.handle.lease_id().to_string())
    }

    #[getter]
    fn token(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.held(py)?.handle.token().to_string())
    }

    #[getter]
    fn token_number(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.held(py)?.handle.token_number().get())
    }

    /// The numbered slot; none for shared leases and units.
    #[getter]
    fn slot(&self, py: Python<'_>) -> PyResult<Option<u32>> {
        Ok(match self.held(py)?.handle.token().parsed().scope {
            TokenScope::Slot(slot) => Some(slot),
            TokenScope::Shared | TokenScope::Units => None,
        })
    }

    /// The token with its stamp for a target; none if the server has no stamp key for it.
    fn stamped_token(&self, py: Python<'_>, target: &str) -> PyResult<Option<String>> {
        Ok(self.held(py)?.handle.stamped_token(target).map(|token| token.as_str().to_owned()))
    }

    /// State now (`held`, `suspended`, `lost`), state of the end, and reason.
    fn state(&self) -> (&'static str, Option<&'static str>, Option<&'static str>) {
        let Some(held) = self.0.get() else { return ("lost", None, Some("fork")) };
        match held.handle.state() {
            GuardState::Held => ("held", None, None),
            GuardState::Suspended => ("suspended", None, None),
            GuardState::Lost(loss) => {
                let (state, reason) = loss_words(loss);
                ("lost", state, Some(reason))
            }
        }
    }

    /// Whether work had to stop at any time since the lease was granted.
    fn stopped(&self) -> bool {
        let Some(held) = self.0.get() else { return true };
        if held.released.load(Ordering::Acquire) {
            return held.stopped_before_release.load(Ordering::Acquire);
        }
        !held.handle.is_held() || held.handle.suspensions() != held.suspensions
    }

    /// Seconds that work may continue without another renewal.
    fn remaining(&self) -> f64 {
        self.0.get().map_or(0.0, |held| held.handle.remaining().as_secs_f64())
    }

    /// Seconds until this holder must be finished; none if no handoff has started.
    fn draining(&self) -> Option<f64> {
        let held = self.0.get()?;
        let until = held.handle.draining()?;
        // Both deadlines are of the same clock.
        let now = held.handle.deadline().earliest.0.saturating_sub(held.handle.remaining().as_nanos() as u64);
        Some(Duration::from_nanos(until.0.saturating_sub(now)).as_secs_f64())
    }

    /// The error that explains why work must stop; none while it may continue.
    fn loss(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let Some(held) = self.0.get() else {
            return Ok(Some(Failure::Forked.into_exception(py).into_value(py).into_any()));
        };
        let error: Error = match held.handle.state() {
            GuardState::Lost(loss) => loss.into(),
            GuardState::Held if held.handle.suspensions() == held.suspensions => return Ok(None),
            GuardState::Held | GuardState::Suspended => {
                let failure = Failure::Suspended(held.handle.resource().to_owned());
                return Ok(Some(failure.into_exception(py).into_value(py).into_any()));
            }
        };
        Ok(Some(exception(py, error).into_value(py).into_any()))
    }

    /// Reports progress. Does not wait.
    fn progress(&self, py: Python<'_>, at: u64) -> PyResult<()> {
        self.held(py)?.handle.progress(at);
        Ok(())
    }

    fn check(&self, py: Python<'_>) -> PyResult<Operation> {
        let handle = self.handle(py)?;
        Operation::start(py, async move { Ok(value(handle.check().await?)) })
    }

    fn rotate(&self, py: Python<'_>) -> PyResult<Operation> {
        let handle = self.handle(py)?;
        Operation::start(py, async move { Ok(value(handle.rotate().await.map_err(Error::from)?.to_string())) })
    }

    #[pyo3(signature = (key, value, expected_revision))]
    fn put(
        &self,
        py: Python<'_>,
        key: String,
        value: Option<Vec<u8>>,
        expected_revision: Option<u64>,
    ) -> PyResult<Operation> {
        let handle = self.handle(py)?;
        let request = async move { handle.put_if(&key, value.as_deref(), expected_revision).await };
        Operation::request(py, request, crate::operation::value)
    }

    #[pyo3(signature = (to, mode, drain_ms))]
    fn handoff(
        &self,
        py: Python<'_>,
        to: Option<String>,
        mode: Option<&str>,
        drain_ms: Option<u64>,
    ) -> PyResult<Operation> {
        let handle = self.handle(py)?;
        let mut options = HandoffOptions::new();
        if let Some(to) = to {
            options = options.to(to);
        }
        options = match mode {
            None => options,
            Some("gap") => options.mode(HandoffMode::Gap),
            Some("overlap") => options.mode(HandoffMode::Overlap),
            Some(other) => {
                let message = format!("mode: {other:?} is not a handoff mode; use gap or overlap");
                return Err(exception(py, Error::new(leasehold::Code::InvalidArgument, message)));
            }
        };
        if let Some(drain_ms) = drain_ms {
            options = options.drain(Duration::from_millis(drain_ms));
        }
        Operation::request(py, async move { handle.handoff(options).await }, value)
    }

    fn wait_draining(&self, py: Python<'_>) -> PyResult<Operation> {
        let handle = self.handle(py)?;
        Operation::start(py, async move {
            handle.draining_started().await;
            Ok(value(handle.draining().is_some()))
        })
    }

    fn wait_claimable(&self, py: Python<'_>) -> PyResult<Operation> {
        let handle = self.handle(py)?;
        Operation::start(py, async move {
            // Python has no type that proves the order; the documentation says it.
            let _claim = handle.wait_claimable().await?;
            Ok(value(()))
        })
    }

    /// Waits until work must stop.
    fn wait_stopped(&self, py: Python<'_>) -> PyResult<Operation> {
        let held = self.held(py)?;
        let (handle, suspensions) = (held.handle.clone(), held.suspensions);
        Operation::start(py, async move {
            handle.wait_stopped_since(suspensions).await;
            Ok(value(()))
        })
    }

    /// Waits until the grantor has ended the lease.
    fn wait_lost(&self, py: Python<'_>) -> PyResult<Operation> {
        let handle = self.handle(py)?;
        Operation::start(py, async move {
            handle.wait_lost().await;
            Ok(value(()))
        })
    }

    /// Pushes the key to the queue when work must stop.
    fn watch(&self, py: Python<'_>, queue: &CompletionQueue, key: u64) -> PyResult<()> {
        let completions = queue.completions.clone();
        self.when_stopped(py, move || completions.push(key))
    }

    /// Ends this process when work must stop, without the interpreter.
    fn exit_when_stopped(&self, py: Python<'_>) -> PyResult<()> {
        self.when_stopped(py, || signal_hook::low_level::exit(EXIT_LOST))
    }

    /// Releases the lease. Does nothing if it was released before. A canceled release releases it too, and only waits for no confirmation.
    fn release(&self, py: Python<'_>) -> PyResult<Operation> {
        self.mark_released();
        let Some(held) = self.0.get() else {
            return Operation::start(py, async { Ok(value(())) });
        };
        // Now, and not in the task: one that is aborted before it runs takes nothing.
        let taken = held.guard.try_lock().map(|mut guard| guard.take());
        let guard = held.guard.clone();
        Operation::start(py, async move {
            let taken = match taken {
                Ok(taken) => taken,
                Err(_) => guard.lock().await.take(),
            };
            match taken {
                Some(guard) => Ok(value(guard.release().await?)),
                None => Ok(value(())),
            }
        })
    }

    /// From now on the end of the lease is no loss.
    fn mark_released(&self) {
        if let Some(held) = self.0.get() {
            held.stopped_before_release.fetch_or(self.stopped(), Ordering::AcqRel);
            held.released.store(true, Ordering::Release);
        }
    }
}
