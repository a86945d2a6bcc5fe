//! What is asked about the past, the same for both doors.

use futures::Stream;
use leasehold_wire::{Code, v1};

use super::Api;
use crate::backup::{Header, Pieces};
use crate::clock;
use crate::keep::NotKept;

impl Api {
    /// A backup as of now: what it says about itself, and its bytes piece by piece.
    pub async fn backup(&self) -> Result<(Header, impl Stream<Item = Vec<u8>> + Send + use<>), v1::Problem> {
        let place = self.keeping.place().ok_or_else(|| {
            let told =
                v1::Problem::of(Code::Unavailable, "other backups are being sent; ask again when they are through");
            v1::Problem { retry_after_ms: Some(5_000), ..told }
        })?;
        // What the backup holds, authority confirmed, is everything that was told before it was asked for (E1).
        self.look(|_| ()).await?;
        let taken = self.keeping.take().await.map_err(|why| not_kept(&why))?;
        let pieces = Pieces::of(taken, clock::now().wall);
        Ok((*pieces.header(), pieces.stream(place)))
    }
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
