//! Operations: calls of the client that can wait. They run on the runtime; Python waits for them detached, or is notified.
//!
//! An operation that needs Python while it runs (a cache that loads a value) publishes a callback request. The thread that waits for the
//! operation executes it and replies. So Rust never attaches to the interpreter.

use std::future::Future;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::FutureExt;
use leasehold::RequestError;
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use crate::completion_queue::{CompletionQueue, Completions};
use crate::failure::Failure;
use crate::runtime::{OwnedByProcess, runtime};

/// How often a waiting thread looks for signals.
const SIGNAL_CHECK: Duration = Duration::from_millis(50);

/// Makes the Python value of a result.
pub type Convert = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;

/// Result of an operation.
pub type Outcome = Result<Convert, Failure>;

/// Wraps a value that Python can hold.
pub fn value<T>(value: T) -> Convert
where
    T: for<'py> IntoPyObject<'py> + Send + 'static,
{
    Box::new(|py| value.into_py_any(py))
}

enum Step {
    Running,
    /// A callback that Python must execute: its name and its argument.
    Requested(&'static str, u64, oneshot::Sender<Option<Py<PyAny>>>),
    /// Python executes a callback and replies here.
    Calling(oneshot::Sender<Option<Py<PyAny>>>),
    Done(Outcome),
    /// The result was taken, or nobody will: a result that comes later is dropped, which releases what it was granted.
    Taken,
}

struct Shared {
    step: Mutex<Step>,
    changed: Condvar,
    listener: Mutex<Option<(Arc<Completions>, u64)>>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Step> {
        self.step.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, step: Step) {
        let replaced = {
            let mut current = self.lock();
            if matches!(*current, Step::Taken) { step } else { std::mem::replace(&mut *current, step) }
        };
        // Without the lock: dropping a result releases a lease.
        drop(replaced);
        self.changed.notify_all();
        let listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((completions, key)) = &*listener {
            completions.push(*key);
        }
    }

    /// Drops the result, also one that is still to come: an aborted task completes the step that it is in.
    fn set_taken(&self) {
        let dropped = std::mem::replace(&mut *self.lock(), Step::Taken);
        drop(dropped);
        self.changed.notify_all();
    }

    fn needs_python(&self) -> bool {
        matches!(&*self.lock(), Step::Requested(..) | Step::Done(_) | Step::Taken)
    }
}

/// Completes the operation however its task ends.
struct Completer(Arc<Shared>);

impl Completer {
    fn complete(self, outcome: Outcome) {
        self.0.set(Step::Done(outcome));
    }
}

impl Drop for Completer {
    fn drop(&mut self) {
        if !matches!(&*self.0.lock(), Step::Done(_) | Step::Taken) {
            self.0.set(Step::Done(Err(Failure::Canceled)));
        }
    }
}

/// The side of an operation that calls back into Python.
#[derive(Clone)]
pub struct Callbacks(Arc<Shared>);

impl Callbacks {
    /// Lets the waiting thread execute a callback. None if it failed.
    pub async fn call(&self, name: &'static str, argument: u64) -> Option<Py<PyAny>> {
        let (reply, replied) = oneshot::channel();
        self.0.set(Step::Requested(name, argument, reply));
        replied.await.ok().flatten()
    }
}

/// A running call. Dropping it cancels the call.
#[pyclass(frozen, module = "leasehold._native")]
pub struct Operation(OwnedByProcess<Running>);

struct Running {
    shared: Arc<Shared>,
    task: AbortHandle,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Operation {
    /// Starts a call.
    pub fn start<F>(py: Python<'_>, call: F) -> PyResult<Self>
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        Self::start_with_callbacks(py, |_| call)
    }

    /// Starts a call that calls back into Python.
    pub fn start_with_callbacks<F>(py: Python<'_>, call: impl FnOnce(Callbacks) -> F) -> PyResult<Self>
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        let shared =
            Arc::new(Shared { step: Mutex::new(Step::Running), changed: Condvar::new(), listener: Mutex::default() });
        let (completer, call) = (Completer(shared.clone()), call(Callbacks(shared.clone())));
        let task = runtime(py)?.spawn(async move { completer.complete(call.await) }).abort_handle();
        Ok(Self(OwnedByProcess::new(Running { shared, task })))
    }

    /// Starts a request whose outcome can be unknown.
    pub fn request<T, F>(py: Python<'_>, request: F, convert: fn(T) -> Convert) -> PyResult<Self>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, RequestError<T>>> + Send + 'static,
    {
        Self::start(py, async move {
            match request.await {
                Ok(output) => Ok(convert(output)),
                Err(RequestError::Rejected(error)) => Err(error.into()),
                Err(RequestError::Indeterminate(pending)) => {
                    let id = pending.request_id().to_owned();
                    // Boxed: the type of a request would contain itself.
                    let resolve = move |py: Python<'_>| Self::request(py, pending.resolve().boxed(), convert);
                    Err(Failure::Unknown(id, Box::new(resolve)))
                }
            }
        })
    }

    fn running(&self, py: Python<'_>) -> PyResult<&Running> {
        self.0.get().ok_or_else(|| Failure::Forked.into_exception(py))
    }
}

#[pymethods]
impl Operation {
    /// Waits until the operation is done or needs a callback. False after the timeout.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let shared = &self.running(py)?.shared;
        let deadline = timeout.and_then(|timeout| {
            Instant::now().checked_add(Duration::try_from_secs_f64(timeout.max(0.0)).unwrap_or(Duration::MAX))
        });
        loop {
            let pause = match deadline {
                Some(deadline) => deadline.saturating_duration_since(Instant::now()).min(SIGNAL_CHECK),
                None => SIGNAL_CHECK,
            };
            let ready = py.detach(|| {
                let running = |step: &mut Step| matches!(step, Step::Running | Step::Calling(_));
                drop(shared.changed.wait_timeout_while(shared.lock(), pause, running));
                shared.needs_python()
            });
            if ready {
                return Ok(true);
            }
            py.check_signals()?;
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(false);
            }
        }
    }

