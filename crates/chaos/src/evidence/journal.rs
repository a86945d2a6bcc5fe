//! Reads all batches of a journal whose servers are down.

use std::io;

use leasehold_core::grantor::CorruptionError;
use leasehold_server::journal::{JournalLocation, Replay};

#[derive(Default)]
struct JournalBatches {
    batches: Vec<Vec<u8>>,
    snapshot: Option<u64>,
}

impl Replay for JournalBatches {
    fn snapshot(&mut self, sequence: u64, _: &[u8]) -> Result<(), CorruptionError> {
        self.snapshot = Some(sequence);
        Ok(())
    }

    fn batch(&mut self, _: u64, bytes: &[u8]) -> Result<(), CorruptionError> {
        self.batches.push(bytes.to_vec());
        Ok(())
    }
}

/// Reads a journal from its first batch.
pub async fn read(place: &impl JournalLocation) -> io::Result<Vec<Vec<u8>>> {
    let mut read = JournalBatches::default();
    place.open(&mut read).await.map_err(|error| io::Error::other(error.to_string()))?;
    match read.snapshot {
        Some(sequence) => {
            Err(io::Error::other(format!("the journal was truncated up to {sequence}; use a shorter run")))
        }
        None => Ok(read.batches),
    }
}
