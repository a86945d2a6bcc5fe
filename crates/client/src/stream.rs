//! The session stream: one for a process, batches both ways. The guard, the recipes and the benches stand on it.

use std::time::{SystemTime, UNIX_EPOCH};

use leasehold_core::command::{Answer, Command, Event};
use leasehold_core::ids::{LeaseId, SessionId};
use leasehold_core::token::Number;
use leasehold_wire::{Code, PROTOCOL, heard, lease_bits, read_event, session_bits, v1};
use tokio::sync::mpsc;
use tonic::Streaming;

use crate::lease::To;
use crate::route::Whom;
use crate::session::Opened;
use crate::{Address, Client, Error};

/// Batches that may lie between the caller and the connection.
const UNSENT: usize = 256;

/// How a client reaches its grantor.
#[derive(Clone, Debug)]
pub(crate) enum Link {
    /// Over the network.
    Wire,
    /// In this process, for tests.
    #[cfg(any(test, feature = "testing"))]
    Memory(std::sync::Arc<crate::testing::Door>),
}

/// The half that asks. Dropping it ends the stream; the session lives on until its deadline.
#[derive(Clone, Debug)]
pub struct Asking(Out);

#[derive(Clone, Debug)]
enum Out {
    Wire(mpsc::Sender<v1::ClientBatch>),
    #[cfg(any(test, feature = "testing"))]
    Memory(std::sync::Arc<crate::testing::Connection>),
}

/// The half that hears.
#[derive(Debug)]
pub struct Hearing {
    from: Option<Address>,
    by: In,
}

#[derive(Debug)]
enum In {
    Wire(Box<Streaming<v1::ServerBatch>>),
    #[cfg(any(test, feature = "testing"))]
    Memory(mpsc::UnboundedReceiver<v1::ServerBatch>),
}

/// Who comes back, and with what.
#[derive(Clone, Copy)]
pub struct Resume {
    /// The session.
    pub session: SessionId,
    /// What it was opened with.
    pub secret: [u8; 32],
}

/// What is sent together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch(v1::ClientBatch);

impl Batch {
    /// A batch of a client that still waits for answers from this sequence on.
    pub fn from(lowest: u64) -> Self {
        Self(v1::ClientBatch { lowest, ..Default::default() })
    }

    /// Adds a request under its sequence. What only a hello can ask is left out, and told.
    pub fn ask(&mut self, sequence: u64, command: &Command<'_>) -> bool {
        let ask = leasehold_wire::ask(command);
        let known = ask.is_some();
        if known {
            self.0.requests.push(v1::Request { sequence, ask });
        }
        known
    }

    /// The client waits for answers from this sequence on.
    pub(crate) fn lowest(&mut self, lowest: u64) {
        self.0.lowest = lowest;
    }

    pub(crate) fn push(&mut self, request: v1::Request) {
        self.0.requests.push(request);
    }

    /// Adds renewals, answered together under one sequence.
    pub fn renew(&mut self, sequence: u64, leases: impl IntoIterator<Item = (LeaseId, Number)>) {
        let (leases, numbers) = leases.into_iter().map(|(lease, number)| (lease_bits(lease), number.get())).unzip();
        self.0.renewals.push(v1::RenewBatch { sequence, leases, numbers });
    }

    /// Whether nothing is asked.
    pub fn is_empty(&self) -> bool {
        self.0.requests.is_empty() && self.0.renewals.is_empty()
    }
}

/// What was heard together.
#[derive(Debug, Default)]
pub struct Heard {
    /// Answers under their sequences.
    pub answers: Vec<(u64, Result<Answer, Error>)>,
    /// What became of renewals, batch by batch.
    pub renewed: Vec<RenewedBatch>,
    /// What happened to this session.
    pub events: Vec<Event>,
}

/// What became of the renewals of one batch, in its order.
#[derive(Clone, Debug)]
pub struct RenewedBatch {
    /// The sequence it was asked under.
    pub sequence: u64,
    /// How long each lives; zero for those with more to tell.
    pub remaining_ms: Vec<u64>,
    /// Those with more to tell, by their place in the batch.
    pub others: Vec<(usize, Result<Answer, Error>)>,
}

impl Client {
    /// Opens a session on a stream of its own, or comes back to one.
    pub async fn stream(
        &self,
        holder: &str,
        ttl_ms: u64,
        resume: Option<&Resume>,
    ) -> Result<(Opened, Asking, Hearing), Error> {
        self.stream_with(Whom::Anybody, holder, ttl_ms, resume).await
    }

