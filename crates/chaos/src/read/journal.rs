//! Every batch of a journal whose servers are gone, in order.

use std::io;

use leasehold_core::grantor::Corrupt;
use leasehold_server::journal::{Place, Replay};

#[derive(Default)]
struct Batches {
    batches: Vec<Vec<u8>>,
    snapshot: Option<u64>,
}

impl Replay for Batches {
    fn snapshot(&mut self, sequence: u64, _: &[u8]) -> Result<(), Corrupt> {
        self.snapshot = Some(sequence);
        Ok(())
    }

    fn batch(&mut self, _: u64, bytes: &[u8]) -> Result<(), Corrupt> {
        self.batches.push(bytes.to_vec());
        Ok(())
    }
}

/// Reads a journal from its first batch on.
pub async fn read(place: &impl Place) -> io::Result<Vec<Vec<u8>>> {
    let mut read = Batches::default();
    place.open(&mut read).await.map_err(|error| io::Error::other(error.to_string()))?;
    match read.snapshot {
        Some(sequence) => Err(io::Error::other(format!("the journal was cut up to {sequence}: run for less long"))),
        None => Ok(read.batches),
    }
}
