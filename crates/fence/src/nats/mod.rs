//! The fence in a JetStream log: claims are records of the log, and an append expects the record before it.
//!
//! Expecting a sequence is compare-and-swap and not yet a fence: whoever merely tries again with the sequence it was told
//! walks over its successor. So every record carries the mark as it stands with it, and after a conflict the last record is
//! read and the token admitted against it before anything is tried again.
//!
//! ```no_run
//! # async fn example(cluster: leasehold_core::token::Cluster, token: &str) -> Result<(), Box<dyn std::error::Error>> {
//! # use leasehold_core::name::Name;
//! use leasehold_fence::nats::Log;
//!
//! let jetstream = async_nats::jetstream::new(async_nats::connect("127.0.0.1").await?);
//! let log = Log::open(&jetstream, "SETTLED", "settled.eu", cluster, Name::parse("jobs/settle")?, 0).await?;
//! log.arm().await?; // once for the subject
//!
//! log.claim(token).await?; // a new holder's first act, before it reads; at every subject that it writes to
//! log.append(token, "invoice 7 paid").await?;
//! # Ok(())
//! # }
//! ```

mod durability;
mod operator;
mod record;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_nats::jetstream::Context;
use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{LastRawMessageErrorKind, Stream};
use leasehold_core::name::Name;
use leasehold_core::token::{Cluster, Number};

use crate::fixed::MarkText;
use crate::observer::Watch;
use crate::place::{Passed, Place, Shown};
use crate::{Act, Counters, Error, Lost, Observer, Once, Refusal};
pub use durability::{Durability, durability};
pub use operator::{survey, survey_subject};
use record::Seen;
pub use record::{Kind, MARK, stamp};

/// How long a claim or an append goes on while others append, unless told otherwise.
const PATIENCE: Duration = Duration::from_secs(5);

/// JetStream has nothing that tells one server's log from its copy on another.
const HOME: &str = "0000000000000000000000000000000000000000";

/// The fenced log of one subject in a stream. The subject is the partition: it has a mark of its own.
#[derive(Clone, Debug)]
pub struct Log {
    place: Place,
    jetstream: Context,
    stream: Stream<()>,
    subject: String,
    patience: Duration,
    /// The last record as it was last seen: a guess, which the server compares with every append.
    known: Arc<Mutex<Option<Seen>>>,
    watch: Watch,
}

impl Log {
    /// Guards the appends to a subject under this resource's slot; slot 0 under an exclusive lease. The stream is there
    /// already.
    pub async fn open(
        jetstream: &Context,
        stream: &str,
        subject: &str,
        cluster: Cluster,
        resource: Name<'_>,
        slot: u32,
    ) -> Result<Self, Error> {
        Ok(Self {
            place: Place::new(cluster, resource, slot),
            jetstream: jetstream.clone(),
            stream: jetstream.get_stream_no_info(stream).await.map_err(failed)?,
            subject: subject.to_owned(),
            patience: PATIENCE,
            known: Arc::default(),
            watch: Watch::default(),
        })
    }

    /// How long a claim or an append may go on while others append (F8); 5 s unless set.
    pub const fn patience(mut self, bound: Duration) -> Self {
        self.patience = bound;
        self
    }

    /// Who is told every answer.
    pub fn observed_by(mut self, observer: Arc<dyn Observer>) -> Self {
        self.watch.observer = Some(observer);
        self
    }

    /// What this fence and its clones answered.
    pub fn counters(&self) -> &Counters {
        &self.watch.counters
    }

    /// A new holder's first act, before it reads: appends a claim. It is as durable as the server is.
    pub async fn claim(&self, token: &str) -> Result<Number, Error> {
        let answer = self.put(token, None, Kind::Claim, &[]).await;
        self.tell(Act::Claim, &answer);
        Ok(answer?.0.number)
    }

    /// Appends one record under this token.
    pub async fn append(&self, token: &str, bytes: impl AsRef<[u8]>) -> Result<Number, Error> {
        let answer = self.put(token, None, Kind::Write, bytes.as_ref()).await;
        self.tell(Act::Write, &answer);
        Ok(answer?.0.number)
    }

