//! How a client reaches a server: over single calls or over the session stream, with the same request ids.

use std::time::Duration;

use futures::channel::mpsc::{UnboundedSender, unbounded};
use futures::stream::{FuturesUnordered, StreamExt};
use leasehold_wire::headers::{IDEMPOTENCY_KEY, Key};
use leasehold_wire::v1::leasehold_client::LeaseholdClient;
use leasehold_wire::v1::request::Ask;
use leasehold_wire::v1::response::Answer;
use leasehold_wire::{METADATA_CODE, from_status, session_id, v1};
use tokio::time::timeout;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};

/// Nothing that goes well takes as long.
const PATIENCE: Duration = Duration::from_secs(60);

/// Single calls.
pub type Calls = LeaseholdClient<Channel>;

/// The connection is gone, and what was asked last may have happened or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

/// The answer to a request, as far as promises speak of it.
#[derive(Clone, Debug, PartialEq)]
pub enum Told {
    /// The lease is held.
    Granted(Box<v1::Grant>),
    /// The lease is current under this number.
    Current(u64),
    /// The wait has begun.
    Waiting,
    /// It is done.
    Done,
    /// No, by this code and reason.
    Refused(String, String),
}

impl Told {
    fn of(answer: Answer) -> Self {
        match answer {
            Answer::Granted(grant) => Self::Granted(Box::new(grant)),
            Answer::Current(current) => Self::Current(current.token_number),
            Answer::Waiting(_) => Self::Waiting,
            Answer::Done(_) | Answer::Session(_) => Self::Done,
            Answer::Refused(problem) => Self::Refused(problem.code, problem.reason),
            other => panic!("nobody asked for {other:?}"),
        }
    }

    /// A refusal by its code and reason.
    pub fn refused(code: &str, reason: &str) -> Self {
        Self::Refused(code.into(), reason.into())
    }
}

/// What a call was told; a status that no grantor spoke is a broken connection.
pub fn told<T>(result: Result<tonic::Response<T>, Status>, of: impl FnOnce(T) -> Told) -> Result<Told, Gone> {
    match result {
        Ok(response) => Ok(of(response.into_inner())),
        Err(status) => refused(&status),
    }
}

/// A refusal is an answer; an unknown outcome is none (X3), and a server that stops sends everybody to the next one.
fn refused(status: &Status) -> Result<Told, Gone> {
    let problem = from_status(status);
    if !status.metadata().contains_key(METADATA_CODE) || is_leaving(&problem.code) {
        return Err(Gone);
    }
    Ok(Told::Refused(problem.code, problem.reason))
}

/// Whether a server says that it will not answer any more.
fn is_leaving(code: &str) -> bool {
    matches!(code, "INDETERMINATE" | "UNAVAILABLE" | "NOT_LEADER")
}

/// Connects.
pub async fn connect(address: &str) -> Result<Calls, Gone> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
    let channel = within(endpoint.connect_timeout(Duration::from_secs(20)).connect()).await.map_err(|_| Gone)?;
    Ok(LeaseholdClient::new(channel))
}

/// Every answer comes, or the connection breaks (X1).
pub async fn within<T>(what: impl Future<Output = T>) -> T {
    timeout(PATIENCE, what).await.expect("an answer, or a broken connection")
}

/// A session and its secret, as the welcome told.
#[derive(Clone, Debug)]
pub struct Own {
    /// The session.
    pub session: u64,
    /// What it is resumed by.
    pub secret: Vec<u8>,
}

/// One client's connection.
pub enum Link {
    /// Single calls, each with its key.
    Calls(Calls, u64),
    /// The stream of a session.
    Stream(UnboundedSender<v1::ClientBatch>, Box<Streaming<v1::ServerBatch>>, Vec<v1::Response>),
}

/// How long sessions and their leases live: longer than any run.
pub const LONG: u64 = 600_000;

impl Link {
    /// Opens a session, or comes back to the one there is, with single calls.
    pub async fn calls(address: &str, holder: &str, own: &mut Option<Own>) -> Result<Self, Gone> {
        let mut calls = connect(address).await?;
        if let Some(own) = own {
            let renew = v1::RenewSession { session: Some(own.session), known: None };
            let told = told(within(calls.renew_session(renew)).await, |_| Told::Done)?;
            assert_eq!(told, Told::Done, "an acked session is there after a crash (L3)");
            return Ok(Self::Calls(calls, own.session));
        }
        let open = v1::OpenSession { holder: holder.into(), ttl_ms: LONG, waits_only: false };
        let welcome = within(calls.open(open)).await.map_err(|_| Gone)?.into_inner();
        *own = Some(Own { session: welcome.session, secret: welcome.secret });
        Ok(Self::Calls(calls, welcome.session))
    }