    /// The same, of a server among these.
    pub(crate) async fn stream_with(
        &self,
        whom: Whom,
        holder: &str,
        ttl_ms: u64,
        resume: Option<&Resume>,
    ) -> Result<(Opened, Asking, Hearing), Error> {
        let how = match resume {
            Some(resume) => v1::hello::How::Resume(v1::ResumeSession {
                session: session_bits(resume.session),
                secret: resume.secret.to_vec(),
            }),
            None => v1::hello::How::Open(v1::OpenSession { holder: holder.into(), ttl_ms, waits_only: false }),
        };
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        #[cfg(any(test, feature = "testing"))]
        if let Link::Memory(door) = &self.shared.link {
            let (welcome, connection, hearing) = door.open(how)?;
            let hearing = Hearing { from: None, by: In::Memory(hearing) };
            return Ok((Opened::of(welcome), Asking(Out::Memory(connection)), hearing));
        }
        let hello = v1::Hello {
            protocol: PROTOCOL,
            how: Some(how),
            client: concat!("leasehold-rust/", env!("CARGO_PKG_VERSION")).into(),
            wall_ms: wall,
            shown: self.seen().map_or_else(String::new, |token| token.to_string()),
            must_understand: Vec::new(),
        };
        let send = |mut to: To, hello: tonic::Request<v1::Hello>| async move {
            let (out, outgoing) = mpsc::channel(UNSENT);
            let (metadata, extensions, hello) = hello.into_parts();
            let first = v1::ClientBatch { hello: Some(hello), ..Default::default() };
            out.try_send(first).expect("a fresh channel has room");
            let outgoing = futures::stream::unfold(outgoing, |mut outgoing| async move {
                outgoing.recv().await.map(|batch| (batch, outgoing))
            });
            let request = tonic::Request::from_parts(metadata, extensions, outgoing);
            let mut hearing = to.session(request).await?.into_inner();
            // A server that cannot decide takes the stream, and says nothing on it.
            let first = hearing.message().await?;
            Ok(tonic::Response::new((out, hearing, first)))
        };
        let (from, (out, hearing, first)) = self.greet(whom, hello, send).await?;
        match first {
            Some(v1::ServerBatch { welcome: Some(welcome), .. }) => {
                let hearing = Hearing { from: Some(from), by: In::Wire(Box::new(hearing)) };
                Ok((Opened::of(welcome), Asking(Out::Wire(out)), hearing))
            }
            _ => Err(Error::unavailable("the stream ended before its welcome".to_owned())),
        }
    }
}

impl Asking {
    /// Sends a batch. An error means that the stream is over: what was asked on it may have happened.
    pub async fn send(&self, batch: Batch) -> Result<(), Error> {
        let over = || Error::unavailable("the stream is over; come back to the session".to_owned());
        match &self.0 {
            Out::Wire(out) => out.send(batch.0).await.map_err(|_| over()),
            #[cfg(any(test, feature = "testing"))]
            Out::Memory(connection) => connection.take(batch.0),
        }
    }

    /// Whether a batch can be sent without waiting.
    pub(crate) fn has_room(&self) -> bool {
        match &self.0 {
            Out::Wire(out) => out.capacity() > 0,
            #[cfg(any(test, feature = "testing"))]
            Out::Memory(_) => true,
        }
    }
}

impl Hearing {
    /// Whose words these are, if they came over the network.
    pub(crate) const fn from(&self) -> Option<&Address> {
        self.from.as_ref()
    }

    /// The next batch. An error means that the stream is over: what was asked on it may have happened.
    pub async fn next(&mut self) -> Result<Heard, Error> {
        let message = match &mut self.by {
            In::Wire(hearing) => hearing.message().await,
            #[cfg(any(test, feature = "testing"))]
            In::Memory(hearing) => Ok(hearing.recv().await),
        };
        let batch = match message {
            Ok(Some(batch)) => batch,
            Ok(None) => return Err(Error::unavailable("the server ended the stream".to_owned())),
            Err(status) => return Err(Error::from(leasehold_wire::from_status(&status))),
        };
        if let Some(goodbye) = batch.goodbye {
            return Err(Error::from(goodbye));
        }
        let answers = batch.responses.iter().map(|response| (response.sequence, hear(response.answer.as_ref())));
        Ok(Heard {
            answers: answers.collect(),
            renewed: batch.renewed.into_iter().map(renewed).collect(),
            // An event of a later version says nothing to this one.
            events: batch.events.iter().filter_map(|event| read_event(event).ok()).collect(),
        })
    }
}

fn hear(told: Option<&v1::response::Answer>) -> Result<Answer, Error> {
    let unknown =
        || Error::from(v1::Problem::of(Code::UnsupportedVersion, "an answer this client does not know; update it"));
    match heard(told.ok_or_else(unknown)?) {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(problem)) => Err(Error::from(*problem)),
        Err(_) => Err(unknown()),
    }
}

fn renewed(batch: v1::Renewed) -> RenewedBatch {
    use v1::renewed_other::Outcome;
    let others = batch.others.into_iter().map(|other| {
        let told = match other.outcome {
            Some(Outcome::Current(current)) => hear(Some(&v1::response::Answer::Current(current))),
            Some(Outcome::Refused(refused)) => Err(Error::from(refused.problem())),
            None => hear(None),
        };
        (other.index as usize, told)
    });
    RenewedBatch { sequence: batch.sequence, others: others.collect(), remaining_ms: batch.remaining_ms }
}
