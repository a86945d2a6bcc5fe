//! Connections to the servers of one cluster, and what the client has learned from their replies.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::secret::{LeaseSecret, SessionSecret};
use leasehold_core::trace_context::TraceContext;
use leasehold_wire::MAX_RESPONSE_BYTES;
use leasehold_wire::headers::IdempotencyKey;
use leasehold_wire::v1::leasehold_client::LeaseholdClient;
use tonic::transport::Channel;

use crate::cluster_names::ClusterNames;
use crate::connector::{self, AddressOrigin};
use crate::transport::Transport;
use crate::{Address, BearerTokenFile, Endpoints, Error, FencingToken};

/// The generated gRPC client.
pub(crate) type GrpcClient = LeaseholdClient<Channel>;

/// Connections to servers beyond the endpoints, known from hints.
const HINTED_CONNECTIONS: usize = 16;

/// Timeouts of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timeouts {
    pub(crate) connect: Duration,
    /// Time to wait for a reply.
    pub(crate) request: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { connect: Duration::from_secs(3), request: Duration::from_secs(10) }
    }
}

/// The servers of one cluster. Clones share their connections; each clone has its own idempotency key, secrets and standby
/// setting.
#[derive(Clone, Debug)]
pub(crate) struct ServerPool {
    shared: Arc<PoolShared>,
    /// Key of the next change.
    pub(crate) idempotency_key: Option<IdempotencyKey>,
    /// Secret of the session that the next calls name.
    pub(crate) session_secret: Option<SessionSecret>,
    /// Secret of the lease that the next calls name.
    pub(crate) lease_secret: Option<LeaseSecret>,
    /// Why the next calls act without the approval of a second identity.
    pub(crate) alone: Option<Arc<str>>,
    /// The trace that the next calls belong to.
    pub(crate) trace: Option<TraceContext>,
    /// Lowest journal position from which a standby may answer a query.
    pub(crate) standby: Option<u64>,
    /// The only server to send requests to; all servers if there is none.
    only: Option<Address>,
}

struct PoolShared {
    endpoints: Endpoints,
    names: Arc<ClusterNames>,
    transport: Transport,
    timeouts: Timeouts,
    state: Mutex<PoolState>,
}

impl fmt::Debug for PoolShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { endpoints, timeouts, .. } = self;
        f.debug_struct("PoolShared").field("endpoints", endpoints).field("timeouts", timeouts).finish_non_exhaustive()
    }
}

/// What the client has learned from the servers.
#[derive(Default)]
struct PoolState {
    channels: BTreeMap<Address, Channel>,
    /// The server that answered last: tried first.
    last_server: Option<Address>,
    last_position: Option<u64>,
    /// Servers that did not answer in time: they may be paused, or cut off. Tried last, with a short timeout.
    suspects: BTreeSet<Address>,
    /// The highest token of any grant: it reveals a grantor that was rolled back (T9).
    highest_token: Option<HighestToken>,
}

/// The highest token of any grant, with the name of its resource: a seal covers the name.
#[derive(Clone, Debug)]
pub(crate) struct HighestToken {
    pub token: FencingToken,
    pub resource: Box<str>,
}

impl ServerPool {
    pub(crate) fn new(endpoints: Endpoints, transport: Transport, timeouts: Timeouts) -> Self {
        Self::with_names(endpoints, Arc::default(), transport, timeouts)
    }

    fn with_names(endpoints: Endpoints, names: Arc<ClusterNames>, transport: Transport, timeouts: Timeouts) -> Self {
        let shared = PoolShared { endpoints, names, transport, timeouts, state: Mutex::default() };
        Self {
            shared: Arc::new(shared),
            idempotency_key: None,
            session_secret: None,
            lease_secret: None,
            alone: None,
            trace: None,
            standby: None,
            only: None,
        }
    }

    /// A pool of the same servers with connections of its own and shorter timeouts. It knows the highest token of this one.
    pub(crate) fn with_own_connections(&self, max_timeout: Duration) -> Self {
        let PoolShared { endpoints, names, transport, timeouts, .. } = &*self.shared;
        let timeouts =
            Timeouts { connect: timeouts.connect.min(max_timeout), request: timeouts.request.min(max_timeout) };
        let own = Self::with_names(endpoints.clone(), names.clone(), transport.clone(), timeouts);
        own.state().highest_token = self.highest_token();
        own
    }

    /// A pool that sends requests to one server only, with connections of its own.
    pub(crate) fn only(&self, at: Address, max_timeout: Duration) -> Self {
        Self { only: Some(at), ..self.with_own_connections(max_timeout) }
    }

    pub(crate) fn transport(&self) -> &Transport {
        &self.shared.transport
    }

    pub(crate) fn timeouts(&self) -> Timeouts {
        self.shared.timeouts
    }

