//! A fence for a subject of a JetStream stream. Claims are records, and every append expects the record before it.
//!
//! An expected sequence alone is compare-and-swap and not a fence: a writer that simply retries with the new sequence overtakes
//! its successor. Therefore every record contains the mark, and after a conflict the fence reads the last record and checks the
//! token again before it retries.
//!
//! ```no_run
//! # async fn example(cluster: leasehold_fence::Cluster, token: &str) -> Result<(), Box<dyn std::error::Error>> {
//! use leasehold_fence::FenceId;
//! use leasehold_fence::nats::Fence;
//!
//! let jetstream = async_nats::jetstream::new(async_nats::connect("127.0.0.1").await?);
//! let id = FenceId::new(cluster, "jobs/settle")?;
//! let fence = Fence::open(&jetstream, "SETTLED", "settled.eu", &id).await?;
//! fence.arm().await?; // once for the subject
//!
//! fence.claim(token).await?; // before the first read, for every subject that the holder writes
//! fence.append(token, "invoice 7 paid").await?;
//! # Ok(())
//! # }
//! ```

mod durability;
mod operator;
mod record_headers;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_nats::jetstream::Context;
use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{LastRawMessageErrorKind, RetentionPolicy, Stream};
use leasehold_core::token::Number;

use crate::admission::{Admission, PresentedToken};
use crate::mark_fixed_text::FixedMark;
use crate::observer::EventSink;
use crate::{ApplyOnce, Counters, Error, FenceId, FenceRefusal, MarkLoss, Observer, Operation};
pub use durability::{Durability, durability};
pub use operator::{list_marks, subject_mark};
use record_headers::LastRecord;
pub use record_headers::{MARK_HEADER, RecordKind, stamp};

/// Default of [`Fence::with_claim_timeout`].
const CLAIM_TIMEOUT: Duration = Duration::from_secs(5);

/// How long an appended record is assumed to be the last one. A stream that is deleted and restored reuses its sequences, so that
/// an old sequence can be that of another record.
const CACHE_TIME: Duration = Duration::from_secs(1);

/// JetStream has no id that distinguishes a stream from its copy on another server.
const SERVER_ID: &str = "0000000000000000000000000000000000000000";

/// A fence for one subject of a stream. Each subject has its own mark.
#[derive(Clone, Debug)]
pub struct Fence {
    id: FenceId,
    jetstream: Context,
    stream: Stream<()>,
    subject: String,
    claim_timeout: Duration,
    stream_name: String,
    /// The last record that this fence appended, and when. It may be outdated: the server compares its sequence at every append.
    cached: Arc<Mutex<Option<(LastRecord, Instant)>>>,
    events: EventSink,
}

impl Fence {
    /// Opens a fence for a subject of an existing stream, without wildcards. The slot of an exclusive lease is 0.
    pub async fn open(jetstream: &Context, stream: &str, subject: &str, id: &FenceId) -> Result<Self, Error> {
        let is_plain = |part: &str| !matches!(part, "" | "*" | ">") && !part.contains(|c: char| c.is_whitespace());
        if !subject.split('.').all(is_plain) {
            return Err(Error::InvalidArgument("a fence guards one subject; pass it without wildcards and spaces"));
        }
        Ok(Self {
            id: id.clone(),
            jetstream: jetstream.clone(),
            stream: jetstream.get_stream_no_info(stream).await.map_err(storage_error)?,
            subject: subject.to_owned(),
            stream_name: stream.to_owned(),
            claim_timeout: CLAIM_TIMEOUT,
            cached: Arc::default(),
            events: EventSink::default(),
        })
    }

    /// How long a claim or an append retries while other writers append (F8). Default: 5 s.
    pub const fn with_claim_timeout(mut self, timeout: Duration) -> Self {
        self.claim_timeout = timeout;
        self
    }

