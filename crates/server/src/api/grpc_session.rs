//! The session stream: batches in both directions, one stream for each process that holds leases.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::Stream;
use leasehold_core::command::{Answer, Command, Proof, Request, RequestId};
use leasehold_core::grantor::Query;
use leasehold_core::ids::{LeaseId, SessionId};
use leasehold_core::refusal::Refusal;
use leasehold_core::secret::SessionSecret;
use leasehold_core::trace_context::TraceContext;
use leasehold_wire::{Code, CommandContext, decode_hello, encode_event, problem, problem_to_status, v1, welcome};
use prost::Message;
use tonic::{Status, Streaming};
use zeroize::Zeroize;

use super::Api;
use super::problems::{identity_queue_full, no_reply, not_submitted, queue_full};
use super::queries::status_of;
use crate::access::StreamAccess;
use crate::identity::{Identity, current_or_local};
use crate::request::{
    DurableReply, Outbox, OutboxReceiver, Outgoing, QueuedRequest, RenewalBatch, ReplyTo, RequestPayload, SeenToken,
};
use crate::request_queue::SubmitError;
use crate::transport::{RequestRate, problem_of_status, rate_limit};
use crate::{clock, random};

/// The messages that the server sends on a stream.
pub type ServerBatchStream = Pin<Box<dyn Stream<Item = Result<v1::ServerBatch, Status>> + Send>>;

/// Opens or resumes a session with the first message, then serves it until the connection ends. The session outlives the
/// connection: a client that reconnects with the secret resumes it.
pub async fn serve(
    api: Api,
    mut from: Streaming<v1::ClientBatch>,
    hello_timeout: Duration,
    rate: Option<RequestRate>,
    trace: Option<TraceContext>,
) -> Result<ServerBatchStream, Status> {
    let first =
        tokio::time::timeout(hello_timeout, from.message()).await.map_err(|_| problem_to_status(hello_timed_out()))?;
    let Some(mut first) = first? else {
        return Err(Status::cancelled("the stream ended before hello"));
    };
    let receiver = OutboxReceiver::default();
    let outbox = receiver.outbox();
    let mut hello = first.hello.take().ok_or_else(hello_missing)?;
    // A resumed session keeps its leases, so it does not count.
    if let (Some(rate), Some(v1::hello::Session::Open(_))) = (&rate, &hello.session) {
        rate.check().map_err(|problem| problem_to_status(*problem))?;
    }
    let established = establish(&api, &hello, outbox, trace).await;
    if let Some(v1::hello::Session::Resume(resume)) = &mut hello.session {
        resume.secret.zeroize();
    }
    let (welcome, session) = established.map_err(problem_to_status)?;
    let caller = CommandContext { session: Some(session), issuer: api.issuer };
    let identity = current_or_local();
    let access = StreamAccess::of_session(&api.access, identity.clone());
    let reader = StreamReader { api: api.clone(), caller, outbox: outbox.clone(), rate, identity };
    match reader.submit_batch(first).await {
        Ok(()) | Err(StreamEnd::Stopping) => {}
        Err(StreamEnd::Invalid(problem)) => return Err(problem_to_status(*problem)),
    }
    tokio::spawn(reader.run(from, access));
    Ok(Box::pin(outgoing(api, receiver, welcome)))
}

