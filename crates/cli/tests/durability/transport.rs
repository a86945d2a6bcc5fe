//! Client transports: unary calls or the session stream, with the same request ids.

use std::time::Duration;

use futures::channel::mpsc::{UnboundedSender, unbounded};
use futures::stream::{FuturesUnordered, StreamExt};
use leasehold_wire::headers::{IDEMPOTENCY_KEY, IdempotencyKey};
use leasehold_wire::v1::leasehold_client::LeaseholdClient;
use leasehold_wire::v1::request::Operation;
use leasehold_wire::v1::response::Answer;
use leasehold_wire::{METADATA_CODE, problem_from_status, session_id, v1};
use tokio::time::timeout;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};

/// Timeout for every wait; generous for busy machines.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Client for unary calls.
pub type GrpcClient = LeaseholdClient<Channel>;

/// The connection broke; the outcome of pending requests is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disconnected;

/// A reply, reduced to what the checks need.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// The lease was granted.
    Granted(Box<v1::Grant>),
    /// The lease is current under this number.
    Current(u64),
    /// The request is queued.
    Waiting,
    /// Success without a result.
    Done,
    /// A refusal with its code and reason.
    Refused(String, String),
}

impl Reply {
    fn of(answer: Answer) -> Self {
        match answer {
            Answer::Granted(grant) => Self::Granted(Box::new(grant)),
            Answer::Current(current) => Self::Current(current.token_number),
            Answer::Waiting(_) => Self::Waiting,
            Answer::Done(_) | Answer::Session(_) => Self::Done,
            Answer::Refused(problem) => Self::Refused(problem.code, problem.reason),
            other => panic!("unexpected answer: {other:?}"),
        }
    }

    pub fn refused(code: &str, reason: &str) -> Self {
        Self::Refused(code.into(), reason.into())
    }
}

/// The reply of a unary call. A status that did not come from a grantor counts as a broken connection.
pub fn reply<T>(
    result: Result<tonic::Response<T>, Status>,
    of: impl FnOnce(T) -> Reply,
) -> Result<Reply, Disconnected> {
    match result {
        Ok(response) => Ok(of(response.into_inner())),
        Err(status) => refused(&status),
    }
}

/// A refusal is a reply. An unknown outcome (X3) and a server that shuts down count as a broken connection.
fn refused(status: &Status) -> Result<Reply, Disconnected> {
    let problem = problem_from_status(status);
    if !status.metadata().contains_key(METADATA_CODE) || is_shutdown(&problem.code) {
        return Err(Disconnected);
    }
    Ok(Reply::Refused(problem.code, problem.reason))
}

/// Whether a code means that this server will not reply.
fn is_shutdown(code: &str) -> bool {
    matches!(code, "INDETERMINATE" | "UNAVAILABLE" | "NOT_LEADER")
}

pub async fn connect(address: &str) -> Result<GrpcClient, Disconnected> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
    let channel =
        within(endpoint.connect_timeout(Duration::from_secs(20)).connect()).await.map_err(|_| Disconnected)?;
    Ok(LeaseholdClient::new(channel))
}

/// Awaits a reply: one arrives, or the connection breaks (X1).
pub async fn within<T>(future: impl Future<Output = T>) -> T {
    timeout(TEST_TIMEOUT, future).await.expect("a reply, or a broken connection")
}

/// A session and its secret from the welcome message.
#[derive(Clone, Debug)]
pub struct OwnSession {
    pub session: u64,
    pub secret: Vec<u8>,
}

/// The connection of one client.
pub enum Transport {
    /// Unary calls, each with an idempotency key.
    Unary(GrpcClient, u64),
    /// A session stream.
    Stream(UnboundedSender<v1::ClientBatch>, Box<Streaming<v1::ServerBatch>>, Vec<v1::Response>),
}

/// Ttl of sessions and leases in milliseconds: longer than any test.
pub const LONG: u64 = 600_000;

impl Transport {
    /// Opens or resumes a session, with unary calls.
    pub async fn unary(address: &str, holder: &str, own: &mut Option<OwnSession>) -> Result<Self, Disconnected> {
        let mut calls = connect(address).await?;
        if let Some(own) = own {
            let renew = v1::RenewSession { session: Some(own.session), held: None };
            let reply = reply(within(calls.renew_session(renew)).await, |_| Reply::Done)?;
            assert_eq!(reply, Reply::Done, "an acknowledged session exists after a crash (L3)");
            return Ok(Self::Unary(calls, own.session));
        }
        let open = v1::OpenSession { holder: holder.into(), ttl_ms: LONG, waits_only: false };
        let welcome = within(calls.open_session(open)).await.map_err(|_| Disconnected)?.into_inner();
        *own = Some(OwnSession { session: welcome.session, secret: welcome.secret });
        Ok(Self::Unary(calls, welcome.session))
    }

