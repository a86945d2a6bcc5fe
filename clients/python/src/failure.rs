//! Errors of operations, and how they become Python exceptions.

use leasehold::Error;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::operation::PendingRequest;

/// Why an operation did not succeed.
pub enum Failure {
    /// A refusal by the grantor, or a failure to reach it.
    Error(Box<Error>),
    /// No reply arrived in time. The request can be resolved.
    Unknown(String, Resolve),
    /// A callback of the program failed. Python keeps its exception.
    Callback,
    /// The operation was canceled, or its runtime stopped.
    Canceled,
    /// The lease on this resource was not renewed before its local deadline.
    Suspended(String),
    /// The object belongs to the parent of this process.
    Forked,
    /// Another error with a message.
    Other(String),
}

/// Continues a request whose outcome is unknown.
pub type Resolve = Box<dyn FnOnce(Python<'_>) -> PyResult<crate::operation::Operation> + Send>;

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Error(Box::new(error))
    }
}

impl Failure {
    /// The exception of this failure.
    pub fn into_exception(self, py: Python<'_>) -> PyErr {
        self.exception(py).unwrap_or_else(|error| error)
    }

    fn exception(self, py: Python<'_>) -> PyResult<PyErr> {
        let errors = py.import("leasehold.errors")?;
        let made = match self {
            Self::Error(error) => return of_error(&errors, &error),
            Self::Unknown(request_id, resolve) => {
                let pending = Py::new(py, PendingRequest::new(resolve))?;
                errors.getattr("unknown_outcome")?.call1((request_id, pending))?
            }
            Self::Callback => errors.getattr("CallbackFailed")?.call0()?,
            Self::Canceled => errors.getattr("canceled")?.call0()?,
            Self::Suspended(resource) => errors.getattr("suspended")?.call1((resource,))?,
            Self::Forked => errors.getattr("forked")?.call0()?,
            Self::Other(message) => return Ok(PyRuntimeError::new_err(message)),
        };
        Ok(PyErr::from_value(made))
    }
}

fn of_error(errors: &Bound<'_, PyModule>, error: &Error) -> PyResult<PyErr> {
    let fields = PyDict::new(errors.py());
    for (name, value) in error.fields() {
        fields.set_item(name, value)?;
    }
    let arguments =
        (error.code_name(), error.message(), error.next_step(), error.is_retryable(), fields, error.to_string());
    Ok(PyErr::from_value(errors.getattr("error_of")?.call1(arguments)?))
}

/// The exception of an error outside of an operation.
pub fn exception(py: Python<'_>, error: Error) -> PyErr {
    Failure::from(error).into_exception(py)
}
