//! Pins of readers.

use std::time::Duration;

use leasehold::{Client, Code, Error};
use pyo3::prelude::*;

use crate::lease::{LeaseGuard, NativeLease};
use crate::operation::{Operation, value};

pub fn acquire(
    py: Python<'_>,
    client: &Client,
    resource: String,
    position: u64,
    ttl_ms: Option<u64>,
    max_hold_ms: Option<u64>,
) -> PyResult<Operation> {
    let mut builder = client.pin(resource);
    if let Some(ttl) = ttl_ms {
        builder = builder.ttl(Duration::from_millis(ttl));
    }
    if let Some(max) = max_hold_ms {
        builder = builder.max_hold(Duration::from_millis(max));
    }
    Operation::start(py, async move { Ok(value(NativeLease::new(LeaseGuard::Pin(builder.acquire(position).await?)))) })
}

/// Moves a pin, and returns its position.
pub fn move_to(py: Python<'_>, lease: &NativeLease, position: u64) -> PyResult<Operation> {
    let guard = lease.guard(py)?;
    Operation::start(py, async move {
        match &mut *guard.lock().await {
            Some(LeaseGuard::Pin(pin)) => {
                pin.move_to(position).await?;
                Ok(value(pin.position()))
            }
            _ => Err(Error::new(Code::LeaseLost, "the pin was released; acquire another one").into()),
        }
    })
}