    /// Pushes the key to the queue whenever the operation is done or needs a callback.
    fn notify(&self, py: Python<'_>, queue: &CompletionQueue, key: u64) -> PyResult<()> {
        let shared = &self.running(py)?.shared;
        *shared.listener.lock().unwrap_or_else(PoisonError::into_inner) = Some((queue.completions.clone(), key));
        if shared.needs_python() {
            queue.completions.push(key);
        }
        Ok(())
    }

    /// Whether `wait` would return at once.
    fn ready(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.running(py)?.shared.needs_python())
    }

    /// The callback to execute, as its name and argument; none if there is none.
    fn requested(&self, py: Python<'_>) -> PyResult<Option<(&'static str, u64)>> {
        let mut step = self.running(py)?.shared.lock();
        match std::mem::replace(&mut *step, Step::Running) {
            Step::Requested(name, argument, reply) => {
                *step = Step::Calling(reply);
                Ok(Some((name, argument)))
            }
            other => {
                *step = other;
                Ok(None)
            }
        }
    }

    /// Replies to a callback with its value, or with nothing if it failed.
    #[pyo3(signature = (succeeded, value=None))]
    fn reply(&self, py: Python<'_>, succeeded: bool, value: Option<Py<PyAny>>) -> PyResult<()> {
        let mut step = self.running(py)?.shared.lock();
        match std::mem::replace(&mut *step, Step::Running) {
            Step::Calling(reply) => {
                // A call that stopped meanwhile needs no reply.
                let _ = reply.send(succeeded.then(|| value.unwrap_or_else(|| py.None())));
            }
            other => *step = other,
        }
        Ok(())
    }

    /// The value of a finished operation, once. Raises its error.
    fn result(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let taken = {
            let mut step = self.running(py)?.shared.lock();
            match &*step {
                Step::Done(_) => std::mem::replace(&mut *step, Step::Taken),
                _ => Step::Running,
            }
        };
        match taken {
            Step::Done(Ok(convert)) => convert(py),
            Step::Done(Err(failure)) => Err(failure.into_exception(py)),
            _ => Err(Failure::Other("the operation has no result, or it was taken".into()).into_exception(py)),
        }
    }

    /// Cancels the call. What it was granted is released now, also if the grant arrives while it is canceled, and not when the object is
    /// deleted, to which a traceback may refer.
    fn cancel(&self) {
        if let Some(running) = self.0.get() {
            running.task.abort();
            running.shared.set_taken();
        }
    }
}

/// A request whose outcome is unknown.
#[pyclass(frozen, module = "leasehold._native")]
pub struct PendingRequest(Mutex<Option<crate::failure::Resolve>>);

impl PendingRequest {
    pub fn new(resolve: crate::failure::Resolve) -> Self {
        Self(Mutex::new(Some(resolve)))
    }
}

#[pymethods]
impl PendingRequest {
    /// Waits for the outcome again. Can be called once.
    fn resolve(&self, py: Python<'_>) -> PyResult<Operation> {
        let resolve = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        match resolve {
            Some(resolve) => resolve(py),
            None => Err(Failure::Other("this outcome was resolved before".into()).into_exception(py)),
        }
    }
}
