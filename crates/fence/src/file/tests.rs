//! What is in a log that this fence did not write: only a reader can still drop it.

use super::*;

fn place() -> (Cluster, Name<'static>) {
    (Cluster(*b"testing!"), Name::parse("jobs/settle").expect("a name"))
}

/// A log with these entries, written past the fence.
fn written_past_the_fence(path: &Path, entries: &[(Kind, u64)]) {
    let (cluster, name) = place();
    Log::create(path, cluster, name, 0).expect("created");
    let shelf = Shelf::open(path, &Place::new(cluster, name, 0)).expect("opened");
    for (index, (kind, number)) in (1..).zip(entries) {
        let head = Head { kind: *kind, index, number: *number, incarnation: 1, flags: 0 };
        let end = shelf.file.metadata().expect("its length").len();
        let entry = format::encode(shelf.salt, head, &number.to_le_bytes());
        shelf.file.write_all_at(&entry, end).expect("written");
    }
}

fn read(reader: &mut Reader) -> Vec<u64> {
    std::iter::from_fn(|| reader.next().expect("readable")).map(|entry| entry.number.get()).collect()
}

#[test]
fn a_reader_drops_what_lies_below_what_it_has_seen() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("events.log");
    let entries =
        [(Kind::Entry, 3), (Kind::Claim, 7), (Kind::Entry, 3), (Kind::Entry, 7), (Kind::Entry, 6), (Kind::Entry, 7)];
    written_past_the_fence(&path, &entries);
    let (cluster, name) = place();
    let mut reader = Reader::open(&path, cluster, name, 0).expect("opened");
    assert_eq!(read(&mut reader), [3, 7, 7]);
    assert_eq!(reader.dropped(), 2);
}

#[test]
fn a_reader_that_starts_again_drops_what_it_would_have_dropped() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("events.log");
    written_past_the_fence(&path, &[(Kind::Entry, 3), (Kind::Entry, 9), (Kind::Entry, 4), (Kind::Entry, 9)]);
    let (cluster, name) = place();
    let mut reader = Reader::open(&path, cluster, name, 0).expect("opened");
    for _ in 0..2 {
        reader.next().expect("readable").expect("there");
    }
    let kept = reader.checkpoint();
    assert_eq!(kept.mark, 9);
    let mut again = Reader::resume(&path, cluster, name, 0, kept).expect("resumed");
    assert_eq!((read(&mut again), again.dropped()), (vec![9], 1));
    let other = Reader::resume(&path, cluster, name, 0, Checkpoint { log: kept.log ^ 1, ..kept });
    assert_eq!(other.expect_err("of another log").code(), "CONFLICT");
}

#[test]
fn tokens_that_fell_in_a_log_do_not_lower_its_mark() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("events.log");
    written_past_the_fence(&path, &[(Kind::Entry, 9), (Kind::Entry, 4)]);
    let (cluster, name) = place();
    let mut log = Log::open(&path, cluster, name, 0).expect("opened");
    assert_eq!(log.mark().expect("there"), Number::new(9));
}
