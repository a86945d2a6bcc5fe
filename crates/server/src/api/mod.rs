//! The API of a server: gRPC and HTTP endpoints over one set of operations.
//!
//! [`Api`] submits commands and queries to the request queue. [`GrpcService`] and the HTTP routes translate to and from it;
//! [`router`] puts them behind one set of middlewares.

mod audit_and_backup;
mod client_idempotency_key;
mod dashboard;
mod grpc;
mod grpc_health;
mod grpc_reflection;
mod grpc_session;
mod http;
mod lease_listing;
mod lease_renewals;
mod metadata;
mod openapi;
mod operator_log;
mod problems;
mod proof;
mod queries;
mod query;
mod queue_receive;
mod router;
mod session_events;
mod sorted_listings;
mod standby;
mod wait_session;

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::Stream;
use leasehold_core::access::{Action, ReadScope};
use leasehold_core::command::{Answer, ProvenTokens, Request, RequestId};
use leasehold_core::ids::SessionId;
use leasehold_core::name::Prefix;
use leasehold_core::refusal::Refusal;
use leasehold_core::trace_context::TraceContext;
use leasehold_wire::{Code, CommandContext, TokenIssuer, session_bits, session_id, v1};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::oneshot;

use crate::access::{AccessControl, DenialLog, StreamAccess};
use crate::cancellation::{CallerState, CancelOnDrop};
use crate::keys::ServerKeys;
use crate::metrics::{Metrics, OK};
use crate::queue_waits::QueueWaits;
use crate::replicated_state::StandbyState;
use crate::request::{DurableReply, QueuedRequest, ReplyTo, RequestPayload, SeenToken, operation_name};
use crate::request_queue::RequestQueue;
use crate::sealing::TokenSealer;
use crate::snapshotter::SnapshotHandle;
use crate::status::ServerStatus;
use crate::watch::{self, ResourceEvent, WatchMessage, Watchers};
use client_idempotency_key::KeySession;
use problems::{no_reply, not_submitted, shutting_down};
use sorted_listings::SortedListings;
use wait_session::WaitSession;

pub use dashboard::{DashboardState, sample};
pub use grpc::GrpcService;
pub use http::served;
pub use metadata::RequestMetadata;
pub use openapi::document;
pub use router::{router, standby_router};

/// Time for a turn to confirm that this server leads.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(2);

/// Operations of a server. Cheap to clone.
#[derive(Clone)]
pub struct Api {
    /// Requests for the next turn.
    pub queue: Arc<RequestQueue>,
    /// Cluster and incarnation of the tokens that this server issues.
    pub issuer: TokenIssuer,
    /// Watchers of events.
    pub watchers: Arc<Watchers>,
    /// Metrics of the server.
    pub metrics: Arc<Metrics>,
    /// Snapshots and the audit log.
    pub snapshots: Arc<SnapshotHandle>,
    /// Role of this server and status of the cluster.
    pub server_status: Arc<ServerStatus>,
    /// The access rules in effect.
    pub access: Arc<AccessControl>,
    /// Log of denials.
    pub denials: Arc<DenialLog>,
    /// Signs the tokens of replies, and proves those of requests.
    pub sealer: Arc<TokenSealer>,
    /// Keys that make and verify secrets.
    pub keys: Arc<ServerKeys>,
    /// Receivers that wait for a message.
    pub queue_waits: Arc<QueueWaits>,
    /// Sorted listings whose later pages may be read.
    pub sorted_listings: Arc<SortedListings>,
    /// What pages of the dashboard remember.
    pub dashboard: Arc<DashboardState>,
    /// The replicated state that queries read while another server leads.
    pub standby: Option<Arc<StandbyState>>,
}

impl Api {
    /// Submits a request and waits for its final reply.
    pub async fn submit(
        &self,
        request: Request<'static>,
        body: RequestPayload,
        caller: CommandContext,
    ) -> Result<DurableReply, v1::Problem> {
        self.submit_alone(request, body, caller, None).await
    }

