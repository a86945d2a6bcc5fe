//! The state again, from the newest snapshot and the log behind it, as a standby would have it.

use std::ops::ControlFlow;

use leasehold_core::grantor::{About, Recovered};

use super::{Keeping, NotKept};
use crate::journal::{FIRST, Shelf};
use crate::secret;

/// The state after a durable batch, as bytes.
#[derive(Debug)]
pub struct Taken {
    /// The batch.
    pub sequence: u64,
    /// The snapshot.
    pub snapshot: Vec<u8>,
    /// What the state says about itself.
    pub about: About,
    /// How many entries the audit trail had, and the hash of the last.
    pub trail: (u64, [u8; 32]),
}

/// A state that is being folded.
pub(super) struct Fold {
    pub recovered: Recovered,
    /// The batch that comes next.
    pub next: u64,
    /// What was folded since the newest snapshot.
    pub bytes: u64,
    pub batches: u64,
}

impl Fold {
    /// Begins at the newest snapshot.
    pub async fn begin<S: Shelf>(shelf: &S) -> Result<Self, NotKept> {
        let hash_seed = u64::from_ne_bytes(secret::draw());
        let (recovered, next) = match shelf.newest().await? {
            None => (Recovered::empty(hash_seed), FIRST),
            Some((sequence, bytes)) => {
                let recovered = Recovered::from_snapshot(&bytes, hash_seed)
                    .map_err(|wrong| NotKept::Corrupt { sequence, why: wrong.to_string() })?;
                (recovered, sequence + 1)
            }
        };
        Ok(Self { recovered, next, bytes: 0, batches: 0 })
    }

    /// Folds in what is durable by now; breaks off when the server stops.
    pub async fn catch_up<S: Shelf>(&mut self, shelf: &S, keeping: &Keeping) -> Result<(), NotKept> {
        let (from, mut wrong) = (self.next, None);
        let mut each = |sequence: u64, batch: &[u8]| {
            if keeping.is_stopping() {
                wrong = Some(NotKept::Stopping);
                return ControlFlow::Break(());
            }
            if let Err(corrupt) = self.recovered.apply(batch) {
                wrong = Some(NotKept::Corrupt { sequence, why: corrupt.to_string() });
                return ControlFlow::Break(());
            }
            self.next = sequence + 1;
            self.bytes += batch.len() as u64;
            self.batches += 1;
            ControlFlow::Continue(())
        };
        shelf.tail(from, &mut each).await?;
        wrong.map_or(Ok(()), Err)
    }

    /// The state as bytes.
    pub fn taken(&self) -> Result<Taken, NotKept> {
        let sequence = self.next - 1;
        let nobody = || NotKept::Corrupt { sequence, why: "no cluster was ever created".to_owned() };
        let about = self.recovered.about().ok_or_else(nobody)?;
        Ok(Taken { sequence, about, trail: (0, [0; 32]), snapshot: self.recovered.snapshot() })
    }
}