    /// Sets the observer that receives every decision.
    pub fn with_observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.events.observer = Some(observer);
        self
    }

    /// Counters of the decisions of this fence and its clones.
    pub fn counters(&self) -> &Counters {
        &self.events.counters
    }

    /// Appends a claim, which raises the mark. A new holder calls this before it reads. See [`Durability`]. Fails if the stream
    /// removes records that its consumers acknowledge.
    pub async fn claim(&self, token: impl AsRef<str>) -> Result<Number, Error> {
        let result = match self.ensure_records_stay().await {
            Ok(()) => self.publish(token.as_ref(), None, RecordKind::Claim, &[]).await,
            Err(error) => Err(error),
        };
        self.record(Operation::Claim, &result);
        Ok(result?.0.number)
    }

    /// Appends one record under this token.
    pub async fn append(&self, token: impl AsRef<str>, bytes: impl AsRef<[u8]>) -> Result<Number, Error> {
        let result = self.publish(token.as_ref(), None, RecordKind::Write, bytes.as_ref()).await;
        self.record(Operation::Write, &result);
        Ok(result?.0.number)
    }

    /// Like [`append`](Self::append), with a sequence that the holder counts upward: a duplicate is not appended. Wait for the
    /// reply to each append before the next one.
    pub async fn append_once(
        &self,
        token: impl AsRef<str>,
        sequence: u64,
        bytes: impl AsRef<[u8]>,
    ) -> Result<ApplyOnce, Error> {
        let result = self.publish(token.as_ref(), Some(sequence), RecordKind::Write, bytes.as_ref()).await;
        self.record(Operation::Write, &result);
        Ok(result?.1)
    }

    /// The mark is in the last record. If consumers can remove it, the mark is lost, or an earlier record and its lower mark count.
    async fn ensure_records_stay(&self) -> Result<(), Error> {
        let actual = match self.stream.get_info().await.map_err(storage_error)?.config.retention {
            RetentionPolicy::Limits => return Ok(()),
            RetentionPolicy::Interest => "interest",
            RetentionPolicy::WorkQueue => "workqueue",
        };
        Err(Error::NotDurable { setting: "retention", actual: actual.to_owned(), required: "limits" })
    }

    async fn publish(
        &self,
        token: &str,
        sequence: Option<u64>,
        kind: RecordKind,
        bytes: &[u8],
    ) -> Result<(Admission, ApplyOnce), Error> {
        let presented = self.id.parse_token(token)?;
        let began = Instant::now();
        let cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let cached = cached.filter(|(_, at)| at.elapsed() < CACHE_TIME).map(|(last, _)| last);
        // The cached record can admit a token, because the server compares its sequence. It never rejects a token or detects
        // a duplicate.
        let mut last = match cached
            .filter(|last| matches!(self.check(last, presented, sequence), Ok((_, _, ApplyOnce::Applied))))
        {
            Some(last) => last,
            None => last_record(&self.stream, &self.subject).await?,
        };
        loop {
            let (mark, admission, once) = self.check(&last, presented, sequence)?;
            if matches!(once, ApplyOnce::AlreadyApplied { .. }) {
                return Ok((admission, once));
            }
            if self.append_after(&last, kind, &mark.raised(presented, sequence), bytes).await? {
                return Ok((admission, once));
            }
            // Another writer appended. The last record shows whether it is a successor.
            last = last_record(&self.stream, &self.subject).await?;
            if began.elapsed() > self.claim_timeout {
                self.check(&last, presented, sequence)?;
                return Err(Error::Blocked { waited: began.elapsed(), blockers: Vec::new() });
            }
        }
    }

    /// Checks the token against a record.
    fn check(
        &self,
        last: &LastRecord,
        presented: PresentedToken,
        sequence: Option<u64>,
    ) -> Result<(FixedMark, Admission, ApplyOnce), Error> {
        let mark = last.mark()?;
        let (admission, once) = presented.admit(&mark.stored_mark(&self.id, SERVER_ID)?, sequence)?;
        Ok((mark, admission, once))
    }

    /// Appends after `last`; false if it is no longer the last record.
    async fn append_after(
        &self,
        last: &LastRecord,
        kind: RecordKind,
        mark: &FixedMark,
        bytes: &[u8],
    ) -> Result<bool, Error> {
        let message = PublishMessage::build()
            .payload(bytes.to_vec().into())
            .headers(record_headers::headers(kind, mark))
            .expected_stream(self.stream_name.clone())
            .expected_last_subject_sequence(last.sequence);
        let sent = self.jetstream.send_publish(self.subject.clone(), message).await;
        let reply = match sent {
            Ok(sent) => sent.await,
            Err(error) => Err(error),
        };
        match reply {
            Ok(ack) => {
                let now = LastRecord { sequence: ack.sequence, mark: Some(Some(mark.clone())) };
                *self.cached.lock().unwrap_or_else(PoisonError::into_inner) = Some((now, Instant::now()));
                Ok(true)
            }
            Err(error) if error.kind() == PublishErrorKind::WrongLastSequence => Ok(false),
            Err(error) => Err(storage_error(error)),
        }
    }

    fn record(&self, operation: Operation, result: &Result<(Admission, ApplyOnce), Error>) {
        let result = result.as_ref().map(|(admission, _)| admission);
        self.events.record(&self.id, operation, result);
    }
}

/// Reads the last record of a subject from the leader of the stream.
async fn last_record(stream: &Stream<()>, subject: &str) -> Result<LastRecord, Error> {
    match stream.get_last_raw_message_by_subject(subject).await {
        Ok(message) => {
            Ok(LastRecord { sequence: message.sequence, mark: Some(record_headers::appended_mark(&message.headers)) })
        }
        Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => {
            Ok(LastRecord { sequence: 0, mark: None })
        }
        Err(error) => Err(storage_error(error)),
    }
}

fn storage_error(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Storage(Box::new(error))
}

impl LastRecord {
    /// The mark of an armed subject.
    fn mark(&self) -> Result<FixedMark, Error> {
        match &self.mark {
            None => Err(FenceRefusal::MarkLost(MarkLoss::Missing).into()),
            // A writer bypassed the fence, so the mark is hidden.
            Some(None) => Err(FenceRefusal::MarkLost(MarkLoss::Unreadable).into()),
            Some(Some(mark)) => Ok(mark.clone()),
        }
    }
}
