//! Reservations of units.

use std::time::Duration;

use leasehold::recipes::reservation::{Reservation, ReservationStatus};
use leasehold::{Client, Code, Error, LeaseSecret};
use pyo3::prelude::*;

use crate::failure::{Failure, exception};
use crate::operation::{Operation, value};
use crate::runtime::OwnedByProcess;

/// Reserved units.
#[pyclass(frozen, module = "leasehold._native")]
pub struct NativeReservation(OwnedByProcess<Reservation>);

impl NativeReservation {
    pub fn new(reservation: Reservation) -> Self {
        Self(OwnedByProcess::new(reservation))
    }

    pub fn existing(
        py: Python<'_>,
        client: &Client,
        resource: String,
        token: &str,
        secret: Option<&str>,
    ) -> PyResult<Self> {
        let reservation = client.reservation(resource, token).map_err(|error| exception(py, error))?;
        let Some(secret) = secret else { return Ok(Self::new(reservation)) };
        let invalid =
            || Error::new(Code::InvalidArgument, "secret: not a secret; pass the text of `reservation.secret`");
        let secret = LeaseSecret::parse_hex(secret).ok_or_else(|| exception(py, invalid()))?;
        Ok(Self::new(reservation.with_secret(secret)))
    }

    fn reservation(&self, py: Python<'_>) -> PyResult<Reservation> {
        self.0.get().cloned().ok_or_else(|| Failure::Forked.into_exception(py))
    }
}

#[pymethods]
impl NativeReservation {
    #[getter]
    fn resource(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.reservation(py)?.resource().to_owned())
    }

    #[getter]
    fn token(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.reservation(py)?.token().to_string())
    }

    #[getter]
    fn secret(&self, py: Python<'_>) -> PyResult<Option<String>> {
        Ok(self.reservation(py)?.secret().map(|secret| secret.expose_hex()))
    }

    fn confirm(&self, py: Python<'_>) -> PyResult<Operation> {
        let reservation = self.reservation(py)?;
        Operation::start(py, async move { Ok(value(reservation.confirm().await?)) })
    }

    fn cancel(&self, py: Python<'_>) -> PyResult<Operation> {
        let reservation = self.reservation(py)?;
        Operation::start(py, async move { Ok(value(reservation.cancel().await?)) })
    }

    fn resize(&self, py: Python<'_>, units: u32) -> PyResult<Operation> {
        let reservation = self.reservation(py)?;
        Operation::start(py, async move { Ok(value(reservation.resize(units).await?)) })
    }

    fn extend(&self, py: Python<'_>) -> PyResult<Operation> {
        let reservation = self.reservation(py)?;
        Operation::start(py, async move { Ok(value(reservation.extend().await?.as_secs_f64())) })
    }

    fn veto(&self, py: Python<'_>, outlast_ms: u64) -> PyResult<Operation> {
        let reservation = self.reservation(py)?;
        let outlast = Duration::from_millis(outlast_ms);
        Operation::start(py, async move { Ok(value(reservation.veto(outlast).await?.as_secs_f64())) })
    }

    /// State (`open`, `settled`, `ended`), remaining seconds, and reason.
    fn status(&self, py: Python<'_>) -> PyResult<Operation> {
        let reservation = self.reservation(py)?;
        Operation::start(py, async move {
            let row: (&str, Option<f64>, Option<&str>) = match reservation.status().await? {
                ReservationStatus::Open(remaining) => ("open", Some(remaining.as_secs_f64()), None),
                ReservationStatus::Settled => ("settled", None, None),
                ReservationStatus::Ended(reason) => ("ended", None, Some(reason.word())),
                _ => ("unknown", None, None),
            };
            Ok(value(row))
        })
    }
}