    /// The same for a caller that may act without a second identity, for a reason (A14).
    async fn submit_alone(
        &self,
        request: Request<'static>,
        body: RequestPayload,
        caller: CommandContext,
        reason: Option<Box<str>>,
    ) -> Result<DurableReply, v1::Problem> {
        let (to, reply) = oneshot::channel();
        self.queue
            .submit(QueuedRequest::new(request, body, caller, ReplyTo::Caller(to)).with_reason_alone(reason))
            .map_err(|error| not_submitted(error, &self.queue))?;
        reply.await.map(DurableReply::delivered).map_err(|_| no_reply())
    }

    /// Submits a wait that cannot be retried. If the caller disconnects, the wait is withdrawn (W3).
    async fn submit_cancellable(
        &self,
        session: SessionId,
        request: Request<'static>,
        body: RequestPayload,
        caller: CommandContext,
    ) -> Result<DurableReply, v1::Problem> {
        let (to, reply) = oneshot::channel();
        let state = Arc::new(CallerState::default());
        let queued = QueuedRequest::new(request, body, caller, ReplyTo::Caller(to)).with_caller_state(state.clone());
        let cancel = CancelOnDrop::new(self.queue.clone(), session, state);
        self.queue.submit(queued).map_err(|error| not_submitted(error, &self.queue))?;
        let reply = reply.await.map(DurableReply::delivered).map_err(|_| no_reply());
        cancel.disarm();
        reply
    }

    /// Executes the operation of a unary call. A wait without a session gets a session of its own for the time of the call.
    pub async fn call(
        &self,
        metadata: RequestMetadata,
        operation: v1::request::Operation,
    ) -> Result<(v1::response::Answer, u64), v1::Problem> {
        let (arrived, name) = (Instant::now(), operation_name(&operation));
        let result = self.call_unmeasured(metadata, operation).await;
        if let Err(problem) = &result {
            self.metrics.requests().answered(name, problem_code(problem), arrived.elapsed());
        }
        result
    }

    async fn call_unmeasured(
        &self,
        metadata: RequestMetadata,
        mut operation: v1::request::Operation,
    ) -> Result<(v1::response::Answer, u64), v1::Problem> {
        self.check_step_down(&operation).await?;
        let caller = self.caller();
        let mut proof = self.proof(&metadata, &operation);
        // A session of the request id may carry the wait, so that a retry finds it; the core decides.
        let wait_session = match unsessioned_wait(&mut operation).filter(|_| !metadata.has_key()) {
            None => None,
            Some(session) => {
                let opened = WaitSession::open(self, metadata.trace).await?;
                *session = Some(session_bits(opened.id));
                proof.session = Some(opened.secret);
                Some(opened)
            }
        };
        let key_session = match metadata.client_key {
            Some(key) => {
                // With the tokens that the request presents: if it is refused here, they are evidence nevertheless (T9).
                let request = Request { proof, ..self.core_request(&operation, None, metadata.token_seen) };
                KeySession::open_if_possible(self, key, &operation, request.traced(metadata.trace)).await?
            }
            None => None,
        };
        if let Some(session) = &key_session {
            // The digest that found the session covers the identity and the key.
            proof.stream = Some(session.id);
        }
        let id = key_session.as_ref().map(KeySession::request_id).or_else(|| metadata.request_id());
        let request = self.core_request(&operation, id, metadata.token_seen);
        let request = Request { proof, ..request }.traced(metadata.trace);
        let cancellable = session_of_wait(&operation).filter(|_| request.id.is_none() && wait_session.is_none());
        let body = RequestPayload::Operation(Box::new(operation));
        let reply = match (cancellable, key_session) {
            (Some(session), _) => self.submit_cancellable(session, request, body, caller).await?,
            (None, Some(session)) => {
                session.renew_during(self, self.submit_alone(request, body, caller, metadata.alone)).await?
            }
            (None, None) => self.submit_alone(request, body, caller, metadata.alone).await?,
        };
        drop(wait_session);
        Ok((grpc_session::encode_answer(&reply, self), reply.position))
    }

