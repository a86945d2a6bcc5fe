//! The session stream: batches in both directions on one connection. Low-level; guards and recipes are built on it.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use leasehold_core::command::{Answer, Command, SessionEvent};
use leasehold_core::ids::{LeaseId, SessionId};
use leasehold_core::secret::SessionSecret;
use leasehold_core::token::{Number, SEALED_TOKEN_BYTES};
use leasehold_wire::{Code, PROTOCOL, decode_answer, decode_event, lease_bits, session_bits, v1};
use tokio::sync::mpsc;
use tonic::Streaming;

use crate::failover::Candidates;
#[cfg(any(test, feature = "testing"))]
use crate::in_memory::MemoryConnection;
use crate::server_pool::{GrpcClient, ServerPool};
#[cfg(any(test, feature = "testing"))]
use crate::transport::Transport;
use crate::{Address, Error, FencingToken, OpenedSession, StampedToken};

/// Capacity of the queue between the caller and the connection, in batches.
const SEND_QUEUE: usize = 256;

/// Sending half of a session stream. Dropping it ends the stream; the session lives on until its deadline.
#[derive(Clone, Debug)]
pub struct SessionSender(SenderTransport);

#[derive(Clone, Debug)]
enum SenderTransport {
    Network(mpsc::Sender<v1::ClientBatch>),
    #[cfg(any(test, feature = "testing"))]
    Memory(MemoryConnection),
}

/// Receiving half of a session stream.
#[derive(Debug)]
pub struct SessionReceiver {
    server: Option<Address>,
    transport: ReceiverTransport,
}

#[derive(Debug)]
enum ReceiverTransport {
    Network(Box<Streaming<v1::ServerBatch>>),
    #[cfg(any(test, feature = "testing"))]
    Memory(mpsc::UnboundedReceiver<v1::ServerBatch>),
}

/// Id and secret of a session, to resume it with.
#[derive(Clone)]
pub struct SessionResume {
    /// Id of the session.
    pub session: SessionId,
    /// Secret from the opening of the session.
    pub secret: SessionSecret,
}

/// Omits the secret.
impl fmt::Debug for SessionResume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionResume").field("session", &self.session).finish_non_exhaustive()
    }
}

/// A batch of requests and renewals.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OutgoingBatch(v1::ClientBatch);

impl OutgoingBatch {
    /// An empty batch. `lowest_pending` is the lowest sequence number whose reply the client still waits for.
    pub fn new(lowest_pending: u64) -> Self {
        Self(v1::ClientBatch { lowest_pending, ..Default::default() })
    }

    /// Adds a request under its sequence number. Returns false, and adds nothing, for a command that only a hello can carry.
    pub fn push_command(&mut self, sequence: u64, command: &Command<'_>) -> bool {
        let operation = leasehold_wire::encode_command(command);
        let supported = operation.is_some();
        if supported {
            self.push(v1::Request { sequence, operation, alone: None, traceparent: None });
        }
        supported
    }

    pub(crate) fn set_lowest(&mut self, lowest_pending: u64) {
        self.0.lowest_pending = lowest_pending;
    }

    pub(crate) fn push(&mut self, request: v1::Request) {
        self.0.requests.push(request);
    }

    /// Adds renewals, which are answered together under one sequence number.
    pub fn renew(&mut self, sequence: u64, leases: impl IntoIterator<Item = (LeaseId, Number)>) {
        let (leases, token_numbers) =
            leases.into_iter().map(|(lease, number)| (lease_bits(lease), number.get())).unzip();
        self.0.renewals.push(v1::RenewBatch { sequence, leases, token_numbers });
    }

    /// Whether the batch contains no request and no renewal.
    pub fn is_empty(&self) -> bool {
        self.0.requests.is_empty() && self.0.renewals.is_empty()
    }
}

/// A batch of replies and events.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct IncomingBatch {
    /// Replies with their sequence numbers.
    pub replies: Vec<(u64, Result<Answer, Error>)>,
    /// Results of renewal batches.
    pub renewals: Vec<RenewalResults>,
    /// Events of the session.
    pub events: Vec<SessionEvent>,
    /// Sealed texts of the tokens in the replies, by their numbers.
    pub sealed: Vec<FencingToken>,
    /// Stamped texts of the tokens in the replies.
    pub stamped: Vec<StampedToken>,
}

