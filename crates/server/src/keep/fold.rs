//! The state again, from the newest snapshot and the log behind it, as a standby would have it; and the trail with it.

use std::ops::ControlFlow;

use leasehold_core::grantor::{About, Change, Recovered};
use leasehold_core::record::Header;
use leasehold_core::token::Cluster;

use super::{Keeping, NotKept};
use crate::journal::{FIRST, Rack, Shelf};
use crate::secret;
use crate::trail::{Head, Told, Writer};

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
    recovered: Recovered,
    /// The batch that comes next.
    pub next: u64,
    /// What was folded since the newest snapshot.
    pub bytes: u64,
    pub batches: u64,
    /// The bytes of that snapshot.
    pub snapshot: u64,
}

impl Fold {
    /// Begins at the newest snapshot.
    pub async fn begin<S: Shelf>(shelf: &S) -> Result<Self, NotKept> {
        let hash_seed = u64::from_ne_bytes(secret::draw());
        let (recovered, next, snapshot) = match shelf.newest().await? {
            None => (Recovered::empty(hash_seed), FIRST, 0),
            Some((sequence, bytes)) => {
                let recovered = Recovered::from_snapshot(&bytes, hash_seed)
                    .map_err(|wrong| NotKept::Corrupt { sequence, why: wrong.to_string() })?;
                (recovered, sequence + 1, bytes.len() as u64)
            }
        };
        Ok(Self { recovered, next, bytes: 0, batches: 0, snapshot })
    }

    /// Folds in what is durable by now and tells the trail of it; breaks off when the server stops.
    pub async fn catch_up<S: Shelf>(
        &mut self,
        shelf: &S,
        keeping: &Keeping,
        writer: &mut Writer,
    ) -> Result<(), NotKept> {
        if self.next - 1 > writer.head().position {
            self.skip(shelf, writer, "the journal does not tell any more what was between")?;
        }
        let (from, mut wrong) = (self.next, None);
        let mut each = |sequence: u64, batch: &[u8]| match self.step(shelf, keeping, writer, sequence, batch) {
            Ok(()) => ControlFlow::Continue(()),
            Err(why) => {
                wrong = Some(why);
                ControlFlow::Break(())
            }
        };
        shelf.tail(from, &mut each).await?;
        if let Some(wrong) = wrong {
            return Err(wrong);
        }
        if writer.head().position > self.next - 1 {
            self.skip(shelf, writer, "the journal does not reach as far as what was told")?;
        }
        let (cluster, header) = self.now()?;
        let told = Told { cluster, position: self.next - 1, step: 0, header: &header };
        writer.finish(shelf, told, self.recovered.chain())
    }

    fn step(
        &mut self,
        rack: &dyn Rack,
        keeping: &Keeping,
        writer: &mut Writer,
        sequence: u64,
        batch: &[u8],
    ) -> Result<(), NotKept> {
        if keeping.is_stopping() {
            return Err(NotKept::Stopping);
        }
        let head = writer.head();
        if sequence > head.position {
            self.tell(rack, writer, sequence, batch)?;
        } else {
            self.recovered.apply(batch).map_err(|wrong| corrupt(sequence, wrong))?;
        }
        self.next = sequence + 1;
        self.bytes += batch.len() as u64;
        self.batches += 1;
        let other = writer.batch().is_some_and(|batch| batch != self.recovered.chain());
        if sequence == head.position && other {
            self.skip(rack, writer, "the journal has another batch there than was told")?;
        }
        Ok(())
    }

    fn tell(&mut self, rack: &dyn Rack, writer: &mut Writer, position: u64, batch: &[u8]) -> Result<(), NotKept> {
        let cluster = match self.recovered.cluster() {
            Some(cluster) => cluster,
            // The first batch of all says whose it is.
            None => {
                let mut first = Recovered::empty(0);
                first.apply(batch).map_err(|wrong| corrupt(position, wrong))?;
                first.cluster().ok_or_else(|| nobody(position))?
            }
        };
        let (mut step, mut done) = (0, Ok(()));
        let mut each = |header: &Header, change: &Change<'_>| {
            if done.is_ok() {
                done = writer.tell(rack, Told { cluster, position, step, header }, change);
                step += 1;
            }
        };
        let applied = self.recovered.apply_and_tell(batch, Some(&mut each));
        applied.map_err(|wrong| corrupt(position, wrong))?;
        done
    }

    fn skip(&self, rack: &dyn Rack, writer: &mut Writer, why: &str) -> Result<(), NotKept> {
        let (cluster, header) = self.now()?;
        writer.skip_to(rack, Told { cluster, position: self.next - 1, step: 0, header: &header }, why)
    }

    fn now(&self) -> Result<(Cluster, Header), NotKept> {
        let about = self.about()?;
        let header = Header { chain: self.recovered.chain(), time: about.time, wall: about.wall };
        Ok((about.cluster, header))
    }

    fn about(&self) -> Result<About, NotKept> {
        self.recovered.about().ok_or_else(|| nobody(self.next - 1))
    }

    /// Whether it takes about so many bytes or fewer.
    pub fn is_small(&self, bytes: u64) -> bool {
        self.snapshot + self.bytes <= bytes
    }

    /// The state as bytes.
    pub fn taken(&self, head: Head) -> Result<Taken, NotKept> {
        let (about, trail) = (self.about()?, (head.entries, head.hash));
        Ok(Taken { sequence: self.next - 1, about, trail, snapshot: self.recovered.snapshot() })
    }
}

fn nobody(sequence: u64) -> NotKept {
    NotKept::Corrupt { sequence, why: "no cluster was ever created".to_owned() }
}

fn corrupt(sequence: u64, wrong: leasehold_core::grantor::Corrupt) -> NotKept {
    NotKept::Corrupt { sequence, why: wrong.to_string() }
}
