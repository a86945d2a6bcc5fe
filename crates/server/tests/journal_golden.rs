//! The stored forms of version 1, for ever: what is in the golden files is read, and written again byte for byte.

mod journal_support;

use std::fs;
use std::path::Path;

use journal_support::simulated_disk::Power;
use journal_support::{append, open_on, save, small};
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

/// What the golden files tell: eight batches in two segments, two snapshots, two opens.
fn written() -> Power {
    let power = Power::new();
    for round in [1..=4, 5..=8] {
        let mut journal = open_on(power.clone(), &small()).expect("the disk is well").0.journal;
        for sequence in round {
            append(&mut journal, &batch(sequence)).expect("the disk is well");
            if sequence.is_multiple_of(3) {
                save(&journal, sequence, format!("the state after {sequence}").as_bytes()).expect("the disk is well");
            }
        }
    }
    power
}

#[test]
fn the_golden_journal_is_read() {
    let power = Power::new();
    for name in FILES {
        power.plant(name, &golden(name));
    }
    let (opened, told) = open_on(power, &small()).expect("version 1 is read for ever");
    assert_eq!(opened.warnings, Vec::<String>::new());
    assert_eq!(told.snapshot, Some((6, b"the state after 6".to_vec())));
    assert_eq!(told.batches, [(7, batch(7)), (8, batch(8))]);
    assert_eq!(leasehold_server::journal::Journal::generation(&opened.journal), 3);
}

#[test]
fn the_golden_log_is_read_without_its_snapshots() {
    let power = Power::new();
    for name in &FILES[..3] {
        power.plant(name, &golden(name));
    }
    let (_, told) = open_on(power, &small()).expect("version 1 is read for ever");
    assert_eq!(told.batches, (1..=8).map(|at| (at, batch(at))).collect::<Vec<_>>());
}

#[test]
fn what_is_written_today_is_the_golden_journal() {
    let power = written();
    for name in FILES {
        assert!(power.bytes(name) == golden(name), "{name} has other bytes than version 1");
    }
}

#[test]
fn the_golden_headers_say_what_the_format_says() {
    let first = golden(FILES[1]);
    assert_eq!(first[..16], *b"LHSEGMNT\x01\0\0\0\0\0\0\0");
    assert_eq!(first[16..32], [1; 16], "the journal");
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
