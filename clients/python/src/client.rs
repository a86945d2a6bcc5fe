//! The client: settings, locks and queries.

use std::path::PathBuf;
use std::time::Duration;

use futures::TryStreamExt;
use leasehold::duration::HumanDuration;
use leasehold::types::{Name, TokenScope};
use leasehold::{BearerTokenFile, Client, Code, Error, FencingToken, TlsOptions};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde_json::Value;

use crate::cache::NativeCache;
use crate::discovery::NativeDiscovery;
use crate::failure::{Failure, exception};
use crate::leader::NativeElection;
use crate::lease::{LeaseGuard, NativeLease};
use crate::operation::{Convert, Operation, value};
use crate::queue::NativeQueue;
use crate::reservation::NativeReservation;
use crate::runtime::OwnedByProcess;
use crate::shard::NativeShardWorker;

/// Milliseconds of a duration as text, for example `30s`.
#[pyfunction]
pub fn parse_duration(text: &str) -> PyResult<u64> {
    let parsed: Result<HumanDuration, _> = text.parse();
    parsed.map(HumanDuration::millis).map_err(|error| pyo3::exceptions::PyValueError::new_err(error.to_string()))
}

/// The parts of a token: cluster, resource hash, slot (none unless it may write) and number. Raises `InvalidArgumentError`.
#[pyfunction]
pub fn parse_token(py: Python<'_>, text: &str) -> PyResult<(String, String, Option<u32>, u64)> {
    let invalid = |error: leasehold::types::TokenError| {
        let message = format!("{error}; pass the token text of the grant unchanged");
        exception(py, Error::new(Code::TokenInvalid, message))
    };
    let token = FencingToken::parse(text).map_err(invalid)?.parsed();
    let slot = match token.scope {
        TokenScope::Slot(slot) => Some(slot),
        TokenScope::Shared | TokenScope::Units => None,
    };
    Ok((token.cluster.to_string(), hex(&token.resource), slot, token.number.get()))
}

