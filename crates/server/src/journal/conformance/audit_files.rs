//! Check of the files of the audit log.

use super::{CheckResult, durable, open, same};
use crate::journal::{AppendOutcome, AuditFiles, Journal, JournalLocation, ReadError};

pub(super) async fn synced_files_are_durable<L: JournalLocation>(location: &L) -> CheckResult {
    let (mut journal, _) = open(location).await?;
    durable(&mut journal, 1).await?;
    let files = journal.snapshots();
    same("no files", &files.files(), &Ok(Vec::new()))?;
    for number in [2, 1, 3] {
        same("create", &files.create(number, b"begin"), &Ok(AppendOutcome::Durable))?;
    }
    same("create in place", &files.create(1, b"again"), &Ok(AppendOutcome::Durable))?;
    same("write", &files.write(1, 5, &[7; 3_000]), &Ok(AppendOutcome::Durable))?;
    same("sync", &files.sync(1), &Ok(AppendOutcome::Durable))?;
    same("no heads", &files.heads(), &Ok(Vec::new()))?;
    for heads in [&b"first\n"[..], b"a longer second\n", b"third\n"] {
        same("put heads", &files.put_heads(heads), &Ok(AppendOutcome::Durable))?;
    }
    same("remove", &files.remove(2), &Ok(AppendOutcome::Durable))?;
    same("remove a missing file", &files.remove(2), &Ok(AppendOutcome::Durable))?;
    drop((files, journal));
    let (journal, replay) = open(location).await?;
    same("batches", &replay.batches.len(), &1)?;
    let files = journal.snapshots();
    same("files", &files.files(), &Ok(vec![(1, 3_005), (3, 5)]))?;
    same("heads", &files.heads(), &Ok(b"third\n".to_vec()))?;
    let mut bytes = [0; 4_096];
    same("read", &files.read(1, 0, &mut bytes), &Ok(3_005))?;
    same("first bytes", &&bytes[..6], &&b"again\x07"[..])?;
    same("read from an offset", &files.read(1, 3_000, &mut bytes), &Ok(5))?;
    same("read beyond the end", &files.read(3, 9, &mut bytes), &Ok(0))?;
    match files.read(2, 0, &mut bytes) {
        Err(ReadError::Unreadable { .. }) => Ok(()),
        other => Err(format!("a removed file was read: {other:?}")),
    }
}
