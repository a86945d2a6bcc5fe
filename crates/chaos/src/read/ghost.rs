//! The log of every target as it lies there, read past its fence: what was applied, in the order in which it was.

use std::io;
use std::path::Path;

use leasehold_core::token::Cluster;
use leasehold_fence::file::Log;
use leasehold_fence::postgres::{Fence, install};
use leasehold_sim::ask::EXCLUSIVE;
use tokio_postgres::Client;

use crate::holder::target::{Kind, log, name, twin};

/// Something that was applied at a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are named by the vocabulary")]
pub struct Ghost {
    pub target: u32,
    pub number: u64,
    pub who: u32,
    pub op: u64,
}

/// Makes the targets, armed as fresh.
pub async fn arm(files: &Path, cluster: Cluster, db: &Client) -> io::Result<()> {
    let table = "CREATE TABLE written (place bigserial PRIMARY KEY, resource bigint NOT NULL, number bigint NOT NULL, \
                 who bigint NOT NULL, op bigint NOT NULL)";
    db.batch_execute(table).await.map_err(io::Error::other)?;
    install(db).await.map_err(told)?;
    for resource in 0..EXCLUSIVE.len() {
        Log::create(&log(files, resource), cluster, name(resource), 0).map_err(told)?;
        Fence::new(cluster, name(resource), 0).arm(db).await.map_err(told)?;
    }
    Ok(())
}

fn told(error: leasehold_fence::Error) -> io::Error {
    io::Error::other(error.to_string())
}

/// What lies in the logs, or in their twins.
pub fn files(files: &Path, kind: Kind) -> io::Result<Vec<Ghost>> {
    let mut all = Vec::new();
    for resource in 0..EXCLUSIVE.len() {
        let path = if kind == Kind::Twin { twin(files, resource) } else { log(files, resource) };
        // A twin to which nobody wrote is not there.
        let Ok(bytes) = std::fs::read(path) else { continue };
        all.extend(entries(&bytes, kind.target(resource)));
    }
    Ok(all)
}

/// Every entry in these bytes, whatever stands between them.
fn entries(bytes: &[u8], target: u32) -> Vec<Ghost> {
    let mut found = Vec::new();
    let mut rest = bytes;
    while let Some(from) = position(rest, b"[[") {
        rest = &rest[from + 2..];
        let Some(until) = position(rest, b"]]\n") else { break };
        let words = str::from_utf8(&rest[..until]).unwrap_or_default();
        let mut words = words.split(' ').map(str::parse::<u64>);
        if let (Some(Ok(number)), Some(Ok(who)), Some(Ok(op)), None) =
            (words.next(), words.next(), words.next(), words.next())
        {
            found.push(Ghost { target, number, who: who as u32, op });
            rest = &rest[until..];
        }
    }
    found
}

fn position(bytes: &[u8], of: &[u8]) -> Option<usize> {
    bytes.windows(of.len()).position(|window| window == of)
}

/// What lies in the table.
pub async fn table(db: &Client) -> io::Result<Vec<Ghost>> {
    let rows = db.query("SELECT resource, number, who, op FROM written ORDER BY place", &[]).await;
    let rows = rows.map_err(io::Error::other)?;
    let column = |row: &tokio_postgres::Row, at| u64::try_from(row.get::<_, i64>(at)).unwrap_or(0);
    let ghost = |row| Ghost {
        target: Kind::Postgres.target(column(row, 0) as usize),
        number: column(row, 1),
        who: column(row, 2) as u32,
        op: column(row, 3),
    };
    Ok(rows.iter().map(ghost).collect())
}

/// The mark of every fenced target, by the target's number.
pub async fn marks(files: &Path, cluster: Cluster, db: &Client) -> io::Result<Vec<(u32, u64)>> {
    let mut marks = file_marks(files, cluster)?;
    for resource in 0..EXCLUSIVE.len() {
        let mark = Fence::new(cluster, name(resource), 0).mark(db).await.map_err(told)?;
        marks.push((Kind::Postgres.target(resource), mark.map_or(0, |mark| mark.get())));
    }
    Ok(marks)
}

/// Those of the logs alone.
pub fn file_marks(files: &Path, cluster: Cluster) -> io::Result<Vec<(u32, u64)>> {
    let mark = |resource| {
        let mut log = Log::open(&log(files, resource), cluster, name(resource), 0).map_err(told)?;
        let mark = log.mark().map_err(told)?;
        Ok((Kind::File.target(resource), mark.map_or(0, |mark| mark.get())))
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
        let ghost = |number, who, op| Ghost { target: 5, number, who, op };
        assert_eq!(found, [ghost(7, 2, 9), ghost(8, 3, 10)]);
    }
}