/// Results of one batch of renewals, in its order.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RenewalResults {
    /// Sequence number of the batch.
    pub sequence: u64,
    /// Remaining time of each lease; zero for those in `details`.
    pub remaining_ms: Vec<u64>,
    /// Leases with more than a remaining time, by their index in the batch.
    pub details: Vec<(usize, Result<Answer, Error>)>,
}

impl ServerPool {
    /// Opens a session on a stream to one of the candidates, or resumes it.
    pub(crate) async fn open_stream(
        &self,
        candidates: Candidates,
        holder: &str,
        ttl_ms: u64,
        resume: Option<&SessionResume>,
    ) -> Result<(OpenedSession, SessionSender, SessionReceiver), Error> {
        let session = match resume {
            Some(resume) => v1::hello::Session::Resume(v1::ResumeSession {
                session: session_bits(resume.session),
                secret: resume.secret.expose().to_vec(),
            }),
            None => v1::hello::Session::Open(v1::OpenSession { holder: holder.into(), ttl_ms, waits_only: false }),
        };
        #[cfg(any(test, feature = "testing"))]
        if let Transport::Memory(link) = self.transport() {
            let (welcome, connection, receiver) = link.open(session)?;
            let receiver = SessionReceiver { server: None, transport: ReceiverTransport::Memory(receiver) };
            return Ok((OpenedSession::new(welcome), SessionSender(SenderTransport::Memory(connection)), receiver));
        }
        let highest = self.highest_token();
        let hello = v1::Hello {
            protocol: PROTOCOL,
            session: Some(session),
            client: concat!("leasehold-rust/", env!("CARGO_PKG_VERSION")).into(),
            wall_ms: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64),
            highest_token: highest.as_ref().map_or_else(String::new, |highest| highest.token.to_string()),
            highest_token_resource: highest.map_or_else(String::new, |highest| highest.resource.into()),
            required_features: Vec::new(),
        };
        let send = |mut client: GrpcClient, hello: tonic::Request<v1::Hello>| async move {
            let (sender, outgoing) = mpsc::channel(SEND_QUEUE);
            let (metadata, extensions, hello) = hello.into_parts();
            let first = v1::ClientBatch { hello: Some(hello), ..Default::default() };
            sender.try_send(first).expect("a new channel has capacity");
            let outgoing = futures::stream::unfold(outgoing, |mut outgoing| async move {
                outgoing.recv().await.map(|batch| (batch, outgoing))
            });
            let request = tonic::Request::from_parts(metadata, extensions, outgoing);
            let mut receiver = client.session(request).await?.into_inner();
            // A server that is not the leader accepts the stream and sends nothing.
            let first = receiver.message().await?;
            Ok(tonic::Response::new((sender, receiver, first)))
        };
        let (server, (sender, receiver, first)) = self.send_hello(candidates, hello, send).await?;
        match first {
            Some(v1::ServerBatch { welcome: Some(welcome), .. }) => {
                let transport = ReceiverTransport::Network(Box::new(receiver));
                let receiver = SessionReceiver { server: Some(server), transport };
                Ok((OpenedSession::new(welcome), SessionSender(SenderTransport::Network(sender)), receiver))
            }
            _ => Err(Error::unavailable("the stream ended before its welcome")),
        }
    }
}

impl SessionSender {
    /// Sends a batch. An error means that the stream has ended; requests without a reply may have been executed.
    pub async fn send(&self, batch: OutgoingBatch) -> Result<(), Error> {
        match &self.0 {
            SenderTransport::Network(sender) => sender.send(batch.0).await.map_err(|_| {
                Error::unavailable("the session stream has ended").with_next_step("Reconnect and resume the session.")
            }),
            #[cfg(any(test, feature = "testing"))]
            SenderTransport::Memory(connection) => connection.send(batch.0),
        }
    }

    /// Whether a batch can be sent without waiting.
    pub(crate) fn has_capacity(&self) -> bool {
        match &self.0 {
            SenderTransport::Network(sender) => sender.capacity() > 0,
            #[cfg(any(test, feature = "testing"))]
            SenderTransport::Memory(_) => true,
        }
    }
}