async fn establish(
    api: &Api,
    hello: &v1::Hello,
    outbox: &Arc<Outbox>,
    trace: Option<TraceContext>,
) -> Result<(v1::Welcome, SessionId), v1::Problem> {
    use v1::hello::Session;
    let secret = SessionSecret::new(random::bytes());
    let arrival = decode_hello(hello, secret.digest(), &api.issuer)?;
    let seen = arrival
        .seen
        .map(|token| SeenToken { token, proven: api.proves(&hello.highest_token, &hello.highest_token_resource) });
    let request = super::request_with(seen, trace);
    let (body, new_secret) = match (&hello.session, &arrival.command) {
        (Some(Session::Open(open)), _) => (RequestPayload::Open(open.clone(), secret.digest()), Some(&secret)),
        (_, Command::ResumeSession { session, secret }) => (RequestPayload::Resume(*session, *secret), None),
        _ => return Err(problem(&Refusal::Invalid { field: "session", reason: "open or resume" })),
    };
    if let Some(wall_ms) = arrival.wall_ms {
        api.metrics.clocks().holder(wall_ms, clock::now().wall.0);
    }
    let queued = QueuedRequest::new(request, body, api.caller(), ReplyTo::Stream(outbox.clone(), 0));
    api.queue.submit(queued).map_err(|error| not_submitted(error, &api.queue))?;
    // Both in the same turn, so that a slow journal is waited for only once.
    let (batch, status) = tokio::join!(outbox.recv(), api.query(0, Query::Status, status_of));
    let answer = batch.ok_or_else(no_reply)?.items.into_iter().next();
    if let Some(Outgoing::Answer(_, reply)) = &answer {
        api.observe(reply);
    }
    match answer {
        Some(Outgoing::Answer(_, DurableReply { answer: Answer::Session(grant), .. })) => {
            Ok((welcome(&grant, new_secret, &status?.0), grant.session))
        }
        Some(Outgoing::Answer(_, DurableReply { answer: Answer::Refused(refusal), .. })) => Err(problem(&refusal)),
        Some(Outgoing::Close(reason)) => Err(*reason),
        _ => Err(no_reply()),
    }
}

fn hello_timed_out() -> v1::Problem {
    let problem = v1::Problem::of(Code::Timeout, "hello: did not arrive in time; send it first and at once");
    v1::Problem { field: "hello".into(), ..problem }
}

fn hello_missing() -> Status {
    let refusal = Refusal::Invalid { field: "hello", reason: "required in the first message" };
    problem_to_status(problem(&refusal))
}

/// The reason why no further message is read.
enum StreamEnd {
    /// A message is invalid.
    Invalid(Box<v1::Problem>),
    /// The server shuts down. Earlier requests still get their replies.
    Stopping,
}

impl From<Refusal> for StreamEnd {
    fn from(refusal: Refusal) -> Self {
        Self::Invalid(problem(&refusal).into())
    }
}

impl From<SubmitError> for StreamEnd {
    fn from(error: SubmitError) -> Self {
        match error {
            SubmitError::Stopping => Self::Stopping,
            SubmitError::Full => Self::Invalid(queue_full().into()),
            SubmitError::IdentityFull => Self::Invalid(identity_queue_full().into()),
        }
    }
}

/// The receiving half of a stream.
struct StreamReader {
    api: Api,
    caller: CommandContext,
    outbox: Arc<Outbox>,
    /// Rate limit of its connection and its identity.
    rate: Option<RequestRate>,
    identity: Arc<Identity>,
}

impl StreamReader {
    async fn run(self, mut from: Streaming<v1::ClientBatch>, mut access: StreamAccess) {
        // A connection that ends, sends an invalid message or loses its rights is closed; the session lives on until its deadline.
        let problem = loop {
            let message = tokio::select! {
                message = from.message() => message,
                () = self.outbox.closed() => return,
                reason = access.ended() => break Box::new(reason),
            };
            // A batch that arrived together with the end of its rights is not executed.
            if let Some(reason) = access.end_reason() {
                break Box::new(reason);
            }
            match message {
                Ok(Some(batch)) => match self.submit_batch(batch).await {
                    Ok(()) => {}
                    Err(StreamEnd::Invalid(problem)) => break problem,
                    // The driver sends the reason.
                    Err(StreamEnd::Stopping) => return self.outbox.closed().await,
                },
                Ok(None) => return self.outbox.close(),
                Err(status) => match problem_of_status(&status) {
                    Some(problem) => break Box::new(problem),
                    None => return self.outbox.close(),
                },
            }
        };
        self.outbox.send(Outgoing::Close(problem));
    }