    /// The same, and appended once however often it is asked under this sequence. Number the appends of a hold upwards, and
    /// have each one answered before the next.
    pub async fn append_once(&self, token: &str, sequence: u64, bytes: impl AsRef<[u8]>) -> Result<Once, Error> {
        let answer = self.put(token, Some(sequence), Kind::Write, bytes.as_ref()).await;
        self.tell(Act::Write, &answer);
        Ok(answer?.1)
    }

    async fn put(&self, token: &str, sequence: Option<u64>, kind: Kind, bytes: &[u8]) -> Result<(Passed, Once), Error> {
        let shown = self.place.read(token)?;
        let began = Instant::now();
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // What is only remembered may let in, because the server compares it, but never refuses, nor says "already".
        let mut seen = match known.filter(|seen| matches!(self.pass(seen, shown, sequence), Ok((_, _, Once::Applied))))
        {
            Some(seen) => seen,
            None => last(&self.stream, &self.subject).await?,
        };
        loop {
            let (mark, passed, once) = self.pass(&seen, shown, sequence)?;
            if matches!(once, Once::AlreadyApplied { .. }) {
                return Ok((passed, once));
            }
            if self.append_after(&seen, kind, &mark.raised(shown, sequence), bytes).await? {
                return Ok((passed, once));
            }
            // Somebody came between. Whether it was a successor, the last record knows.
            seen = last(&self.stream, &self.subject).await?;
            if began.elapsed() > self.patience {
                self.pass(&seen, shown, sequence)?;
                return Err(Error::Blocked { waited: began.elapsed(), by: Vec::new() });
            }
        }
    }

    /// Asks the rule about the log as it was seen.
    fn pass(&self, seen: &Seen, shown: Shown, sequence: Option<u64>) -> Result<(MarkText, Passed, Once), Error> {
        let mark = seen.mark()?;
        let (passed, once) = shown.pass(&mark.standing(&self.place, HOME)?, sequence)?;
        Ok((mark, passed, once))
    }

    /// Appends if this is still the last record. False if it is not.
    async fn append_after(&self, seen: &Seen, kind: Kind, mark: &MarkText, bytes: &[u8]) -> Result<bool, Error> {
        let message = PublishMessage::build()
            .payload(bytes.to_vec().into())
            .headers(record::headers(kind, mark))
            .expected_last_subject_sequence(seen.sequence);
        let sent = self.jetstream.send_publish(self.subject.clone(), message).await;
        let told = match sent {
            Ok(sent) => sent.await,
            Err(error) => Err(error),
        };
        match told {
            Ok(ack) => {
                let now = Seen { sequence: ack.sequence, mark: Some(Some(mark.clone())) };
                *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
                Ok(true)
            }
            Err(error) if error.kind() == PublishErrorKind::WrongLastSequence => Ok(false),
            Err(error) => Err(failed(error)),
        }
    }

    fn tell(&self, act: Act, answer: &Result<(Passed, Once), Error>) {
        let answer = answer.as_ref().map(|(passed, _)| passed);
        self.watch.told(&self.place.name, self.place.guarded.slot, act, answer);
    }
}

/// The last record of a subject, from the stream's leader.
async fn last(stream: &Stream<()>, subject: &str) -> Result<Seen, Error> {
    match stream.get_last_raw_message_by_subject(subject).await {
        Ok(message) => Ok(Seen { sequence: message.sequence, mark: Some(record::mark(&message.headers)) }),
        Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(Seen { sequence: 0, mark: None }),
        Err(error) => Err(failed(error)),
    }
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Storage(Box::new(error))
}

impl Seen {
    /// The mark of a log that was armed.
    fn mark(&self) -> Result<MarkText, Error> {
        match &self.mark {
            None => Err(Refusal::Lost(Lost::Missing).into()),
            // Somebody appended past the fence, and hides the mark.
            Some(None) => Err(Refusal::Lost(Lost::Unreadable).into()),
            Some(Some(mark)) => Ok(mark.clone()),
        }
    }
}