    /// The highest token that a caller has seen, with the name of its resource; empty text means none.
    fn seen_token(&self, text: &str, resource: &str) -> Result<Option<SeenToken>, Refusal> {
        let token = leasehold_wire::decode_highest_token(text, &self.issuer)?;
        Ok(token.map(|token| SeenToken { token, proven: self.proves(text, resource) }))
    }

    /// Whether a presented token is sealed by a key of this cluster (A9). Without access rules every token counts, so none is verified.
    fn proves(&self, text: &str, resource: &str) -> bool {
        self.access.is_restricted() && self.sealer.proves(text, resource)
    }

    /// What the core needs besides the command of an operation.
    fn core_request(
        &self,
        operation: &v1::request::Operation,
        id: Option<RequestId>,
        seen: Option<SeenToken>,
    ) -> Request<'static> {
        let token = seen.map(|seen| seen.token);
        let request = leasehold_wire::core_request(0, operation, id, token, &self.issuer);
        let presented = leasehold_wire::presented_token(operation);
        let presented = presented.is_some_and(|(text, resource)| self.proves(text, resource.unwrap_or_default()));
        Request { proven: ProvenTokens { observed: seen.is_some_and(|seen| seen.proven), presented }, ..request }
    }

    /// The public keys that verify the tokens of this cluster.
    pub fn seal_keys(&self) -> Result<(v1::SealKeySet, u64), Box<v1::Problem>> {
        self.authorize_current(Action::Keys)?;
        Ok((self.sealer.key_set(), self.metrics.position()))
    }

    /// Streams events under a prefix from now on, as far as the current identity may see them at the time of each event (A7). The
    /// stream ends with a problem if the watcher reads too slowly, loses its rights, or the server shuts down.
    pub fn watch(
        &self,
        prefix: String,
    ) -> Result<impl Stream<Item = Result<Arc<ResourceEvent>, v1::Problem>> + Send + use<>, Box<v1::Problem>> {
        Prefix::parse(&prefix).map_err(|error| Box::new(queries::invalid_name(error)))?;
        let identity = self.authorize_current(Action::Watch)?;
        let permit = self.access.traffic().of(&identity).map(|traffic| traffic.open_watch()).transpose();
        let permit = permit.inspect_err(|problem| self.denials.limit_reached(&identity, &problem.limit))?;
        let access = StreamAccess::of_action(&self.access, identity, Action::Watch);
        let state = Some((self.watchers.subscribe(), access, prefix, (self.metrics.clone(), permit)));
        Ok(futures::stream::unfold(state, |state| async move {
            let (messages, mut access, prefix, metrics) = state?;
            let Some(mut messages) = messages else { return Some((Err(shutting_down()), None)) };
            loop {
                let message = tokio::select! {
                    // First, so that no event after a reload is judged by the rules before it.
                    biased;
                    reason = access.ended() => return Some((Err(reason), None)),
                    message = messages.recv() => message,
                };
                match message {
                    Ok(WatchMessage::Event(event)) => {
                        if covers(&prefix, &event.resource) && sees(&access, &event) {
                            return Some((Ok(event), Some((Some(messages), access, prefix, metrics))));
                        }
                    }
                    Ok(WatchMessage::Closed) => return Some((Err(shutting_down()), None)),
                    Err(RecvError::Lagged(missed)) => {
                        metrics.0.events_missed(missed);
                        return Some((Err(events_missed(missed)), None));
                    }
                    Err(RecvError::Closed) => return None,
                }
            }
        }))
    }

    /// Status of this server and of the cluster. A server that led confirms first that it still does.
    pub async fn cluster(&self) -> Result<(v1::ClusterView, u64), v1::Problem> {
        self.authorize_current(Action::Cluster)?;
        let leads = self.server_status.may_lead() && self.is_ready().await;
        let position = self.metrics.position();
        Ok((self.server_status.view(position, leads).await, position))
    }

    /// Refuses to step down if no other server stands by: service would only be interrupted.
    async fn check_step_down(&self, operation: &v1::request::Operation) -> Result<(), v1::Problem> {
        let steps_down =
            matches!(operation, v1::request::Operation::StepDown(_)) && !self.server_status.is_standalone();
        if !steps_down {
            return Ok(());
        }
        self.authorize_current(Action::StepDown)?;
        if self.server_status.has_successor().await {
            return Ok(());
        }
        let message = "no other server stands by, so nothing happened; start another server first";
        Err(v1::Problem { subject: "standby".into(), ..v1::Problem::of(Code::NotFound, message) })
    }

    /// Counts a final reply, and logs it if an operator acted.
    fn observe(&self, reply: &DurableReply) {
        let code = match &reply.answer {
            Answer::Waiting { .. } => return,
            Answer::Refused(refusal) => refusal.code(),
            _ => OK,
        };
        self.observe_as(reply, code);
    }

    /// The same for a reply whose code is known.
    fn observe_as(&self, reply: &DurableReply, code: &'static str) {
        let (took, waited) = reply.timing.elapsed();
        self.metrics.requests().answered(reply.body.operation_name(), code, took);
        if let Some(waited) = waited {
            self.metrics.requests().waited(code, waited);
        }
        if code == OK {
            operator_log::log(&reply.body, &reply.identity);
        }
    }

    /// Whether a turn answers in time, as `/readyz` and the gRPC health service report.
    async fn is_ready(&self) -> bool {
        matches!(tokio::time::timeout(CONFIRM_TIMEOUT, self.confirm()).await, Ok(Ok(_)))
    }

    /// A caller without a session stream.
    pub fn caller(&self) -> CommandContext {
        CommandContext { session: None, issuer: self.issuer }
    }
}

