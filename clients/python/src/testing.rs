//! The test server: the real grantor in memory, with a clock that the test moves; and properties that the conformance suite breaks.

use std::time::Duration;

use leasehold::testing::{BrokenProperty, TestServer};
use pyo3::prelude::*;

use crate::client::NativeClient;
use crate::failure::exception;

/// A grantor in memory.
#[pyclass(frozen, module = "leasehold._native")]
pub struct NativeTestServer(TestServer);

#[pymethods]
impl NativeTestServer {
    #[new]
    fn new() -> Self {
        Self(TestServer::new())
    }

    #[pyo3(signature = (holder, session_ttl_ms))]
    fn client(&self, holder: &str, session_ttl_ms: Option<u64>) -> NativeClient {
        NativeClient::of(self.0.client_with(|builder| {
            let builder = builder.holder(holder);
            match session_ttl_ms {
                Some(ttl) => builder.session_ttl(Duration::from_millis(ttl)),
                None => builder,
            }
        }))
    }

    fn advance(&self, py: Python<'_>, ms: u64) {
        py.detach(|| self.0.advance(Duration::from_millis(ms)));
    }

    fn settle(&self, py: Python<'_>) {
        py.detach(|| self.0.settle());
    }

    fn pause(&self, py: Python<'_>, client: &NativeClient) -> PyResult<()> {
        let client = client.client(py)?;
        py.detach(|| self.0.pause(&client));
        Ok(())
    }

    fn resume(&self, py: Python<'_>, client: &NativeClient) -> PyResult<()> {
        self.0.resume(&client.client(py)?);
        Ok(())
    }

    fn partition(&self, py: Python<'_>, client: &NativeClient) -> PyResult<()> {
        let client = client.client(py)?;
        py.detach(|| self.0.partition(&client));
        Ok(())
    }

    fn heal(&self, py: Python<'_>, client: &NativeClient) -> PyResult<()> {
        self.0.heal(&client.client(py)?);
        Ok(())
    }

    fn drop_replies(&self, py: Python<'_>, client: &NativeClient) -> PyResult<()> {
        self.0.drop_replies(&client.client(py)?);
        Ok(())
    }

    fn expire(&self, py: Python<'_>, resource: &str) {
        py.detach(|| self.0.expire(resource));
    }

    fn revoke(&self, py: Python<'_>, resource: &str, grace_ms: u64) -> PyResult<()> {
        let revoked = py.detach(|| self.0.revoke_with_grace(resource, Duration::from_millis(grace_ms)));
        revoked.map_err(|error| exception(py, error))
    }

    fn set_capacity(&self, py: Python<'_>, resource: &str, units: u32) -> PyResult<()> {
        let set = py.detach(|| self.0.set_capacity(resource, units));
        set.map_err(|error| exception(py, error))
    }

    /// Holders of a resource: holder and token number.
    fn holders(&self, resource: &str) -> Vec<(String, u64)> {
        let leases = self.0.show(resource).into_iter().flat_map(|view| view.leases);
        leases.map(|lease| (lease.holder.to_string(), lease.number.get())).collect()
    }

    fn cluster_id(&self) -> String {
        self.0.cluster_id().to_string()
    }
}

/// Breaks a property of every client in this process. True if the property is known.
#[pyfunction]
pub fn break_property(name: &str) -> bool {
    match name {
        "renewal_on_main_loop" => BrokenProperty::RenewalOnMainLoop.activate(),
        "deadline_from_reply" => BrokenProperty::DeadlineFromReply.activate(),
        _ => return false,
    }
    true
}

/// Lets a session worker whose renewals depend on the main loop continue for this time.
#[pyfunction]
pub fn tick_renewals(ms: u64) {
    leasehold::testing::tick_renewals(Duration::from_millis(ms));
}
