//! A fence for an HTTP or gRPC service, as a tower layer. It also stops requests of a zombie that are already in flight.
//!
//! To check the token and then forward the request would be check-then-act: a request of a paused holder could still be in
//! flight when its successor writes. Therefore:
//!
//! - A request is **in flight** until its response is complete.
//! - The mark is raised only when no request is in flight. A higher token waits for requests with lower tokens, up to
//!   [`GateTimeouts::claim_timeout`], and then gets `UNAVAILABLE` with nothing changed.
//! - If an outcome is unknown (the connection broke, the caller disconnected, the process died), higher tokens are blocked
//!   for [`GateTimeouts::settle_time`].
//! - The mark is durable in a file before any request under it is forwarded.
//!
//! ```
//! # use std::convert::Infallible;
//! # use leasehold_fence::{Cluster, FenceId, Incarnation, Number, Token, TokenScope};
//! # use http::{Request, Response};
//! # use tower::{Layer, ServiceExt, service_fn};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let marks = dir.path().join("marks");
//! # let cluster = Cluster(*b"examples");
//! # let token = Token { cluster, incarnation: Incarnation(1), resource: leasehold_fence::resource_hash("jobs/settle"),
//! #     scope: TokenScope::Slot(0), number: Number::FIRST }.to_string();
//! use leasehold_fence::http::{Fence, GateTimeouts, Rules};
//!
//! let rules = Rules::new(&FenceId::new(cluster, "jobs/settle")?).exempt("/search", &[])?;
//! Fence::arm(&marks, &rules)?; // once
//! let fence = Fence::open(&marks, rules, GateTimeouts::default())?;
//! let service = fence.layer().layer(service_fn(|_: Request<_>| async {
//!     Ok::<_, Infallible>(Response::new(String::from("paid")))
//! }));
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! let with_token = Request::post("/invoices").header("lease-token", token).body(String::new())?;
//! assert_eq!(service.clone().oneshot(with_token).await?.status(), 200);
//! let without_token = Request::post("/invoices").body(String::new())?;
//! assert_eq!(service.clone().oneshot(without_token).await?.status(), 400);
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok(())
//! # }
//! ```

mod gate;
mod gate_state;
mod in_flight_body;
mod layer;
mod mark_log;
mod metrics;
mod parse_refusal;
mod plain_path;
mod problem;
mod rules;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::token::Cluster;

use crate::file::FencedLog;
use crate::observer::EventSink;
use crate::seal_verifier::SealCheck;
use crate::{Counters, Error, FenceId, Mark, MarkInfo, Observer, SealVerifier};
use gate::Gate;
pub use in_flight_body::{RequestBody, ResponseBody};
pub use layer::{
    CLAIM_GRPC_PATH, CLAIM_PATH, FenceLayer, FenceService, LEASE_APPLIED, LEASE_SEQUENCE, LEASE_TOKEN, PROBE_METHOD,
    UpstreamOutcome,
};
use mark_log::MarkLog;
use metrics::GateCounters;
pub use metrics::GateMetrics;
pub use parse_refusal::parse_refusal;
pub use problem::{CODES, FenceCode, FenceProblem};
pub use rules::Rules;
#[cfg(feature = "proxy")]
pub(crate) use rules::spells;

/// Time limits of the gate. A claim succeeds at most `max_request_time + settle_time` after the last request with a lower
/// token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GateTimeouts {
    /// How long a higher token waits for requests in flight, before it gets `UNAVAILABLE`. Default: 5 s.
    pub claim_timeout: Duration,
    /// Maximum time of a request; then it is aborted, and its outcome is unknown. Default: 30 s.
    pub max_request_time: Duration,
    /// How long higher tokens are blocked after an unknown outcome. Within this time the service must have applied the
    /// request, or never apply it. Default: 30 s.
    pub settle_time: Duration,
}

impl Default for GateTimeouts {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl GateTimeouts {
    /// The default time limits.
    pub const DEFAULT: Self = Self {
        claim_timeout: Duration::from_secs(5),
        max_request_time: Duration::from_secs(30),
        settle_time: Duration::from_secs(30),
    };

    /// Sets [`claim_timeout`](Self::claim_timeout).
    pub const fn with_claim_timeout(self, claim_timeout: Duration) -> Self {
        Self { claim_timeout, ..self }
    }

    /// Sets [`max_request_time`](Self::max_request_time).
    pub const fn with_max_request_time(self, max_request_time: Duration) -> Self {
        Self { max_request_time, ..self }
    }

    /// Sets [`settle_time`](Self::settle_time).
    pub const fn with_settle_time(self, settle_time: Duration) -> Self {
        Self { settle_time, ..self }
    }
}

/// A fence for a service. Clones share their state.
#[derive(Clone, Debug)]
pub struct Fence(Arc<FenceShared>);

#[derive(Debug)]
struct FenceShared {
    rules: Rules,
    seals: SealCheck,
    /// One for each id of the rules, in their order.
    gates: Vec<Arc<Gate>>,
    events: EventSink,
    counters: GateCounters,
    timeouts: GateTimeouts,
}

/// The state of the gate of one id.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GateStatus {
    /// What the gate guards.
    pub id: FenceId,
    /// The mark.
    pub mark: Mark,
    /// Number of requests in flight.
    pub in_flight: usize,
    /// How long higher tokens are still blocked, because an outcome is unknown.
    pub closed_for: Duration,
}

