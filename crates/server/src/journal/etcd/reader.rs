//! Reads batches and snapshots in pages, at one revision, so that a lagging member cannot return older data.

use std::ops::ControlFlow;

use leasehold_core::journal_lineage;

use super::batch_value::{self, BatchValue};
use super::client::EtcdClient;
use super::error::EtcdError;
use super::keys::JournalKeys;
use super::meta::{JournalMeta, MetaError, SnapshotMeta};
use super::pb::{KeyValue, RangeRequest};
use crate::journal::BatchVisitor;

/// Target size of a page.
const PAGE_BYTES: usize = 4 << 20;
/// Values of the first page.
const FIRST_PAGE: i64 = 16;
/// Most values of a page.
const MAX_PAGE: i64 = 10_000;

/// Error of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EtcdReadError {
    /// The call failed.
    Etcd(EtcdError),
    /// The log starts at a later sequence.
    Trimmed { first: u64 },
    /// A value is damaged.
    Corrupt { key: String, reason: String },
    /// `meta` is invalid.
    Meta(MetaError),
}

impl From<EtcdError> for EtcdReadError {
    fn from(error: EtcdError) -> Self {
        Self::Etcd(error)
    }
}

impl EtcdReadError {
    fn corrupt(key: &[u8], reason: &str) -> Self {
        Self::Corrupt { key: String::from_utf8_lossy(key).into_owned(), reason: reason.to_owned() }
    }
}

/// Reads a journal at a revision; zero is the newest.
pub struct EtcdReader<'a> {
    pub client: &'a EtcdClient,
    pub keys: &'a JournalKeys,
    pub revision: i64,
}