    /// Submits everything in a batch.
    async fn submit_batch(&self, batch: v1::ClientBatch) -> Result<(), StreamEnd> {
        if batch.hello.is_some() {
            return Err(Refusal::Invalid { field: "hello", reason: "only in the first message" }.into());
        }
        let token_seen = self.api.seen_token(&batch.highest_token, &batch.highest_token_resource)?;
        for renewals in batch.renewals {
            self.submit_renewals(renewals, token_seen).await?;
        }
        if batch.requests.is_empty() {
            return Ok(());
        }
        let mut queued = Vec::with_capacity(batch.requests.len());
        for request in batch.requests {
            match self.check(request.operation) {
                Ok(operation) => {
                    let trace = request.traceparent.as_deref().and_then(TraceContext::parse);
                    let submitted = self.request(request.sequence, operation, batch.lowest_pending, token_seen, trace);
                    queued.push(submitted.with_reason_alone(request.alone.map(Into::into)));
                }
                Err(problem) => self.outbox.send(Outgoing::Refused(request.sequence, problem)),
            }
        }
        Ok(self.api.queue.submit_all(queued).await?)
    }

    /// Fails if a request has no known operation, or if it exceeds the rate limit.
    fn check(&self, operation: Option<v1::request::Operation>) -> Result<v1::request::Operation, Box<v1::Problem>> {
        let Some(operation) = operation else {
            let reason = "missing, or unknown to this version";
            return Err(problem(&Refusal::Invalid { field: "operation", reason }).into());
        };
        if let Some(rate) = &self.rate
            && !rate_limit::is_exempt(&operation)
        {
            rate.check_as(&self.identity)?;
        }
        Ok(operation)
    }

    fn request(
        &self,
        sequence: u64,
        operation: v1::request::Operation,
        lowest: u64,
        token_seen: Option<SeenToken>,
        trace: Option<TraceContext>,
    ) -> QueuedRequest {
        let session = self.caller.session.expect("a stream has a session");
        let id = RequestId { session, sequence, lowest: lowest.max(1), digest: 0 };
        let request = self.api.core_request(&operation, Some(id), token_seen);
        let request = Request { proof: Proof::of_stream(session), ..request }.traced(trace);
        let to = ReplyTo::Stream(self.outbox.clone(), sequence);
        QueuedRequest::new(request, RequestPayload::Operation(Box::new(operation)), self.caller, to)
            .with_identity(self.identity.clone())
    }

    async fn submit_renewals(&self, batch: v1::RenewBatch, seen: Option<SeenToken>) -> Result<(), StreamEnd> {
        if batch.leases.len() != batch.token_numbers.len() || batch.leases.len() > leasehold_wire::MAX_RENEWALS {
            let reason = "one token number for each lease, at most 8192 leases";
            return Err(Refusal::Invalid { field: "renewals", reason }.into());
        }
        let leases: Vec<(LeaseId, u64)> =
            batch.leases.iter().map(|bits| leasehold_wire::lease_id(*bits)).zip(batch.token_numbers).collect();
        if !leases.is_empty() {
            let session = self.caller.session.expect("a stream has a session");
            let (to, number, identity) = (self.outbox.clone(), batch.sequence, self.identity.clone());
            let (arrived, proof) = (Instant::now(), Proof::of_stream(session));
            self.api.queue.renew(RenewalBatch { to, session, proof, number, leases, seen, identity, arrived }).await?;
        }
        Ok(())
    }
}

/// The sending half: the welcome, then the messages of the outbox.
fn outgoing(
    api: Api,
    receiver: OutboxReceiver,
    welcome: v1::Welcome,
) -> impl Stream<Item = Result<v1::ServerBatch, Status>> + Send {
    let first = v1::ServerBatch { welcome: Some(welcome), ..Default::default() };
    let none = (Vec::new().into_iter(), 0);
    let rest =
        futures::stream::unfold((api, receiver, none), |(api, receiver, (mut items, mut position))| async move {
            if items.len() == 0 {
                let batch = receiver.outbox().recv().await?;
                (items, position) = (batch.items.into_iter(), batch.position);
            }
            let batch = encode_batch(&mut items, position, &api);
            if batch.close.is_some() {
                receiver.outbox().close();
            }
            Some((Ok(batch), (api, receiver, (items, position))))
        });
    futures::StreamExt::chain(futures::stream::iter([Ok(first)]), rest)
}

