//! Stale entries that a writer appended without the fence: only a reader can drop them.

use leasehold_core::token::Cluster;

use super::*;

fn id() -> FenceId {
    FenceId::new(Cluster(*b"testing!"), "jobs/settle").expect("a name")
}

/// Creates a log and appends these entries without the fence.
fn append_without_fence(path: &Path, entries: &[(EntryKind, u64)]) {
    FencedLog::create(path, &id()).expect("created");
    let log_file = LogFile::open(path, &id()).expect("opened");
    for (index, (kind, number)) in (1..).zip(entries) {
        let head = EntryHead { kind: *kind, index, number: *number, incarnation: 1, flags: 0 };
        let end = log_file.file.metadata().expect("its length").len();
        let entry = log_format::encode(log_file.salt, head, &number.to_le_bytes());
        log_file.file.write_all_at(&entry, end).expect("written");
    }
}

fn read(reader: &mut LogReader) -> Vec<u64> {
    std::iter::from_fn(|| reader.next().expect("readable")).map(|entry| entry.number.get()).collect()
}

#[test]
fn a_reader_drops_entries_below_its_mark() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("events.log");
    let entries = [
        (EntryKind::Entry, 3),
        (EntryKind::Claim, 7),
        (EntryKind::Entry, 3),
        (EntryKind::Entry, 7),
        (EntryKind::Entry, 6),
        (EntryKind::Entry, 7),
    ];
    append_without_fence(&path, &entries);
    let mut reader = LogReader::open(&path, &id()).expect("opened");
    assert_eq!(read(&mut reader), [3, 7, 7]);
    assert_eq!(reader.dropped(), 2);
}

#[test]
fn a_resumed_reader_drops_the_same_entries() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("events.log");
    append_without_fence(
        &path,
        &[(EntryKind::Entry, 3), (EntryKind::Entry, 9), (EntryKind::Entry, 4), (EntryKind::Entry, 9)],
    );
    let mut reader = LogReader::open(&path, &id()).expect("opened");
    for _ in 0..2 {
        reader.next().expect("readable").expect("there");
    }
    let checkpoint = reader.checkpoint();
    assert_eq!(checkpoint.mark, 9);
    let mut resumed = LogReader::resume(&path, &id(), checkpoint).expect("resumed");
    assert_eq!((read(&mut resumed), resumed.dropped()), (vec![9], 1));
    let other = LogReader::resume(&path, &id(), Checkpoint { log: checkpoint.log ^ 1, ..checkpoint });
    assert_eq!(other.expect_err("another log").code(), "CONFLICT");
}

#[test]
fn a_lower_token_in_a_log_does_not_lower_its_mark() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("events.log");
    append_without_fence(&path, &[(EntryKind::Entry, 9), (EntryKind::Entry, 4)]);
    let mut log = FencedLog::open(&path, &id()).expect("opened");
    assert_eq!(log.mark().expect("there"), Number::new(9));
}
