//! Snapshots in chunks, trimming and compaction, and reading, while appends go on; the audit trail lies on this machine.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use prost::bytes::Bytes;

use super::meta::{Meta, Snapshot};
use super::pb::RequestOp;
use super::reading::{NotRead, Reading};
use super::stored::CHUNK;
use super::trouble::Trouble;
use super::writer::Writer;
use crate::journal::{Fault, Kept, Listener, NotTold, Rack, Shelf};

/// Batches that one transaction takes away.
const TRIM_STEP: u64 = 5_000;

/// The shelf of a journal on etcd.
#[derive(Clone)]
pub struct EtcdShelf {
    writer: Arc<Writer>,
}

impl EtcdShelf {
    pub(super) fn new(writer: &Arc<Writer>) -> Self {
        Self { writer: writer.clone() }
    }

    fn reading(&self, revision: i64) -> Reading<'_> {
        Reading { reach: &self.writer.reach, keys: &self.writer.keys, revision }
    }

    /// What stands under `meta` while this writer leads; none if it does not.
    async fn meta(&self) -> Result<Option<Meta>, Fault> {
        let mut look = vec![RequestOp::get(&self.writer.keys.meta())];
        if !self.writer.reads_are_fresh {
            look.push(RequestOp::put(&self.writer.keys.confirm(), Bytes::new(), 0));
        }
        let Some(told) = self.writer.change(look).await? else { return Ok(None) };
        let meta =
            told.got(0).ok_or("it is missing").and_then(|meta| Meta::decode(&meta.value).map_err(|_| "not ours"));
        let broken = |why| Fault::Failed { why: format!("{}meta in etcd: {why}", self.writer.keys.prefix()) };
        meta.map(Some).map_err(broken)
    }

    /// Takes the newest snapshot's forerunners away, whole or not.
    async fn forget_others(&self, sequence: u64) -> Result<Kept, Fault> {
        let keys = &self.writer.keys;
        let ((first, last), (from, end)) = (keys.snapshots(), keys.chunks(sequence));
        let forget = vec![RequestOp::delete(&first, &from), RequestOp::delete(&end, &last)];
        Ok(kept(self.writer.change(forget).await?.is_some()))
    }

    /// The first sequence that the log has.
    async fn first(&self) -> Result<Option<u64>, Fault> {
        let keys = &self.writer.keys;
        let range = super::pb::RangeRequest {
            key: keys.log(0),
            range_end: keys.log_end(),
            limit: 1,
            keys_only: true,
            ..Default::default()
        };
        match self.writer.reach.range_tried(range).await {
            Ok(told) => Ok(told.kvs.first().and_then(|batch| keys.sequence(&batch.key))),
            // Trimming is tried again later.
            Err(trouble) => Err(Fault::Failed { why: trouble.to_string() }),
        }
    }
}

fn kept(done: bool) -> Kept {
    if done { Kept::Durable } else { Kept::Fenced }
}

fn not_told(why: NotRead) -> NotTold {
    match why {
        NotRead::Trimmed { first } => NotTold::Trimmed { first },
        NotRead::Trouble(trouble) => NotTold::Unreadable { why: trouble.to_string() },
        NotRead::Corrupt { key, why } => NotTold::Unreadable { why: format!("{key} in etcd: {why}") },
        NotRead::Meta(_) => NotTold::Unreadable { why: "meta in etcd is not ours".to_owned() },
    }
}