/// A request that carries the highest token that its caller has seen, the trace that it belongs to, and nothing else.
fn request_with(seen: Option<SeenToken>, trace: Option<TraceContext>) -> Request<'static> {
    let proven = ProvenTokens { observed: seen.is_some_and(|seen| seen.proven), presented: false };
    Request { observed: seen.map(|seen| seen.token), proven, ..Request::tagged(0) }.traced(trace)
}

/// The code of a problem in metrics.
fn problem_code(problem: &v1::Problem) -> &'static str {
    problem.known_code().map_or("OTHER", Code::word)
}

/// The session field of a wait that names no session.
fn unsessioned_wait(operation: &mut v1::request::Operation) -> Option<&mut Option<u64>> {
    let (terms, session) = match operation {
        v1::request::Operation::Acquire(acquire) => (&acquire.options, &mut acquire.session),
        v1::request::Operation::AcquireAll(all) => (&all.options, &mut all.session),
        _ => return None,
    };
    let waits = terms.as_ref().is_some_and(|terms| terms.wait_ms > 0);
    (waits && session.is_none()).then_some(session)
}

/// The session that a wait belongs to.
fn session_of_wait(operation: &v1::request::Operation) -> Option<SessionId> {
    let (terms, session) = match operation {
        v1::request::Operation::Acquire(acquire) => (&acquire.options, acquire.session),
        v1::request::Operation::AcquireAll(all) => (&all.options, all.session),
        _ => return None,
    };
    session.filter(|_| terms.as_ref().is_some_and(|terms| terms.wait_ms > 0)).map(session_id)
}

/// Whether a prefix of whole segments covers a resource.
fn covers(prefix: &str, resource: &str) -> bool {
    let rest = resource.strip_prefix(prefix);
    prefix.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether a watcher may see an event under the rules in effect. An event without a resource concerns the whole cluster.
fn sees(access: &StreamAccess, event: &ResourceEvent) -> bool {
    let rules = access.rules();
    let scope = ReadScope::of(&rules.caller(access.identity()), Action::Watch);
    scope.is_ok_and(|scope| scope.covers(&event.resource))
}

/// A watcher read too slowly.
fn events_missed(missed: u64) -> v1::Problem {
    let max = watch::MAX_UNREAD as u64;
    let message = format!("missed {missed} events; list the current state and watch again");
    let problem = v1::Problem::of(Code::ResourceExhausted, message);
    v1::Problem { limit: "unread".into(), max: Some(max), got: Some(max + missed), ..problem }
}
