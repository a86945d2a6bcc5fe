//! What a driver process keeps between requests: clients, leases, deliveries, unknown outcomes and the simulated suspend.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use leasehold::recipes::delivery::ReceivedMessage;
use leasehold::testing::FAKE_SUSPEND_FILE;
use leasehold::{Client, Guard, LeaseHandle, PendingOutcome};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::broken::{DriverFault, ReplyDeadlines};
use crate::op_error::OpError;
use crate::request::OpRequest;

/// A client with what its leases need.
pub struct ConnectedClient {
    /// The client itself.
    pub client: Client,
    /// Guards without handles, of `hold_many`.
    pub many: RefCell<Vec<Guard>>,
    /// Deadlines that count from replies, if that is the broken property.
    pub reply_deadlines: Option<Arc<ReplyDeadlines>>,
}

/// A lease under its handle.
pub struct DriverLease {
    /// The guard, until the lease is released.
    pub guard: RefCell<Option<Guard>>,
    /// Remains after the release.
    pub handle: LeaseHandle,
    /// Ends the running work.
    pub finish: Notify,
    /// Deadlines that count from replies, if that is the broken property.
    pub reply_deadlines: Option<Arc<ReplyDeadlines>>,
}

/// A request with an unknown outcome, with the handles that its success creates.
pub enum UnknownOutcome {
    /// An `acquire`.
    Acquire(PendingOutcome<Guard>, String, String, bool),
    /// An `acquire_all`.
    AcquireAll(PendingOutcome<Vec<Guard>>, String, Vec<String>),
    /// A `put`.
    Put(PendingOutcome<u64>),
    /// A `queue_send`.
    Send(PendingOutcome<u64>),
    /// A request without a result.
    Unit(PendingOutcome<()>),
}

/// The state of the driver.
#[derive(Default)]
pub struct DriverState {
    /// Clients by handle.
    pub clients: RefCell<HashMap<String, Rc<ConnectedClient>>>,
    /// Leases by handle.
    pub leases: RefCell<HashMap<String, Rc<DriverLease>>>,
    /// Received messages by queue, item and receipt.
    pub deliveries: RefCell<HashMap<(String, u64, u64), Rc<ReceivedMessage>>>,
    /// Unknown outcomes by the id of their request.
    pub unknown: RefCell<HashMap<u64, UnknownOutcome>>,
    /// The property that later clients break.
    pub broken: Cell<Option<DriverFault>>,
    suspended_ms: Cell<u64>,
}

impl DriverState {
    /// The client that a request names.
    pub fn client(&self, request: &OpRequest) -> Result<Rc<ConnectedClient>, OpError> {
        let name = request.text("client")?;
        self.clients.borrow().get(name).cloned().ok_or_else(|| OpError::driver(format!("no client {name}")))
    }

    /// The lease that a request names.
    pub fn lease(&self, request: &OpRequest) -> Result<Rc<DriverLease>, OpError> {
        let name = request.text("lease")?;
        self.leases.borrow().get(name).cloned().ok_or_else(|| OpError::driver(format!("no lease {name}")))
    }

    /// Keeps a guard under a handle of the runner.
    pub fn insert_lease(&self, name: &str, client: &ConnectedClient, guard: Guard) -> Rc<DriverLease> {
        let lease = Rc::new(DriverLease {
            handle: guard.handle().clone(),
            guard: RefCell::new(Some(guard)),
            finish: Notify::new(),
            reply_deadlines: client.reply_deadlines.clone(),
        });
        self.leases.borrow_mut().insert(name.to_owned(), lease.clone());
        lease
    }

    /// The op `break`.
    pub fn break_property(&self, request: &OpRequest) -> Result<Value, OpError> {
        let name = request.text("property")?;
        let property = DriverFault::parse(name).ok_or_else(|| OpError::driver(format!("no property {name}")))?;
        self.broken.set(Some(property));
        Ok(json!({}))
    }

    /// The op `advance_clock`: the test clock of the client reads the file at each use.
    pub fn advance_clock(&self, request: &OpRequest) -> Result<Value, OpError> {
        let path = std::env::var_os(FAKE_SUSPEND_FILE)
            .ok_or_else(|| OpError::driver(format!("{FAKE_SUSPEND_FILE} is not set")))?;
        self.suspended_ms.set(self.suspended_ms.get() + request.u64("ms")?);
        std::fs::write(path, self.suspended_ms.get().to_string())
            .map_err(|error| OpError::driver(format!("the clock file: {error}")))?;
        Ok(json!({}))
    }
}
