//! What an operator does at a fenced JetStream log: each act is a record of the log too.

use async_nats::jetstream::Context;
use async_nats::jetstream::stream::{LastRawMessageErrorKind, Stream};
use futures::StreamExt;
use leasehold_core::token::{Incarnation, Number};

use super::record::{self, Kind};
use super::{HOME, Log, failed, last};
use crate::fixed::MarkText;
use crate::{Error, Kept, Lost, Refusal};

/// Every mark that this stream keeps, one for each of its subjects. A subject to which somebody appended past the fence tells
/// the newest mark that can be read, as lost; one that was never armed tells nothing.
pub async fn survey(jetstream: &Context, stream: &str) -> Result<Vec<Kept>, Error> {
    let stream = jetstream.get_stream_no_info(stream).await.map_err(failed)?;
    let mut subjects = stream.info_with_subjects(">").await.map_err(failed)?;
    let mut all = Vec::new();
    while let Some(subject) = subjects.next().await {
        let (subject, _) = subject.map_err(failed)?;
        all.extend(kept(&stream, &subject).await?);
    }
    Ok(all)
}

/// The same of one subject.
pub async fn survey_subject(jetstream: &Context, stream: &str, subject: &str) -> Result<Option<Kept>, Error> {
    kept(&jetstream.get_stream_no_info(stream).await.map_err(failed)?, subject).await
}

async fn kept(stream: &Stream<()>, subject: &str) -> Result<Option<Kept>, Error> {
    let seen = last(stream, subject).await?;
    match seen.mark {
        Some(Some(mark)) => Ok(Some(mark.kept(true))),
        Some(None) => match before(stream, subject, seen.sequence).await {
            Ok(mark) => Ok(Some(mark.kept(false))),
            Err(Error::Refused(_)) => Ok(None),
            Err(error) => Err(error),
        },
        None => Ok(None),
    }
}

impl Log {
    /// Says that nothing was appended to this subject yet: its first token sets the mark. Where a mark is kept already, it
    /// stays.
    pub async fn arm(&self) -> Result<(), Error> {
        let seen = last(&self.stream, &self.subject).await?;
        match seen.mark {
            Some(Some(_)) => Ok(()),
            Some(None) => Err(Error::Conflict("the subject has records that no fence wrote; re-arm it from a floor")),
            None => {
                // If somebody was faster, there is a mark now, and that was asked for.
                self.append_after(&seen, Kind::Operator, &MarkText::fresh(&self.place, HOME), &[]).await?;
                Ok(())
            }
        }
    }

    /// The mark that is kept. What is lost is told as a refusal.
    pub async fn mark(&self) -> Result<Option<Number>, Error> {
        last(&self.stream, &self.subject).await?.mark()?.mark(true)
    }

    /// Refuses everything until [`Log::rearm`]: after the stream was put back from a copy.
    pub async fn declare_lost(&self) -> Result<(), Error> {
        self.alter(|mark| Ok(mark.lost())).await
    }

    /// Sets a lost mark to a floor that no holder of before lies above. A floor below what was seen here is refused. Where
    /// somebody appended past the fence, the mark of before is looked for.
    pub async fn rearm(&self, floor: Number) -> Result<(), Error> {
        self.alter(|mark| mark.rearmed(floor, HOME)).await
    }

    /// Whether another incarnation is refused until it is adopted (T5).
    pub async fn strict(&self, strict: bool) -> Result<(), Error> {
        self.alter(|mark| Ok(mark.strict(strict))).await
    }

    /// Follows this incarnation from now on.
    pub async fn adopt(&self, incarnation: Incarnation) -> Result<(), Error> {
        self.alter(|mark| Ok(mark.adopted(incarnation))).await
    }

    async fn alter(&self, how: impl Fn(&MarkText) -> Result<MarkText, Error>) -> Result<(), Error> {
        loop {
            let seen = last(&self.stream, &self.subject).await?;
            let mark = match &seen.mark {
                Some(None) => before(&self.stream, &self.subject, seen.sequence).await?.lost(),
                _ => seen.mark()?,
            };
            if self.append_after(&seen, Kind::Operator, &how(&mark)?, &[]).await? {
                return Ok(());
            }
        }
    }
}

/// The newest mark that can be read below this sequence. Marks never fall, so it is the highest.
async fn before(stream: &Stream<()>, subject: &str, sequence: u64) -> Result<MarkText, Error> {
    for sequence in (1..sequence).rev() {
        match stream.get_raw_message(sequence).await {
            Ok(message) if message.subject.as_str() == subject => {
                if let Some(mark) = record::mark(&message.headers) {
                    return Ok(mark);
                }
            }
            Ok(_) => {}
            // Deleted.
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => {}
            Err(error) => return Err(failed(error)),
        }
    }
    Err(Refusal::Lost(Lost::Missing).into())
}