    /// Opens or resumes a session on a stream.
    pub async fn stream(address: &str, holder: &str, own: &mut Option<OwnSession>) -> Result<Self, Disconnected> {
        use v1::hello::Session;
        let mut calls = connect(address).await?;
        let session = match own {
            None => Session::Open(v1::OpenSession { holder: holder.into(), ttl_ms: LONG, waits_only: false }),
            Some(own) => Session::Resume(v1::ResumeSession { session: own.session, secret: own.secret.clone() }),
        };
        let (send, batches) = unbounded();
        let hello = v1::Hello { protocol: 1, session: Some(session), ..Default::default() };
        send.unbounded_send(v1::ClientBatch { hello: Some(hello), ..Default::default() }).map_err(|_| Disconnected)?;
        let from = match within(calls.session(batches)).await {
            Ok(from) => from.into_inner(),
            Err(status) => {
                let reply = refused(&status)?;
                panic!("an acknowledged session exists after a crash (L3): {reply:?}")
            }
        };
        let mut transport = Self::Stream(send, Box::new(from), Vec::new());
        let welcome = transport.batch().await?.welcome.expect("the first message is the welcome");
        own.get_or_insert(OwnSession { session: welcome.session, secret: welcome.secret });
        Ok(transport)
    }

    /// Sends all operations at once and passes each reply to `on_reply`. `Waiting` counts as a reply.
    pub async fn call(
        &mut self,
        lowest: u64,
        operations: Vec<(u64, Operation)>,
        mut on_reply: impl FnMut(u64, Reply),
    ) -> Result<(), Disconnected> {
        match self {
            Self::Unary(calls, session) => {
                let mut pending: FuturesUnordered<_> = operations
                    .into_iter()
                    .map(|(sequence, operation)| unary_call(calls.clone(), *session, sequence, operation))
                    .collect();
                while let Some((sequence, reply)) = within(pending.next()).await {
                    on_reply(sequence, reply?);
                }
                Ok(())
            }
            Self::Stream(send, ..) => {
                let mut missing: Vec<u64> = operations.iter().map(|(sequence, _)| *sequence).collect();
                let requests = operations
                    .into_iter()
                    .map(|(sequence, operation)| v1::Request {
                        sequence,
                        operation: Some(operation),
                        alone: None,
                        traceparent: None,
                    })
                    .collect();
                let batch = v1::ClientBatch { lowest_pending: lowest, requests, ..Default::default() };
                send.unbounded_send(batch).map_err(|_| Disconnected)?;
                while !missing.is_empty() {
                    let (sequence, reply) = self.next().await?;
                    missing.retain(|other| *other != sequence);
                    on_reply(sequence, reply);
                }
                Ok(())
            }
        }
    }

    /// The next reply on a stream.
    pub async fn next(&mut self) -> Result<(u64, Reply), Disconnected> {
        loop {
            if let Self::Stream(_, _, ready) = self
                && !ready.is_empty()
            {
                let response = ready.remove(0);
                return match Reply::of(response.answer.expect("a response has an answer")) {
                    Reply::Refused(code, _) if is_shutdown(&code) => Err(Disconnected),
                    reply => Ok((response.sequence, reply)),
                };
            }
            let batch = self.batch().await?;
            let Self::Stream(_, _, ready) = self else { panic!("a stream") };
            ready.extend(batch.responses);
        }
    }

    async fn batch(&mut self) -> Result<v1::ServerBatch, Disconnected> {
        let Self::Stream(_, from, _) = self else { panic!("a stream") };
        match within(from.message()).await {
            Ok(Some(batch)) => Ok(batch),
            Ok(None) | Err(_) => Err(Disconnected),
        }
    }
}

/// One unary call with its idempotency key.
async fn unary_call(
    mut calls: GrpcClient,
    session: u64,
    sequence: u64,
    operation: Operation,
) -> (u64, Result<Reply, Disconnected>) {
    let key = IdempotencyKey { session: session_id(session), sequence }.to_string().parse().expect("plain text");
    let reply = match operation {
        Operation::Acquire(acquire) => {
            let acquire = v1::Acquire { session: Some(session), ..acquire };
            reply(calls.acquire(with_key(acquire, key)).await, |grant| Reply::of(Answer::Granted(grant)))
        }
        Operation::Release(lease) => reply(calls.release(with_key(lease, key)).await, |_| Reply::Done),
        Operation::Renew(renew) => {
            reply(calls.renew(with_key(renew, key)).await, |current| Reply::Current(current.token_number))
        }
        Operation::Check(lease) => {
            reply(calls.check(with_key(lease, key)).await, |current| Reply::Current(current.token_number))
        }
        other => panic!("unexpected operation: {other:?}"),
    };
    (sequence, reply)
}

fn with_key<T>(message: T, key: tonic::metadata::MetadataValue<tonic::metadata::Ascii>) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert(IDEMPOTENCY_KEY, key);
    request
}

/// A reference to a lease by resource and token.
pub fn held(resource: &str, token: &str) -> v1::LeaseRef {
    v1::LeaseRef {
        selector: Some(v1::lease_ref::Selector::Resource(resource.into())),
        token: token.into(),
        ..Default::default()
    }
}