impl SessionReceiver {
    /// The server at the other end; none for a grantor in this process.
    pub(crate) const fn server(&self) -> Option<&Address> {
        self.server.as_ref()
    }

    /// Receives the next batch. An error means that the stream has ended; requests without a reply may have been executed.
    /// Cancel-safe.
    pub async fn recv(&mut self) -> Result<IncomingBatch, Error> {
        let message = match &mut self.transport {
            ReceiverTransport::Network(receiver) => receiver.message().await,
            #[cfg(any(test, feature = "testing"))]
            ReceiverTransport::Memory(receiver) => Ok(receiver.recv().await),
        };
        let batch = match message {
            Ok(Some(batch)) => batch,
            Ok(None) => return Err(Error::unavailable("the server ended the stream")),
            Err(status) => return Err(Error::from(leasehold_wire::problem_from_status(&status))),
        };
        if let Some(problem) = batch.close {
            return Err(Error::from(problem));
        }
        let replies = batch.responses.iter().map(|response| (response.sequence, decode(response.answer.as_ref())));
        let sealed = batch.responses.iter().flat_map(|response| sealed_texts(response.answer.as_ref()));
        let stamped = batch.responses.iter().flat_map(|response| stamped_texts(response.answer.as_ref()));
        Ok(IncomingBatch {
            stamped: stamped.filter_map(|text| StampedToken::decode(text).ok()).collect(),
            sealed: sealed.filter_map(|text| FencingToken::parse(text).ok()).collect(),
            replies: replies.collect(),
            renewals: batch.renewals.into_iter().map(decode_renewals).collect(),
            // Events of a later version are skipped.
            events: batch.events.iter().filter_map(|event| decode_event(event).ok()).collect(),
        })
    }
}

/// The sealed token texts of an answer.
fn sealed_texts(answer: Option<&v1::response::Answer>) -> impl Iterator<Item = &str> {
    use v1::delivery_answer::Answer::Received;
    use v1::response::Answer as Wire;
    let texts: Vec<&str> = match answer {
        Some(Wire::Granted(grant)) => vec![&grant.token],
        Some(Wire::GrantedAll(all)) => all.grants.iter().map(|grant| grant.token.as_str()).collect(),
        Some(Wire::Current(current)) => vec![&current.token],
        Some(Wire::Delivery(v1::DeliveryAnswer { answer: Some(Received(received)) })) => {
            received.deliveries.iter().map(|one| one.token.as_str()).collect()
        }
        _ => Vec::new(),
    };
    texts.into_iter().filter(|text| text.len() == SEALED_TOKEN_BYTES)
}

/// The stamped token texts of an answer.
fn stamped_texts(answer: Option<&v1::response::Answer>) -> Vec<&v1::StampedToken> {
    use v1::response::Answer as Wire;
    match answer {
        Some(Wire::Granted(grant)) => grant.stamped_tokens.iter().collect(),
        Some(Wire::GrantedAll(all)) => all.grants.iter().flat_map(|grant| &grant.stamped_tokens).collect(),
        Some(Wire::Current(current)) => current.stamped_tokens.iter().collect(),
        _ => Vec::new(),
    }
}

fn decode(answer: Option<&v1::response::Answer>) -> Result<Answer, Error> {
    let unknown =
        || Error::new(Code::UnsupportedVersion, "the reply is of a kind that this client does not know; update it");
    match decode_answer(answer.ok_or_else(unknown)?) {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(problem)) => Err(Error::from(*problem)),
        Err(_) => Err(unknown()),
    }
}

fn decode_renewals(results: v1::RenewBatchResult) -> RenewalResults {
    use v1::renew_detail::Outcome;
    let details = results.details.into_iter().map(|detail| {
        let reply = match detail.outcome {
            Some(Outcome::Current(current)) => decode(Some(&v1::response::Answer::Current(current))),
            Some(Outcome::Refused(refused)) => Err(Error::from(refused.problem())),
            None => decode(None),
        };
        (detail.index as usize, reply)
    });
    RenewalResults { sequence: results.sequence, details: details.collect(), remaining_ms: results.remaining_ms }
}