/// Encodes as many items as one message takes, within what clients accept.
fn encode_batch(items: &mut std::vec::IntoIter<Outgoing>, position: u64, api: &Api) -> v1::ServerBatch {
    let mut batch = v1::ServerBatch { position, ..Default::default() };
    let mut bytes_left = BATCH_BYTES;
    for item in items.by_ref().take(BATCH_ITEMS) {
        match item {
            Outgoing::Answer(sequence, reply) => {
                let answer = encode_answer(&reply, api);
                match &answer {
                    v1::response::Answer::Delivery(delivery) => {
                        bytes_left = bytes_left.saturating_sub(delivery.encoded_len());
                    }
                    v1::response::Answer::Refused(problem) => api.metrics.rejections().problem(problem),
                    answer => bytes_left = bytes_left.saturating_sub(stamp_bytes(answer)),
                }
                batch.responses.push(v1::Response { sequence, answer: Some(answer) });
            }
            Outgoing::Refused(sequence, problem) => {
                api.metrics.rejections().problem(&problem);
                let answer = Some(v1::response::Answer::Refused(problem));
                batch.responses.push(v1::Response { sequence, answer });
            }
            Outgoing::Close(problem) => {
                api.metrics.rejections().problem(&problem);
                batch.close = Some(*problem);
            }
            Outgoing::Renewed(result, arrived) => {
                let bytes = 8 * result.remaining_ms.len() + 128 * result.details.len();
                bytes_left = bytes_left.saturating_sub(bytes);
                api.metrics.requests().batch_renewed(result.remaining_ms.len(), arrived.elapsed());
                batch.renewals.push(result);
            }
            Outgoing::Event(session_event, position) => {
                batch.events.push(encode_event(&session_event, position, "", ""))
            }
        }
        if bytes_left == 0 {
            break;
        }
    }
    batch
}

/// Approximate bytes of the stamped tokens of an answer.
fn stamp_bytes(answer: &v1::response::Answer) -> usize {
    let bytes = |stamped: &[v1::StampedToken]| stamped.iter().map(Message::encoded_len).sum();
    match answer {
        v1::response::Answer::Granted(grant) => bytes(&grant.stamped_tokens),
        v1::response::Answer::GrantedAll(all) => all.grants.iter().map(|grant| bytes(&grant.stamped_tokens)).sum(),
        v1::response::Answer::Current(current) => bytes(&current.stamped_tokens),
        _ => 0,
    }
}

/// Replies and events of one message.
const BATCH_ITEMS: usize = 1 << 9;
/// Approximate bytes of large replies in one message.
const BATCH_BYTES: usize = 1 << 20;

const _: () = {
    use leasehold_core::limits::{ITEM_BYTES, RECEIVE_BYTES};
    assert!(BATCH_ITEMS < leasehold_wire::MAX_RESPONSE_FIELDS, "clients accept a full message");
    assert!(BATCH_BYTES + RECEIVE_BYTES + ITEM_BYTES + BATCH_ITEMS * 384 <= leasehold_wire::MAX_RESPONSE_BYTES);
};

/// Encodes an answer with the tokens and the secrets of its grants.
pub fn encode_answer(reply: &DurableReply, api: &Api) -> v1::response::Answer {
    if let Some(problem) = api.broken_seal(reply) {
        api.observe_as(reply, Code::TokenInvalid.word());
        return v1::response::Answer::Refused(Box::new(problem));
    }
    api.observe(reply);
    let order: Vec<LeaseId> = match &reply.answer {
        Answer::GrantedAll(all) => all.iter().map(|grant| grant.lease).collect(),
        _ => Vec::new(),
    };
    let resource = |lease: LeaseId| {
        let index = order.iter().position(|other| *other == lease).unwrap_or(0);
        reply.body.resource(index)
    };
    let mut answer = leasehold_wire::encode_answer(&reply.answer, &api.issuer, resource, reply.body.holder());
    api.add_secrets(reply, &mut answer);
    api.sealer.seal_answer(&mut answer, reply, &api.issuer);
    answer
}