/// The hash of a resource name, as tokens contain it.
#[pyfunction]
pub fn resource_hash(py: Python<'_>, name: &str) -> PyResult<String> {
    Name::parse(name).map_err(|error| exception(py, error.into()))?;
    Ok(hex(&leasehold_core::name::resource_hash(name)))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A client of one cluster.
#[pyclass(frozen, module = "leasehold._native")]
pub struct NativeClient(OwnedByProcess<Client>);

impl NativeClient {
    pub fn of(client: Client) -> Self {
        Self(OwnedByProcess::new(client))
    }

    pub fn client(&self, py: Python<'_>) -> PyResult<Client> {
        self.0.get().cloned().ok_or_else(|| Failure::Forked.into_exception(py))
    }
}

/// A lock with its optional settings.
#[derive(FromPyObject)]
struct LockSettings {
    resources: Vec<String>,
    holder: Option<String>,
    ttl_ms: Option<u64>,
    renew_every_ms: Option<u64>,
    wait_ms: u64,
    shared: bool,
    slots: Option<u32>,
    units: Option<u32>,
    priority: Option<u8>,
    max_hold_ms: Option<u64>,
    progress_ms: Option<u64>,
    metadata: Option<Vec<u8>>,
}

impl LockSettings {
    fn lock(self, client: &Client) -> leasehold::Lock {
        let mut resources = self.resources.into_iter();
        let mut lock = client.lock(resources.next().unwrap_or_default());
        lock = resources.fold(lock, |lock, resource| lock.also(resource));
        lock = lock.wait(Duration::from_millis(self.wait_ms));
        if let Some(holder) = self.holder {
            lock = lock.holder(holder);
        }
        if let Some(ttl) = self.ttl_ms {
            lock = lock.ttl(Duration::from_millis(ttl));
        }
        if let Some(interval) = self.renew_every_ms {
            lock = lock.renew_every(Duration::from_millis(interval));
        }
        if self.shared {
            lock = lock.shared();
        }
        if let Some(slots) = self.slots {
            lock = lock.slots(slots);
        }
        if let Some(units) = self.units {
            lock = lock.units(units);
        }
        if let Some(priority) = self.priority {
            lock = lock.priority(priority);
        }
        if let Some(max) = self.max_hold_ms {
            lock = lock.max_hold(Duration::from_millis(max));
        }
        if let Some(every) = self.progress_ms {
            lock = lock.require_progress(Duration::from_millis(every));
        }
        if let Some(metadata) = self.metadata {
            lock = lock.metadata(metadata);
        }
        lock
    }
}

/// A JSON document as text, which Python parses.
pub fn json(body: &impl serde::Serialize) -> Result<Convert, Failure> {
    let text = serde_json::to_string(body).map_err(|error| Failure::Other(error.to_string()))?;
    Ok(value(text))
}

#[pymethods]
impl NativeClient {
    /// Makes a client. It connects with its first request.
    #[new]
    #[expect(clippy::too_many_arguments, reason = "all settings of a client meet here, once")]
    #[pyo3(signature = (servers, holder, session_ttl_ms, tls, bearer_file, connect_timeout_ms, request_timeout_ms))]
    fn new(
        py: Python<'_>,
        servers: &str,
        holder: Option<String>,
        session_ttl_ms: Option<u64>,
        tls: Option<(PathBuf, Option<(PathBuf, PathBuf)>)>,
        bearer_file: Option<PathBuf>,
        connect_timeout_ms: Option<u64>,
        request_timeout_ms: Option<u64>,
    ) -> PyResult<Self> {
        let failed = |error: Error| exception(py, error);
        let mut builder = Client::builder(servers).map_err(failed)?;
        if let Some((ca, identity)) = tls {
            let options = match identity {
                Some((certificate, key)) => TlsOptions::new(ca, certificate, key),
                None => TlsOptions::without_certificate(ca),
            };
            options.check().map_err(failed)?;
            builder = builder.tls(options);
        }
        if let Some(file) = bearer_file {
            let file = BearerTokenFile::new(file);
            file.check().map_err(failed)?;
            builder = builder.bearer_file(file);
        }
        if let Some(holder) = holder {
            builder = builder.holder(holder);
        }
        if let Some(ttl) = session_ttl_ms {
            builder = builder.session_ttl(Duration::from_millis(ttl));
        }
        if let Some(timeout) = connect_timeout_ms {
            builder = builder.connect_timeout(Duration::from_millis(timeout));
        }
        if let Some(timeout) = request_timeout_ms {
            builder = builder.request_timeout(Duration::from_millis(timeout));
        }
        Ok(Self::of(builder.build()))
    }

    /// Acquires a lock, or several in one step. Returns the leases in the order of the resources.
    fn acquire(&self, py: Python<'_>, settings: LockSettings) -> PyResult<Operation> {
        let client = self.client(py)?;
        if settings.resources.len() == 1 {
            let lock = settings.lock(&client);
            let convert: fn(leasehold::Guard) -> Convert =
                |guard| value(vec![NativeLease::new(LeaseGuard::Lock(guard))]);
            return Operation::request(py, async move { lock.acquire().await }, convert);
        }
        let lock = settings.lock(&client);
        let convert: fn(Vec<leasehold::Guard>) -> Convert = |guards| {
            value(guards.into_iter().map(|guard| NativeLease::new(LeaseGuard::Lock(guard))).collect::<Vec<_>>())
        };
        Operation::request(py, async move { lock.acquire_all().await }, convert)
    }

    /// Closes the session, which releases all leases.
    fn close(&self, py: Python<'_>) -> PyResult<Operation> {
        let Some(client) = self.0.get().cloned() else {
            return Operation::start(py, async { Ok(value(())) });
        };
        Operation::start(py, async move { Ok(value(client.close().await?)) })
    }

    /// Id of the session; none before the first lease.
    fn session(&self, py: Python<'_>) -> PyResult<Option<String>> {
        Ok(self.client(py)?.session().borrow().as_ref().map(|session| session.session.to_string()))
    }

    /// The state of a resource as JSON.
    fn show(&self, py: Python<'_>, resource: String) -> PyResult<Operation> {
        let client = self.client(py)?;
        Operation::start(py, async move { json(&client.show(&resource).await?) })
    }

    /// The resources below a prefix as JSON.
    fn resources(&self, py: Python<'_>, prefix: String) -> PyResult<Operation> {
        let client = self.client(py)?;
        Operation::start(py, async move {
            let (mut pages, mut all) = (client.list(&prefix), Vec::new());
            while let Some(page) = pages.try_next().await? {
                for resource in page.resources {
                    all.push(serde_json::to_value(resource).map_err(|error| Failure::Other(error.to_string()))?);
                }
            }
            json(&Value::Array(all))
        })
    }

    /// Status of the server as JSON.
    fn status(&self, py: Python<'_>) -> PyResult<Operation> {
        let client = self.client(py)?;
        Operation::start(py, async move { json(&client.status().await?) })
    }

    fn cluster_id(&self, py: Python<'_>) -> PyResult<Operation> {
        let client = self.client(py)?;
        Operation::start(py, async move { Ok(value(client.cluster_id().await?.to_string())) })
    }

    /// Small state of a resource: key, value, token number and revision.
    fn state_of(&self, py: Python<'_>, resource: String) -> PyResult<Operation> {
        let client = self.client(py)?;
        Operation::start(py, async move {
            let values = client.state_of(&resource).await?;
            let convert: Convert = Box::new(move |py| {
                let rows: Vec<_> = values
                    .into_iter()
                    .map(|one| (one.key, PyBytes::new(py, &one.bytes).unbind(), one.token_number.get(), one.revision))
                    .collect();
                Ok(rows.into_pyobject(py)?.into_any().unbind())
            });
            Ok(convert)
        })
    }

    #[pyo3(signature = (resource, ttl_ms, priority, metadata))]
    fn election(
        &self,
        py: Python<'_>,
        resource: String,
        ttl_ms: Option<u64>,
        priority: Option<u8>,
        metadata: Option<&str>,
    ) -> PyResult<NativeElection> {
        Ok(NativeElection::new(&self.client(py)?, resource, ttl_ms, priority, metadata))
    }

    #[pyo3(signature = (name, visibility_ms))]
    fn queue(&self, py: Python<'_>, name: String, visibility_ms: Option<u64>) -> PyResult<NativeQueue> {
        Ok(NativeQueue::new(&self.client(py)?, name, visibility_ms))
    }

    /// Registers an instance of a service. Returns its lease.
    #[pyo3(signature = (service, instance, details, ttl_ms, wait_ms))]
    fn register(
        &self,
        py: Python<'_>,
        service: &str,
        instance: &str,
        details: Option<&str>,
        ttl_ms: Option<u64>,
        wait_ms: Option<u64>,
    ) -> PyResult<Operation> {
        let mut registration = self.client(py)?.service(service, instance);
        if let Some(details) = details {
            registration = registration.details(details);
        }
        if let Some(ttl) = ttl_ms {
            registration = registration.ttl(Duration::from_millis(ttl));
        }
        if let Some(wait) = wait_ms {
            registration = registration.wait(Duration::from_millis(wait));
        }
        Operation::start(
            py,
            async move { Ok(value(NativeLease::new(LeaseGuard::Service(registration.register().await?)))) },
        )
    }

    fn discover(&self, py: Python<'_>, service: String) -> PyResult<Operation> {
        NativeDiscovery::open(py, self.client(py)?, service)
    }

    /// Reserves units. Returns the reservation.
    #[pyo3(signature = (resource, units, ttl_ms, wait_ms, holder, metadata))]
    #[expect(clippy::too_many_arguments, reason = "all settings of a reservation meet here, once")]
    fn reserve(
        &self,
        py: Python<'_>,
        resource: String,
        units: u32,
        ttl_ms: Option<u64>,
        wait_ms: Option<u64>,
        holder: Option<String>,
        metadata: Option<Vec<u8>>,
    ) -> PyResult<Operation> {
        let mut builder = self.client(py)?.reserve(resource, units);
        if let Some(ttl) = ttl_ms {
            builder = builder.ttl(Duration::from_millis(ttl));
        }
        if let Some(wait) = wait_ms {
            builder = builder.wait(Duration::from_millis(wait));
        }
        if let Some(holder) = holder {
            builder = builder.holder(holder);
        }
        if let Some(metadata) = metadata {
            builder = builder.metadata(metadata);
        }
        Operation::start(py, async move { Ok(value(NativeReservation::new(builder.acquire().await?))) })
    }

    /// A reservation that was made elsewhere.
    #[pyo3(signature = (resource, token, secret))]
    fn reservation(
        &self,
        py: Python<'_>,
        resource: String,
        token: &str,
        secret: Option<&str>,
    ) -> PyResult<NativeReservation> {
        NativeReservation::existing(py, &self.client(py)?, resource, token, secret)
    }

    /// Pins a position. Returns the lease of the pin.
    #[pyo3(signature = (resource, position, ttl_ms, max_hold_ms))]
    fn pin(
        &self,
        py: Python<'_>,
        resource: String,
        position: u64,
        ttl_ms: Option<u64>,
        max_hold_ms: Option<u64>,
    ) -> PyResult<Operation> {
        crate::pin::acquire(py, &self.client(py)?, resource, position, ttl_ms, max_hold_ms)
    }

    /// Moves a pin.
    fn move_pin(&self, py: Python<'_>, lease: &NativeLease, position: u64) -> PyResult<Operation> {
        crate::pin::move_to(py, lease, position)
    }

    /// The position below which a collector may delete.
    fn collect(&self, py: Python<'_>, resource: String, below: u64) -> PyResult<Operation> {
        let client = self.client(py)?;
        Operation::start(py, async move { Ok(value(client.collect(&resource, below).await?)) })
    }

    /// Joins a set of shards as a worker.
    #[pyo3(signature = (prefix, count, ttl_ms, poll_interval_ms))]
    fn join_shards(
        &self,
        py: Python<'_>,
        prefix: String,
        count: u32,
        ttl_ms: Option<u64>,
        poll_interval_ms: Option<u64>,
    ) -> PyResult<Operation> {
        NativeShardWorker::join(py, &self.client(py)?, prefix, count, ttl_ms, poll_interval_ms)
    }

    #[pyo3(signature = (ttl_ms, timeout_ms, capacity))]
    fn cache(
        &self,
        py: Python<'_>,
        ttl_ms: Option<u64>,
        timeout_ms: Option<u64>,
        capacity: Option<usize>,
    ) -> PyResult<NativeCache> {
        NativeCache::new(py, &self.client(py)?, ttl_ms, timeout_ms, capacity)
    }
}