impl EtcdReader<'_> {
    /// The value of `meta` and the revision it was read at.
    pub async fn meta(&self) -> Result<(Option<JournalMeta>, i64), EtcdReadError> {
        let range = RangeRequest { key: self.keys.meta(), revision: self.revision, ..Default::default() };
        let response = self.client.range_with_retry(range).await?;
        let meta = response
            .kvs
            .first()
            .map(|meta| JournalMeta::decode(&meta.value))
            .transpose()
            .map_err(EtcdReadError::Meta)?;
        Ok((meta, response.header.map_or(0, |header| header.revision)))
    }

    /// All bytes of a snapshot.
    pub async fn snapshot(&self, snapshot: SnapshotMeta) -> Result<Vec<u8>, EtcdReadError> {
        let mut bytes = Vec::with_capacity(usize::try_from(snapshot.bytes).unwrap_or(0).min(1 << 30));
        for chunk in 0..snapshot.chunks {
            let key = self.keys.chunk(snapshot.sequence, chunk);
            let response = self.one(&key).await?.ok_or_else(|| EtcdReadError::corrupt(&key, "missing chunk"))?;
            bytes.extend_from_slice(&response.value);
        }
        if bytes.len() as u64 != snapshot.bytes || crc32fast::hash(&bytes) != snapshot.checksum {
            return Err(EtcdReadError::corrupt(&self.keys.chunks(snapshot.sequence).0, "damaged snapshot"));
        }
        Ok(bytes)
    }

    /// Digest of one batch; `None` if the log does not contain it.
    pub async fn digest(&self, sequence: u64) -> Result<Option<[u8; 32]>, EtcdReadError> {
        let key = self.keys.log(sequence);
        let Some(batch) = self.one(&key).await? else { return Ok(None) };
        let value = batch_value::decode(&batch.value).map_err(|reason| EtcdReadError::corrupt(&key, reason))?;
        Ok(Some(match value {
            BatchValue::Whole(bytes) => journal_lineage::digest(bytes),
            BatchValue::Parts { parts, checksum } => {
                journal_lineage::digest(&self.parts(sequence, parts, checksum).await?)
            }
        }))
    }

    /// Revision at which a batch was written; zero if the log does not contain it.
    pub async fn batch_revision(&self, sequence: u64) -> Result<i64, EtcdReadError> {
        Ok(self.one(&self.keys.log(sequence)).await?.map_or(0, |batch| batch.mod_revision))
    }

    /// Whether the prefix has batches, or chunks of a snapshot.
    pub async fn has_content(&self) -> Result<bool, EtcdReadError> {
        let (snapshots, snapshots_end) = self.keys.snapshots();
        for (key, range_end) in [(self.keys.log(0), self.keys.log_end()), (snapshots, snapshots_end)] {
            let revision = self.revision;
            let range = RangeRequest { key, range_end, revision, limit: 1, keys_only: true, ..Default::default() };
            if !self.client.range_with_retry(range).await?.kvs.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The marker that etcd was rolled back.
    pub async fn rolled_back(&self) -> Result<Option<String>, EtcdReadError> {
        let marker = self.one(&self.keys.rolled_back()).await?;
        Ok(marker.map(|marker| String::from_utf8_lossy(&marker.value).into_owned()))
    }

    /// Revision at which a restore was last accepted; zero if none was.
    pub async fn accepted(&self) -> Result<i64, EtcdReadError> {
        Ok(self.one(&self.keys.accepted()).await?.map_or(0, |entry| entry.mod_revision))
    }

    /// The record of the keys that the servers share.
    pub async fn key_digests(&self) -> Result<Option<Vec<u8>>, EtcdReadError> {
        Ok(self.one(&self.keys.key_digests()).await?.map(|entry| entry.value.to_vec()))
    }

    async fn one(&self, key: &[u8]) -> Result<Option<KeyValue>, EtcdReadError> {
        let range = RangeRequest { key: key.to_vec(), revision: self.revision, ..Default::default() };
        Ok(self.client.range_with_retry(range).await?.kvs.pop())
    }

    /// Reads the batches from a sequence on, in order and without a gap. Returns the next sequence and the revision it was read at.
    pub async fn batches(&self, from: u64, each: BatchVisitor<'_>) -> Result<(u64, i64), EtcdReadError> {
        let (mut next, mut limit, mut revision) = (from, FIRST_PAGE, self.revision);
        loop {
            let range = RangeRequest {
                key: self.keys.log(next),
                range_end: self.keys.log_end(),
                limit,
                revision,
                ..Default::default()
            };
            let page = match self.client.range_with_retry(range).await {
                // The revision was compacted between two pages; the rest is read at a newer one.
                Err(EtcdError::Compacted) if self.revision == 0 && revision != 0 => {
                    revision = 0;
                    continue;
                }
                page => page?,
            };
            let newest = page.header.map_or(0, |header| header.revision);
            revision = if self.revision == 0 && revision == 0 { newest } else { revision };
            let bytes: usize = page.kvs.iter().map(|batch| batch.value.len()).sum();
            let at = EtcdReader { revision, ..*self };
            for batch in page.kvs {
                let sequence = self.keys.sequence(&batch.key);
                let sequence = sequence.ok_or_else(|| EtcdReadError::corrupt(&batch.key, "not the key of a batch"))?;
                if sequence != next {
                    return Err(match next == from {
                        true => EtcdReadError::Trimmed { first: sequence },
                        false => EtcdReadError::corrupt(&self.keys.log(next), "missing batch"),
                    });
                }
                next += 1;
                let flow = match batch_value::decode(&batch.value)
                    .map_err(|reason| EtcdReadError::corrupt(&batch.key, reason))?
                {
                    BatchValue::Whole(bytes) => each(sequence, bytes),
                    BatchValue::Parts { parts, checksum } => {
                        each(sequence, &at.parts(sequence, parts, checksum).await?)
                    }
                };
                if flow == ControlFlow::Break(()) {
                    return Ok((next, revision));
                }
            }
            if !page.more {
                return Ok((next, revision));
            }
            let value_bytes = bytes.max(1) / usize::try_from(limit).unwrap_or(1).max(1);
            let page = i64::try_from(PAGE_BYTES / value_bytes.max(1)).unwrap_or(MAX_PAGE);
            limit = page.clamp(1, (4 * limit).min(MAX_PAGE));
        }
    }

    async fn parts(&self, sequence: u64, parts: u64, checksum: u32) -> Result<Vec<u8>, EtcdReadError> {
        let mut batch = Vec::new();
        for part in 0..parts {
            let key = self.keys.part(sequence, part);
            let response = self.one(&key).await?.ok_or_else(|| EtcdReadError::corrupt(&key, "missing part"))?;
            batch.extend_from_slice(&response.value);
        }
        match crc32fast::hash(&batch) == checksum {
            true => Ok(batch),
            false => Err(EtcdReadError::corrupt(&self.keys.log(sequence), "wrong checksum of the batch")),
        }
    }
}
