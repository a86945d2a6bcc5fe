//! Operator actions on a fenced subject: arm, re-arm, declare lost, adopt, list marks. Each action is a record.

use async_nats::jetstream::Context;
use async_nats::jetstream::stream::{LastRawMessageErrorKind, Stream};
use futures::StreamExt;
use leasehold_core::token::{Incarnation, Number};

use super::record_headers::{self, LastRecord, RecordKind};
use super::{Fence, SERVER_ID, last_record, storage_error};
use crate::mark_fixed_text::FixedMark;
use crate::{Error, FenceRefusal, MarkInfo, MarkLoss};

/// Returns the marks of a stream, one for each subject. If a writer bypassed the fence, the newest readable mark of the subject
/// is returned as lost. A subject that was never armed has no mark.
pub async fn list_marks(jetstream: &Context, stream: &str) -> Result<Vec<MarkInfo>, Error> {
    let stream = jetstream.get_stream_no_info(stream).await.map_err(storage_error)?;
    let mut subjects = stream.info_with_subjects(">").await.map_err(storage_error)?;
    let mut marks = Vec::new();
    while let Some(subject) = subjects.next().await {
        let (subject, _) = subject.map_err(storage_error)?;
        marks.extend(mark_of(&stream, &subject).await?);
    }
    Ok(marks)
}

/// Returns the mark of one subject.
pub async fn subject_mark(jetstream: &Context, stream: &str, subject: &str) -> Result<Option<MarkInfo>, Error> {
    mark_of(&jetstream.get_stream_no_info(stream).await.map_err(storage_error)?, subject).await
}

async fn mark_of(stream: &Stream<()>, subject: &str) -> Result<Option<MarkInfo>, Error> {
    let last = last_record(stream, subject).await?;
    match last.mark {
        Some(Some(mark)) => Ok(Some(mark.info(true))),
        Some(None) => match previous_mark(stream, subject, last.sequence).await {
            Ok(mark) => Ok(Some(mark.info(false))),
            Err(Error::Refused(_)) => Ok(None),
            Err(error) => Err(error),
        },
        None => Ok(None),
    }
}

impl Fence {
    /// Arms the subject as fresh: its first token sets the mark. An existing mark is unchanged.
    pub async fn arm(&self) -> Result<(), Error> {
        self.ensure_records_stay().await?;
        let fresh = FixedMark::fresh(&self.id, SERVER_ID);
        loop {
            let last = last_record(&self.stream, &self.subject).await?;
            match last.mark {
                Some(Some(_)) => return Ok(()),
                Some(None) => {
                    return Err(Error::Conflict("the subject has records without a mark; re-arm it from a floor"));
                }
                None if self.append_after(&last, RecordKind::Operator, &fresh, &[]).await? => return Ok(()),
                // Another operator was faster, or a writer bypassed the fence.
                None => {}
            }
        }
    }

    /// The mark; `None` if no token was admitted yet. A lost mark is a refusal.
    pub async fn mark(&self) -> Result<Option<Number>, Error> {
        last_record(&self.stream, &self.subject).await?.mark()?.mark(true)
    }

    /// Declares the mark lost: the stream was restored from a backup. All tokens are rejected until [`Fence::rearm`].
    pub async fn declare_lost(&self) -> Result<(), Error> {
        self.update_mark(|mark| Ok(mark.declared_lost())).await
    }

    /// Sets the mark to a floor. No earlier holder may have a number above it. A floor below the mark is an error. If a
    /// writer bypassed the fence, the previous readable mark is used. If the subject was purged, or has no readable mark any
    /// more, a new mark is created.
    pub async fn rearm(&self, floor: Number) -> Result<(), Error> {
        self.ensure_records_stay().await?;
        loop {
            let last = last_record(&self.stream, &self.subject).await?;
            let mark = match self.newest_mark(&last).await {
                Err(Error::Refused(FenceRefusal::MarkLost(MarkLoss::Missing))) => FixedMark::fresh(&self.id, SERVER_ID),
                mark => mark?,
            };
            if self.append_after(&last, RecordKind::Operator, &mark.rearmed(floor, SERVER_ID)?, &[]).await? {
                return Ok(());
            }
        }
    }

    /// Sets whether the fence rejects tokens of other incarnations until they are adopted (T5).
    pub async fn strict(&self, enabled: bool) -> Result<(), Error> {
        self.update_mark(|mark| Ok(mark.with_strict(enabled))).await
    }

    /// Makes a strict fence follow this incarnation.
    pub async fn adopt(&self, incarnation: Incarnation) -> Result<(), Error> {
        self.update_mark(|mark| Ok(mark.adopted(incarnation))).await
    }

    async fn update_mark(&self, change: impl Fn(&FixedMark) -> Result<FixedMark, Error>) -> Result<(), Error> {
        loop {
            let last = last_record(&self.stream, &self.subject).await?;
            let mark = self.newest_mark(&last).await?;
            if self.append_after(&last, RecordKind::Operator, &change(&mark)?, &[]).await? {
                return Ok(());
            }
        }
    }

    /// The mark of this fence. If a writer bypassed the fence, it is the newest readable one, which is lost.
    async fn newest_mark(&self, last: &LastRecord) -> Result<FixedMark, Error> {
        let mark = match &last.mark {
            Some(None) => previous_mark(&self.stream, &self.subject, last.sequence).await?.declared_lost(),
            _ => last.mark()?,
        };
        // An operator of another fence does not change it.
        mark.stored_mark(&self.id, SERVER_ID)?;
        Ok(mark)
    }
}

/// The newest readable mark before this sequence. Marks never decrease, so it is the highest.
async fn previous_mark(stream: &Stream<()>, subject: &str, sequence: u64) -> Result<FixedMark, Error> {
    for sequence in (1..sequence).rev() {
        match stream.get_raw_message(sequence).await {
            Ok(message) if message.subject.as_str() == subject => {
                if let Some(mark) = record_headers::appended_mark(&message.headers) {
                    return Ok(mark);
                }
            }
            Ok(_) => {}
            // The message was deleted.
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => {}
            Err(error) => return Err(storage_error(error)),
        }
    }
    Err(FenceRefusal::MarkLost(MarkLoss::Missing).into())
}
