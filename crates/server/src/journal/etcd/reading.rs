//! Reading what is on record, in pages, each at one revision so that nobody who lags behind can tell an older story.

use std::ops::ControlFlow;

use super::keys::Keys;
use super::meta::{Meta, NotOurs, Snapshot};
use super::pb::{KeyValue, RangeRequest};
use super::reach::Reach;
use super::stored::{self, Stored};
use super::trouble::Trouble;
use crate::journal::Listener;

/// A page grows until it has about so many bytes.
const PAGE_BYTES: usize = 4 << 20;
/// Values of a first page.
const PAGE_FIRST: i64 = 16;
/// Values of any page.
const PAGE_MOST: i64 = 10_000;

/// Why something was not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotRead {
    /// etcd did not tell it.
    Trouble(Trouble),
    /// The log begins later.
    Trimmed { first: u64 },
    /// A value cannot be what was written.
    Corrupt { key: String, why: String },
    /// `meta` is not ours.
    Meta(NotOurs),
}

impl From<Trouble> for NotRead {
    fn from(trouble: Trouble) -> Self {
        Self::Trouble(trouble)
    }
}

impl NotRead {
    fn corrupt(key: &[u8], why: &str) -> Self {
        Self::Corrupt { key: String::from_utf8_lossy(key).into_owned(), why: why.to_owned() }
    }
}

/// Whoever reads a journal at a revision; zero is the newest.
pub struct Reading<'a> {
    pub reach: &'a Reach,
    pub keys: &'a Keys,
    pub revision: i64,
}

impl Reading<'_> {
    /// What stands under `meta`, and the revision that it was read at.
    pub async fn meta(&self) -> Result<(Option<Meta>, i64), NotRead> {
        let range = RangeRequest { key: self.keys.meta(), revision: self.revision, ..Default::default() };
        let told = self.reach.range_tried(range).await?;
        let meta = told.kvs.first().map(|meta| Meta::decode(&meta.value)).transpose().map_err(NotRead::Meta)?;
        Ok((meta, told.header.map_or(0, |header| header.revision)))
    }

    /// A snapshot, all of it.
    pub async fn snapshot(&self, snapshot: Snapshot) -> Result<Vec<u8>, NotRead> {
        let mut bytes = Vec::with_capacity(usize::try_from(snapshot.bytes).unwrap_or(0).min(1 << 30));
        for chunk in 0..snapshot.chunks {
            let key = self.keys.chunk(snapshot.sequence, chunk);
            let told = self.one(&key).await?.ok_or_else(|| NotRead::corrupt(&key, "a chunk is missing"))?;
            bytes.extend_from_slice(&told.value);
        }
        if bytes.len() as u64 != snapshot.bytes || crc32fast::hash(&bytes) != snapshot.checksum {
            return Err(NotRead::corrupt(&self.keys.chunks(snapshot.sequence).0, "the snapshot is damaged"));
        }
        Ok(bytes)
    }

    async fn one(&self, key: &[u8]) -> Result<Option<KeyValue>, NotRead> {
        let range = RangeRequest { key: key.to_vec(), revision: self.revision, ..Default::default() };
        Ok(self.reach.range_tried(range).await?.kvs.pop())
    }

    /// The batches from a sequence on, in order and without a gap. Returns the sequence that comes next, and the revision
    /// of which that is true.
    pub async fn batches(&self, from: u64, each: Listener<'_>) -> Result<(u64, i64), NotRead> {
        let (mut next, mut limit, mut revision) = (from, PAGE_FIRST, self.revision);
        loop {
            let range = RangeRequest {
                key: self.keys.log(next),
                range_end: self.keys.log_end(),
                limit,
                revision,
                ..Default::default()
            };
            let page = match self.reach.range_tried(range).await {
                // Somebody compacted between two pages: what comes next is read at a newer revision.
                Err(Trouble::Compacted) if self.revision == 0 && revision != 0 => {
                    revision = 0;
                    continue;
                }
                page => page?,
            };
            let newest = page.header.map_or(0, |header| header.revision);
            revision = if self.revision == 0 && revision == 0 { newest } else { revision };
            let bytes: usize = page.kvs.iter().map(|batch| batch.value.len()).sum();
            let at = Reading { revision, ..*self };
            for batch in page.kvs {
                let sequence = self.keys.sequence(&batch.key);
                let sequence = sequence.ok_or_else(|| NotRead::corrupt(&batch.key, "not the key of a batch"))?;
                if sequence != next {
                    return Err(match next == from {
                        true => NotRead::Trimmed { first: sequence },
                        false => NotRead::corrupt(&self.keys.log(next), "a batch is missing in the middle"),
                    });
                }
                next += 1;
                let flow = match stored::decode(&batch.value).map_err(|why| NotRead::corrupt(&batch.key, why))? {
                    Stored::Whole(bytes) => each(sequence, bytes),
                    Stored::Parts { parts, checksum } => each(sequence, &at.parts(sequence, parts, checksum).await?),
                };
                if flow == ControlFlow::Break(()) {
                    return Ok((next, revision));
                }
            }
            if !page.more {
                return Ok((next, revision));
            }
            let size = bytes.max(1) / usize::try_from(limit).unwrap_or(1).max(1);
            let fits = i64::try_from(PAGE_BYTES / size.max(1)).unwrap_or(PAGE_MOST);
            limit = fits.clamp(1, (4 * limit).min(PAGE_MOST));
        }
    }

    async fn parts(&self, sequence: u64, parts: u64, checksum: u32) -> Result<Vec<u8>, NotRead> {
        let mut batch = Vec::new();
        for part in 0..parts {
            let key = self.keys.part(sequence, part);
            let told = self.one(&key).await?.ok_or_else(|| NotRead::corrupt(&key, "a part is missing"))?;
            batch.extend_from_slice(&told.value);
        }
        match crc32fast::hash(&batch) == checksum {
            true => Ok(batch),
            false => Err(NotRead::corrupt(&self.keys.log(sequence), "the checksum of the batch is wrong")),
        }
    }
}