    /// The server that answered last, then the others, then suspect servers.
    pub(crate) fn in_order(&self) -> VecDeque<Address> {
        if let Some(only) = &self.only {
            return [only.clone()].into();
        }
        let state = self.state();
        let (last, suspects) = (state.last_server.as_ref(), &state.suspects);
        let known = self.shared.endpoints.addresses().iter();
        let others = known.filter(|address| Some(*address) != last && !suspects.contains(*address));
        last.into_iter().chain(others).chain(suspects).cloned().collect()
    }

    /// The gRPC client of a server. It connects with its first use, and reconnects after a failure.
    pub(crate) fn grpc_client(&self, at: &Address) -> Result<GrpcClient, Error> {
        Ok(LeaseholdClient::new(self.channel(at)?).max_decoding_message_size(MAX_RESPONSE_BYTES))
    }

    /// The connection to a server, which connects with its first use.
    pub(crate) fn channel(&self, at: &Address) -> Result<Channel, Error> {
        let mut state = self.state();
        if !state.channels.contains_key(at) {
            let tls = self.shared.endpoints.tls()?.map(|tls| (tls, &self.shared.names));
            let is_endpoint = self.shared.endpoints.contains(at);
            let source = if is_endpoint { AddressOrigin::Endpoint } else { AddressOrigin::Server };
            let channel = connector::channel(at, source, tls, self.shared.timeouts.connect)?;
            let known = self.shared.endpoints.addresses();
            if state.channels.len() >= known.len() + HINTED_CONNECTIONS {
                state.channels.retain(|address, _| known.contains(address));
            }
            state.channels.insert(at.clone(), channel);
        }
        Ok(state.channels.get(at).expect("just inserted").clone())
    }

    /// Whether a server that another one named may be connected to (A17): it is an endpoint, or its certificate will have to show
    /// the name of the cluster. Without TLS nothing can be shown.
    pub(crate) fn may_follow(&self, named: &Address) -> bool {
        let PoolShared { endpoints, names, .. } = &*self.shared;
        let can_show = endpoints.tls().is_ok_and(|tls| tls.is_some()) && !names.is_empty();
        self.only.is_none() && (endpoints.contains(named) || can_show)
    }

    /// The bearer token for a server.
    pub(crate) fn bearer(&self, at: &Address) -> Result<Option<&BearerTokenFile>, Error> {
        self.shared.endpoints.bearer(at)
    }

    /// This server answers requests: it is tried first from now on.
    pub(crate) fn set_last_server(&self, at: &Address) {
        self.state().last_server = Some(at.clone());
    }

    /// The server that answered last.
    pub(crate) fn last_server(&self) -> Option<Address> {
        self.state().last_server.clone()
    }

    /// A server did not answer in time.
    pub(crate) fn mark_suspect(&self, silent: &Address) {
        let mut state = self.state();
        state.last_server.take_if(|last| last == silent);
        state.suspects.insert(silent.clone());
    }

    pub(crate) fn clear_suspect(&self, at: &Address) {
        self.state().suspects.remove(at);
    }

    pub(crate) fn is_suspect(&self, at: &Address) -> bool {
        self.state().suspects.contains(at)
    }

    pub(crate) fn suspects(&self) -> Vec<Address> {
        self.state().suspects.iter().cloned().collect()
    }

    /// Whether any server is not suspect.
    pub(crate) fn has_healthy_server(&self) -> bool {
        let state = self.state();
        state.suspects.is_empty() || self.shared.endpoints.addresses().iter().any(|at| !state.suspects.contains(at))
    }

    pub(crate) fn set_last_position(&self, position: u64) {
        self.state().last_position = Some(position);
    }

    /// The journal position that the last reply depends on.
    pub(crate) fn last_position(&self) -> Option<u64> {
        self.state().last_position
    }

    pub(crate) fn observe_token(&self, token: FencingToken, resource: &str) {
        let mut state = self.state();
        if state.highest_token.as_ref().is_none_or(|highest| highest.token.number() < token.number()) {
            state.highest_token = Some(HighestToken { token, resource: resource.into() });
        }
    }

    pub(crate) fn highest_token(&self) -> Option<HighestToken> {
        self.state().highest_token.clone()
    }

    /// Queries the grantor of a test directly; none for real servers.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn memory_query<T>(
        &self,
        query: impl FnOnce(&leasehold_core::grantor::Grantor) -> T,
    ) -> Option<Result<T, Error>> {
        match self.transport() {
            Transport::Network => None,
            Transport::Memory(link) => Some(link.query(query)),
        }
    }

    /// Executes a unary call at the grantor of a test; none for real servers.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn memory_call(
        &self,
        command: leasehold_core::command::Command<'_>,
        resource: &str,
    ) -> Option<Result<leasehold_wire::v1::response::Answer, Error>> {
        match self.transport() {
            Transport::Network => None,
            Transport::Memory(link) => Some(link.call(command, resource)),
        }
    }

    fn state(&self) -> MutexGuard<'_, PoolState> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
