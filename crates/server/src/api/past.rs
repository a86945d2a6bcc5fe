//! What is asked about the past, the same for both doors.

use std::time::Duration;

use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use leasehold_core::name::Name;
use leasehold_wire::{Code, v1};
use tokio::sync::mpsc;

use super::Api;
use super::looks::not_a_name;
use crate::backup::{Header, Pieces};
use crate::clock;
use crate::journal::Rack;
use crate::keep::NotKept;
use crate::trail::{Asked, Broken, Exporting, Hash, Head, Verified, page, verify};

impl Api {
    /// A backup as of now: what it says about itself, and its bytes piece by piece.
    pub async fn backup(&self) -> Result<(Header, impl Stream<Item = Piece> + Send + use<>), v1::Problem> {
        let place = self.keeping.place().ok_or_else(busy)?;
        // What the backup holds, authority confirmed, is everything that was told before it was asked for (E1).
        self.look(|_| ()).await?;
        let (taken, place) = self.keeping.take(place).await.map_err(|why| not_kept(&why))?;
        let pieces = Pieces::of(taken, clock::now().wall);
        Ok((*pieces.header(), taken_in_time(pieces.stream(place).map(Ok).boxed())))
    }
}

/// Most entries of one page of the trail.
const PAGE: usize = 1_000;

/// How much of an export is sent at a time.
const CHUNK: usize = 256 << 10;

impl Api {
    /// Entries of the audit trail, as texts with their hashes, and where it ends.
    pub async fn trail(&self, mut asked: Asked) -> Result<(Vec<(String, Hash)>, Head), v1::Problem> {
        if let Some(resource) = &asked.resource {
            Name::parse(resource).map_err(not_a_name)?;
        }
        asked.most = if asked.most == 0 { PAGE } else { asked.most.min(PAGE) };
        let head = self.told().await?;
        let read = move |rack: &dyn Rack| page(rack, head, &asked).map_err(NotKept::from);
        Ok((self.read(read).await?, head))
    }

    /// Walks through the whole trail.
    pub async fn verify_trail(&self) -> Result<Result<Verified, Broken>, v1::Problem> {
        let head = self.told().await?;
        self.read(move |rack| match verify(rack, head) {
            Err(Broken::NotTold(why)) => Err(why.into()),
            found => Ok(found),
        })
        .await
    }

    /// The trail as lines of JSON, piece by piece.
    pub async fn export_trail(&self) -> Result<impl Stream<Item = Piece> + Send + use<>, v1::Problem> {
        let place = self.keeping.place().ok_or_else(busy)?;
        let exporting = Exporting::new(self.told().await?);
        let state = Some((self.clone(), exporting, place));
        let pieces = futures::stream::unfold(state, |state| async move {
            let (api, mut exporting, place) = state?;
            let read = api.read(move |rack| {
                let lines = exporting.lines(rack)?;
                Ok((lines, exporting))
            });
            match read.await {
                Ok((Some(lines), exporting)) => {
                    let pieces: Vec<_> = lines.chunks(CHUNK).map(|piece| Ok(piece.to_vec())).collect();
                    Some((futures::stream::iter(pieces), Some((api, exporting, place))))
                }
                Ok((None, _)) => None,
                Err(problem) => Some((futures::stream::iter(vec![Err(Box::new(problem))]), None)),
            }
        });
        Ok(taken_in_time(pieces.flatten().boxed()))
    }

    /// Brings the trail up to everything that was told before it was asked for (E1).
    async fn told(&self) -> Result<Head, v1::Problem> {
        self.look(|_| ()).await?;
        self.keeping.tell().await.map_err(|why| not_kept(&why))
    }

    /// Reads files where nobody waits for it but the one who asked.
    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&dyn Rack) -> Result<T, NotKept> + Send + 'static,
    ) -> Result<T, v1::Problem> {
        let place = self.keeping.reading().await.map_err(|why| not_kept(&why))?;
        let keeping = self.keeping.clone();
        let work = move || {
            // Taken until it is done, whether somebody still waits for it or not.
            let _place = place;
            read(&*keeping.rack()?)
        };
        let done = tokio::task::spawn_blocking(work).await;
        done.unwrap_or(Err(NotKept::Stopping)).map_err(|why| not_kept(&why))
    }
}

/// A piece of something large.
type Piece = Result<Vec<u8>, Box<v1::Problem>>;

/// Pieces for somebody who must take each within a time: what they are made of is not kept for those who do not read.
fn taken_in_time(mut pieces: BoxStream<'static, Piece>) -> impl Stream<Item = Piece> + Send + use<> {
    let (send, taken) = mpsc::channel(1);
    tokio::spawn(async move {
        loop {
            let piece = pieces.next().await;
            let last = !matches!(piece, Some(Ok(_)));
            let sent = send.send_timeout(piece, PATIENCE).await;
            if last || sent.is_err() {
                return;
            }
        }
    });
    // Nobody takes what was cut off for the whole: the end is told too.
    futures::stream::unfold(Some(taken), |taken| async move {
        let mut taken = taken?;
        match taken.recv().await {
            Some(Some(Ok(piece))) => Some((Ok(piece), Some(taken))),
            Some(Some(Err(problem))) => Some((Err(problem), None)),
            Some(None) => None,
            None => Some((Err(Box::new(too_slow())), None)),
        }
    })
}

/// How long one piece may wait to be taken.
const PATIENCE: Duration = Duration::from_secs(30);

fn too_slow() -> v1::Problem {
    let told = format!("it was not taken within {} seconds; ask again, and read faster", PATIENCE.as_secs());
    v1::Problem::of(Code::Unavailable, told)
}

fn busy() -> v1::Problem {
    let told = v1::Problem::of(Code::Unavailable, "others are being sent as much; ask again when they are through");
    v1::Problem { retry_after_ms: Some(5_000), ..told }
}

/// Why the past is not told.
pub fn not_kept(why: &NotKept) -> v1::Problem {
    match why {
        NotKept::Stopping => {
            v1::Problem::of(Code::Unavailable, "the server is being stopped; ask again when it is back")
        }
        NotKept::Fenced => v1::Problem::of(Code::Unavailable, "another server has taken the journal; ask that one"),
        NotKept::Fault(fault) => {
            let code = Code::from_word(fault.code()).unwrap_or(Code::StorageFailed);
            v1::Problem { reason: fault.to_string(), ..v1::Problem::of(code, fault.to_string()) }
        }
        NotKept::NotTold(_) | NotKept::Corrupt { .. } => {
            v1::Problem { reason: why.to_string(), ..v1::Problem::of(Code::StorageFailed, why.to_string()) }
        }
    }
}
