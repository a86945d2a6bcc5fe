//! Golden files of journal format version 1: every later version reads them, and writes the same bytes.

mod journal_support;

use std::fs;
use std::path::Path;

use journal_support::simulated_disk::SimulatedDisk;
use journal_support::{append, open_on, save, small_segments};
use leasehold_server::journal::conformance::batch;

const FILES: [&str; 5] = [
    "journal",
    "segment-00000000000000000001",
    "segment-00000000000000000002",
    "snapshot-00000000000000000003",
    "snapshot-00000000000000000006",
];

fn golden(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/golden/journal-v1").join(name);
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Writes the golden journal: eight batches in two segments, two snapshots, two opens.
fn write_journal() -> SimulatedDisk {
    let disk = SimulatedDisk::new();
    for round in [1..=4, 5..=8] {
        let mut journal = open_on(disk.clone(), &small_segments()).expect("the disk works").0.journal;
        for sequence in round {
            append(&mut journal, &batch(sequence)).expect("the disk works");
            if sequence.is_multiple_of(3) {
                save(&journal, sequence, format!("the state after {sequence}").as_bytes()).expect("the disk works");
            }
        }
    }
    disk
}

#[test]
fn the_golden_journal_is_read() {
    let disk = SimulatedDisk::new();
    for name in FILES {
        disk.add_file(name, &golden(name));
    }
    let (opened, replay) = open_on(disk, &small_segments()).expect("version 1 stays readable");
    assert_eq!(opened.warnings, Vec::<String>::new());
    assert_eq!(replay.snapshot, Some((6, b"the state after 6".to_vec())));
    assert_eq!(replay.batches, [(7, batch(7)), (8, batch(8))]);
    assert_eq!(leasehold_server::journal::Journal::generation(&opened.journal), 3);
}

#[test]
fn the_golden_log_is_read_without_snapshots() {
    let disk = SimulatedDisk::new();
    for name in &FILES[..3] {
        disk.add_file(name, &golden(name));
    }
    let (_, replay) = open_on(disk, &small_segments()).expect("version 1 stays readable");
    assert_eq!(replay.batches, (1..=8).map(|at| (at, batch(at))).collect::<Vec<_>>());
}

#[test]
fn the_written_bytes_equal_the_golden_journal() {
    let disk = write_journal();
    for name in FILES {
        assert!(disk.bytes(name) == golden(name), "{name} differs from version 1");
    }
}

#[test]
fn the_golden_headers_match_the_documented_format() {
    let first = golden(FILES[1]);
    assert_eq!(first[..16], *b"LHSEGMNT\x01\0\0\0\0\0\0\0");
    assert_eq!(first[16..32], [1; 16], "the journal id");
    assert_eq!(first[32..56], [[1, 0, 0, 0, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0, 0, 0], [0, 16, 0, 0, 0, 0, 0, 0]].concat());
    assert_eq!(first[60..64], crc32fast::hash(&first[..60]).to_le_bytes());
    let length = batch(1).len();
    assert_eq!(first[64..68], (length as u32).to_le_bytes());
    assert_eq!(first[72..80], 1_u64.to_le_bytes());
    assert_eq!(first[80..80 + length], batch(1));
    let snapshot = golden(FILES[4]);
    assert_eq!(snapshot[..16], *b"LHSNAPSH\x01\0\0\0\0\0\0\0");
    assert_eq!(snapshot[32..40], 6_u64.to_le_bytes());
    assert_eq!(snapshot[40..48], 17_u64.to_le_bytes());
    assert_eq!(&snapshot[64..], b"the state after 6");
    assert_eq!(golden("journal")[..8], *b"LHJOURNL");
}
