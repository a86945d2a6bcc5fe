//! Writes that targets applied, in order, read from their files and tables without the fence.

use leasehold_sim::run_constants::EXCLUSIVE;
use std::io;
use std::path::Path;

use leasehold_core::token::Cluster;
use leasehold_fence::file::FencedLog;
use leasehold_fence::postgres::{Fence, install};
use tokio_postgres::Client;

use crate::holder::target::{TargetKind, fence_id, log, twin};

/// A write that a target applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the glossary defines these names")]
pub struct AppliedWrite {
    pub target: u32,
    pub number: u64,
    pub holder: u32,
    pub op: u64,
}

/// Creates the targets and arms their fences as fresh.
pub async fn arm(files: &Path, cluster: Cluster, db: &Client) -> io::Result<()> {
    let table = "CREATE TABLE written (place bigserial PRIMARY KEY, resource bigint NOT NULL, number bigint NOT NULL, \
                 holder bigint NOT NULL, op bigint NOT NULL)";
    db.batch_execute(table).await.map_err(io::Error::other)?;
    install(db).await.map_err(io_error)?;
    for resource in 0..EXCLUSIVE.len() {
        let id = fence_id(cluster, resource);
        FencedLog::create(&log(files, resource), &id).map_err(io_error)?;
        Fence::new(&id).arm(db).await.map_err(io_error)?;
    }
    Ok(())
}

fn io_error(error: leasehold_fence::Error) -> io::Error {
    io::Error::other(error.to_string())
}

/// Writes in the fenced logs, or in their unfenced twins.
pub fn files(files: &Path, kind: TargetKind) -> io::Result<Vec<AppliedWrite>> {
    let mut all = Vec::new();
    for resource in 0..EXCLUSIVE.len() {
        let path = if kind == TargetKind::Twin { twin(files, resource) } else { log(files, resource) };
        // A twin without writes has no file.
        let Ok(bytes) = std::fs::read(path) else { continue };
        all.extend(entries(&bytes, kind.target(resource)));
    }
    Ok(all)
}

/// Every entry in these bytes, with any bytes between entries.
fn entries(bytes: &[u8], target: u32) -> Vec<AppliedWrite> {
    let mut found = Vec::new();
    let mut rest = bytes;
    while let Some(from) = position(rest, b"[[") {
        rest = &rest[from + 2..];
        let Some(until) = position(rest, b"]]\n") else { break };
        let words = str::from_utf8(&rest[..until]).unwrap_or_default();
        let mut words = words.split(' ').map(str::parse::<u64>);
        if let (Some(Ok(number)), Some(Ok(holder)), Some(Ok(op)), None) =
            (words.next(), words.next(), words.next(), words.next())
        {
            found.push(AppliedWrite { target, number, holder: holder as u32, op });
            rest = &rest[until..];
        }
    }
    found
}

fn position(bytes: &[u8], of: &[u8]) -> Option<usize> {
    bytes.windows(of.len()).position(|window| window == of)
}

/// Writes in the PostgreSQL table.
pub async fn table(db: &Client) -> io::Result<Vec<AppliedWrite>> {
    let rows = db.query("SELECT resource, number, holder, op FROM written ORDER BY place", &[]).await;
    let rows = rows.map_err(io::Error::other)?;
    let column = |row: &tokio_postgres::Row, at| u64::try_from(row.get::<_, i64>(at)).unwrap_or(0);
    let applied_write = |row| AppliedWrite {
        target: TargetKind::Postgres.target(column(row, 0) as usize),
        number: column(row, 1),
        holder: column(row, 2) as u32,
        op: column(row, 3),
    };
    Ok(rows.iter().map(applied_write).collect())
}

/// The mark of every fenced target, by target number.
pub async fn marks(files: &Path, cluster: Cluster, db: &Client) -> io::Result<Vec<(u32, u64)>> {
    let mut marks = file_marks(files, cluster)?;
    for resource in 0..EXCLUSIVE.len() {
        let mark = Fence::new(&fence_id(cluster, resource)).mark(db).await.map_err(io_error)?;
        marks.push((TargetKind::Postgres.target(resource), mark.map_or(0, |mark| mark.get())));
    }
    Ok(marks)
}

/// Marks of the fenced logs only.
pub fn file_marks(files: &Path, cluster: Cluster) -> io::Result<Vec<(u32, u64)>> {
    let mark = |resource| {
        let mut log = FencedLog::open(&log(files, resource), &fence_id(cluster, resource)).map_err(io_error)?;
        let mark = log.mark().map_err(io_error)?;
        Ok((TargetKind::File.target(resource), mark.map_or(0, |mark| mark.get())))
    };
    (0..EXCLUSIVE.len()).map(mark).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::holder::target::entry;

    #[test]
    fn entries_are_found_between_any_bytes() {
        let (first, second) = (entry(7, 2, 9), entry(8, 3, 10));
        let bytes = [b"\x00[[\xff".as_slice(), first.as_bytes(), b"[[x]]\n\x01", second.as_bytes()];
        let found = entries(&bytes.concat(), 5);
        let applied_write = |number, holder, op| AppliedWrite { target: 5, number, holder, op };
        assert_eq!(found, [applied_write(7, 2, 9), applied_write(8, 3, 10)]);
    }
}