impl Fence {
    /// Creates a mark file for each id of the rules, armed as fresh. Fails if one exists.
    pub fn arm(marks: &Path, rules: &Rules) -> Result<(), Error> {
        let mut ids = rules.ids().iter().enumerate();
        ids.try_for_each(|(index, id)| FencedLog::create(&mark_file(marks, index, id), id))
    }

    /// Opens the fence. A missing or damaged mark file is an error, and so is one that another process uses.
    pub fn open(marks: &Path, rules: Rules, timeouts: GateTimeouts) -> Result<Self, Error> {
        let gates = rules.ids().iter().enumerate().map(|(index, id)| {
            let path = mark_file(marks, index, id);
            let (log, lock, recovered) = MarkLog::open(&path, id, timeouts.claim_timeout)?;
            Ok(Gate::new(id, path, (log, lock), recovered, &timeouts))
        });
        let gates = gates.collect::<Result<_, Error>>()?;
        let (seals, events, counters) = (SealCheck::default(), EventSink::default(), GateCounters::default());
        Ok(Self(Arc::new(FenceShared { rules, seals, gates, events, counters, timeouts })))
    }

    /// The cluster whose tokens a mark file admits.
    pub fn cluster(marks: &Path) -> Result<Cluster, Error> {
        let marks = FencedLog::list_marks(marks)?;
        Ok(marks.first().expect("a log has one mark").cluster)
    }

    /// Returns the marks of all ids.
    pub fn list_marks(&self) -> Result<Vec<MarkInfo>, Error> {
        let mut marks = Vec::new();
        for gate in &self.0.gates {
            let with_name = |info| MarkInfo { name: Some(gate.fence_id.resource().to_owned()), ..info };
            marks.extend(FencedLog::list_marks(&gate.path)?.into_iter().map(with_name));
        }
        Ok(marks)
    }

    /// Sets the observer that receives every decision. Call this before the first [`layer`](Self::layer).
    pub fn with_observer(mut self, observer: Arc<dyn Observer>) -> Result<Self, Error> {
        let shared = Arc::get_mut(&mut self.0);
        let message = "the fence is already in use; set the observer before the first layer";
        shared.ok_or(Error::InvalidArgument(message))?.events.observer = Some(observer);
        Ok(self)
    }

    /// Verifies the seal of every token with these keys; tokens that none of them signed are refused (A8). Call this before the
    /// first [`layer`](Self::layer).
    pub fn with_seal_verifier(mut self, verifier: &SealVerifier) -> Result<Self, Error> {
        let shared = Arc::get_mut(&mut self.0);
        let message = "the fence is already in use; set the verifier before the first layer";
        let shared = shared.ok_or(Error::InvalidArgument(message))?;
        shared.seals = SealCheck::new(verifier);
        shared.gates.iter().for_each(|gate| gate.set_seal_verifier(verifier));
        Ok(self)
    }

    /// Seals the mark files of all ids, permanently: without a [`SealVerifier`] every process refuses all tokens from now on.
    pub fn seal(&self) -> Result<(), Error> {
        self.0.gates.iter().try_for_each(|gate| FencedLog::open(&gate.path, &gate.fence_id)?.seal())
    }

    /// The layer that adds this fence to a service.
    pub fn layer(&self) -> FenceLayer {
        FenceLayer(self.0.clone())
    }

    /// Counters of the decisions of this fence.
    pub fn counters(&self) -> &Counters {
        &self.0.events.counters
    }

    /// Counters of requests that no decision about a token covers.
    pub fn metrics(&self) -> GateMetrics {
        self.0.counters.snapshot()
    }

    /// The time limits of this fence.
    pub fn timeouts(&self) -> GateTimeouts {
        self.0.timeouts
    }

    /// The state of the gate of each id.
    pub fn gate_statuses(&self) -> Vec<GateStatus> {
        let statuses = self.0.gates.iter().map(|gate| {
            let (in_flight, closed_for, mark) = gate.status();
            GateStatus { id: gate.fence_id.clone(), mark, in_flight, closed_for }
        });
        statuses.collect()
    }

    /// Records in the mark files that no request is in flight, so that the next process need not wait. Call this at shutdown,
    /// after the last request. Returns false if an outcome is unknown.
    pub fn record_settled(&self) -> Result<bool, Error> {
        self.0.gates.iter().try_fold(true, |all, gate| Ok(gate.record_settled()? && all))
    }
}

/// The mark file of an id. That of the main id has the given name; the others are stored next to it.
fn mark_file(marks: &Path, index: usize, id: &FenceId) -> PathBuf {
    if index == 0 {
        return marks.to_owned();
    }
    let mut path = marks.as_os_str().to_owned();
    path.push(format!(".{}-{}", id.resource_hash(), id.slot()));
    path.into()
}