impl Shelf for EtcdShelf {
    async fn save(&self, sequence: u64, snapshot: &[u8]) -> Result<Kept, Fault> {
        let writer = &*self.writer;
        assert!(sequence < writer.next.load(Ordering::Acquire), "a snapshot is of batches that are durable");
        let Some(mut meta) = self.meta().await? else { return Ok(Kept::Fenced) };
        if meta.snapshot.is_some_and(|newest| newest.sequence >= sequence) {
            return Ok(Kept::Durable);
        }
        let mut chunks = 0;
        for bytes in snapshot.chunks(CHUNK) {
            let put = RequestOp::put(&writer.keys.chunk(sequence, chunks), bytes.to_vec(), 0);
            if writer.change(vec![put]).await?.is_none() {
                return Ok(Kept::Fenced);
            }
            chunks += 1;
        }
        let (bytes, checksum) = (snapshot.len() as u64, crc32fast::hash(snapshot));
        meta.snapshot = Some(Snapshot { sequence, chunks, bytes, checksum });
        let put = RequestOp::put(&writer.keys.meta(), meta.encode(), 0);
        if writer.change(vec![put]).await?.is_none() {
            return Ok(Kept::Fenced);
        }
        self.forget_others(sequence).await
    }

    /// Keeps the last batch in any case: a resend of it finds it there.
    async fn trim(&self, up_to: u64) -> Result<Kept, Fault> {
        let writer = &*self.writer;
        let Some(meta) = self.meta().await? else { return Ok(Kept::Fenced) };
        let last = writer.next.load(Ordering::Acquire).saturating_sub(2);
        let covered = meta.snapshot.map_or(0, |newest| newest.sequence).min(up_to).min(last);
        let Some(mut first) = self.first().await?.filter(|first| *first <= covered) else { return Ok(Kept::Durable) };
        let mut revision = 0;
        while first <= covered {
            let before = (covered + 1).min(first.saturating_add(TRIM_STEP));
            let parts = writer.keys.parts(first, before);
            let forget = vec![
                RequestOp::delete(&writer.keys.log(first), &writer.keys.log(before)),
                RequestOp::delete(&parts.0, &parts.1),
            ];
            let Some(told) = writer.change(forget).await? else { return Ok(Kept::Fenced) };
            revision = told.header.map_or(0, |header| header.revision);
            first = before;
        }
        // What a leader compacts is older than its successor's claim, and so than all that anybody will read.
        match writer.reach.compact(revision).await {
            Ok(()) | Err(Trouble::Compacted) => {}
            Err(trouble) => tracing::warn!("etcd was not compacted, and will be with the next snapshot: {trouble}"),
        }
        Ok(Kept::Durable)
    }

    async fn newest(&self) -> Result<Option<(u64, Vec<u8>)>, NotTold> {
        loop {
            let (meta, revision) = self.reading(0).meta().await.map_err(not_told)?;
            let Some(snapshot) = meta.and_then(|meta| meta.snapshot) else { return Ok(None) };
            match self.reading(revision).snapshot(snapshot).await {
                // A newer one came, and this one went, while it was read.
                Err(NotRead::Trouble(Trouble::Compacted)) => {}
                told => return told.map(|bytes| Some((snapshot.sequence, bytes))).map_err(not_told),
            }
        }
    }

    async fn tail(&self, from: u64, each: Listener<'_>) -> Result<u64, NotTold> {
        self.reading(0).batches(from, each).await.map(|(next, _)| next).map_err(not_told)
    }
}

impl Rack for EtcdShelf {
    fn files(&self) -> Result<Vec<(u64, u64)>, NotTold> {
        self.writer.local.trail().files()
    }

    fn read(&self, number: u64, at: u64, into: &mut [u8]) -> Result<usize, NotTold> {
        self.writer.local.trail().read(number, at, into)
    }

    fn create(&self, number: u64, bytes: &[u8]) -> Result<Kept, Fault> {
        self.writer.local.trail().create(number, bytes)
    }

    fn write(&self, number: u64, at: u64, bytes: &[u8]) -> Result<Kept, Fault> {
        self.writer.local.trail().write(number, at, bytes)
    }

    fn sync(&self, number: u64) -> Result<Kept, Fault> {
        self.writer.local.trail().sync(number)
    }

    fn remove(&self, number: u64) -> Result<Kept, Fault> {
        self.writer.local.trail().remove(number)
    }

    fn label(&self, number: u64) -> String {
        self.writer.local.trail().label(number)
    }

    fn most(&self) -> u64 {
        u64::MAX
    }
}