    /// Opens a session, or comes back to the one there is, on a stream.
    pub async fn stream(address: &str, holder: &str, own: &mut Option<Own>) -> Result<Self, Gone> {
        use v1::hello::How;
        let mut calls = connect(address).await?;
        let how = match own {
            None => How::Open(v1::OpenSession { holder: holder.into(), ttl_ms: LONG, waits_only: false }),
            Some(own) => How::Resume(v1::ResumeSession { session: own.session, secret: own.secret.clone() }),
        };
        let (send, batches) = unbounded();
        let hello = v1::Hello { protocol: 1, how: Some(how), ..Default::default() };
        send.unbounded_send(v1::ClientBatch { hello: Some(hello), ..Default::default() }).map_err(|_| Gone)?;
        let from = match within(calls.session(batches)).await {
            Ok(from) => from.into_inner(),
            Err(status) => {
                let told = refused(&status)?;
                panic!("an acked session is there after a crash (L3): {told:?}")
            }
        };
        let mut link = Self::Stream(send, Box::new(from), Vec::new());
        let welcome = link.batch().await?.welcome.expect("the first message is the welcome");
        own.get_or_insert(Own { session: welcome.session, secret: welcome.secret });
        Ok(link)
    }

    /// Asks everything at once and tells each answer as it comes. Beginnings of waits are answers here.
    pub async fn ask(
        &mut self,
        lowest: u64,
        asks: Vec<(u64, Ask)>,
        mut heard: impl FnMut(u64, Told),
    ) -> Result<(), Gone> {
        match self {
            Self::Calls(calls, session) => {
                let mut pending: FuturesUnordered<_> =
                    asks.into_iter().map(|(sequence, ask)| one(calls.clone(), *session, sequence, ask)).collect();
                while let Some((sequence, told)) = within(pending.next()).await {
                    heard(sequence, told?);
                }
                Ok(())
            }
            Self::Stream(send, ..) => {
                let mut missing: Vec<u64> = asks.iter().map(|(sequence, _)| *sequence).collect();
                let requests =
                    asks.into_iter().map(|(sequence, ask)| v1::Request { sequence, ask: Some(ask) }).collect();
                let batch = v1::ClientBatch { lowest, requests, ..Default::default() };
                send.unbounded_send(batch).map_err(|_| Gone)?;
                while !missing.is_empty() {
                    let (sequence, told) = self.next().await?;
                    missing.retain(|other| *other != sequence);
                    heard(sequence, told);
                }
                Ok(())
            }
        }
    }

    /// The next answer on a stream.
    pub async fn next(&mut self) -> Result<(u64, Told), Gone> {
        loop {
            if let Self::Stream(_, _, ready) = self
                && !ready.is_empty()
            {
                let response = ready.remove(0);
                return match Told::of(response.answer.expect("an answer says something")) {
                    Told::Refused(code, _) if is_leaving(&code) => Err(Gone),
                    told => Ok((response.sequence, told)),
                };
            }
            let batch = self.batch().await?;
            let Self::Stream(_, _, ready) = self else { panic!("a stream") };
            ready.extend(batch.responses);
        }
    }

    async fn batch(&mut self) -> Result<v1::ServerBatch, Gone> {
        let Self::Stream(_, from, _) = self else { panic!("a stream") };
        match within(from.message()).await {
            Ok(Some(batch)) => Ok(batch),
            Ok(None) | Err(_) => Err(Gone),
        }
    }
}

/// One single call under its key.
async fn one(mut calls: Calls, session: u64, sequence: u64, ask: Ask) -> (u64, Result<Told, Gone>) {
    let key = Key { session: session_id(session), sequence }.to_string().parse().expect("plain text");
    let told = match ask {
        Ask::Acquire(ask) => {
            let ask = v1::Acquire { session: Some(session), ..ask };
            told(calls.acquire(marked(ask, key)).await, |grant| Told::of(Answer::Granted(grant)))
        }
        Ask::Release(ask) => told(calls.release(marked(ask, key)).await, |_| Told::Done),
        Ask::Renew(ask) => told(calls.renew(marked(ask, key)).await, |current| Told::Current(current.token_number)),
        Ask::Confirm(ask) => told(calls.confirm(marked(ask, key)).await, |current| Told::Current(current.token_number)),
        other => panic!("nobody asks {other:?} here"),
    };
    (sequence, told)
}

fn marked<T>(ask: T, key: tonic::metadata::MetadataValue<tonic::metadata::Ascii>) -> Request<T> {
    let mut request = Request::new(ask);
    request.metadata_mut().insert(IDEMPOTENCY_KEY, key);
    request
}

/// A lease as its holder names it.
pub fn held(resource: &str, token: &str) -> v1::Held {
    v1::Held { which: Some(v1::held::Which::Resource(resource.into())), token: token.into(), ..Default::default() }
}
