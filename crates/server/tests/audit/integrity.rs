//! Verification: any changed, missing or damaged entry is detected.

use leasehold_server::audit::{
    AuditEntry, ExpectedEntry, ExportLineError, HeadCheck, VerifyError, frame, hex, scan, verify, verify_export,
    verify_export_with,
};
use leasehold_server::journal::{AuditFiles, Journal};
use leasehold_testkit::depth::depth;
use proptest::prelude::*;

use crate::fixture::{export, memory_harness, open_on, snapshotter};
use crate::journal_support::simulated_disk::SimulatedDisk;
use crate::snapshot_support::{GrantorHarness, poll_ready};

#[test]
fn an_export_verifies_without_a_server_and_a_changed_export_does_not() {
    let mut harness = memory_harness();
    harness.acquire_and_release(None, 0..40);
    let mut snapshotter = snapshotter(&harness.journal);
    let head = poll_ready(snapshotter.write_audit()).expect("the memory journal works");
    let snapshots = harness.journal.snapshots();
    assert!(snapshots.files().expect("the memory journal works").len() > 3, "the log has several files");
    let file = export(&snapshots, head);
    let verified = verify_export(&file[..]).expect("the export is intact");
    assert_eq!((verified.first, verified.last, verified.hash), (1, head.entries, head.hash));
    assert_eq!(verify(&snapshots, head), Ok(verified));

    let text = String::from_utf8(file).expect("the export is UTF-8");
    let lines: Vec<&str> = text.lines().collect();
    let verify_lines = |lines: &[&str]| verify_export(format!("{}\n", lines.join("\n")).as_bytes());
    assert_eq!(
        verify_lines(&lines[..lines.len() - 1]).map_err(|error| error.line),
        Err(lines.len() as u64),
        "a missing end"
    );
    assert_eq!(
        verify_lines(&[&lines[..5], &lines[6..]].concat()).map_err(|error| error.line),
        Err(6),
        "a removed line"
    );
    let mut swapped = lines.clone();
    swapped.swap(7, 8);
    assert_eq!(verify_lines(&swapped).map_err(|error| error.line), Err(8), "two swapped lines");
    let changed = lines[9].replace("worker-", "worker_");
    let mut altered = lines.clone();
    altered[9] = &changed;
    assert!(matches!(verify_lines(&altered), Err(ExportLineError { line: 10, .. })), "a changed line");
    assert!(verify_lines(&[&lines[..], &["{}"]].concat()).is_err(), "an added line");
}

#[test]
fn an_export_that_was_cut_or_rewritten_verifies_only_without_an_expected_entry() {
    let mut harness = memory_harness();
    harness.acquire_and_release(None, 0..10);
    let head = poll_ready(snapshotter(&harness.journal).write_audit()).expect("the memory journal works");
    let file = export(&harness.journal.snapshots(), head);
    let expected: ExpectedEntry = format!("{}:{}", head.entries, hex(&head.hash)).parse().expect("an entry");
    let verified = verify_export_with(&file[..], noted(expected)).expect("the export is intact");
    assert_eq!((verified.last, verified.gaps), (head.entries, 0));

    let text = String::from_utf8(file).expect("the export is UTF-8");
    let lines: Vec<&str> = text.lines().collect();
    let last = lines[lines.len() - 4];
    let entry: serde_json::Value = serde_json::from_str(last).expect("an entry");
    let trailer = format!("{{\"end\":{},\"hash\":{}}}", entry["entry"], entry["hash"]);
    let cut = format!("{}\n{trailer}\n", lines[..lines.len() - 3].join("\n"));
    verify_export(cut.as_bytes()).expect("the chain has no key");
    let error = verify_export_with(cut.as_bytes(), noted(expected)).expect_err("the expected entry is missing");
    assert!(error.reason.contains("were cut"), "{error}");

    let other = ExpectedEntry { hash: [7; 32], ..expected };
    let error = verify_export_with(text.as_bytes(), noted(other)).expect_err("another hash");
    assert!(error.reason.contains("it was") || error.reason.contains("rewritten"), "{error}");
    for wrong in ["", "7", "0:00", ":", "x:00", &format!("1:{}", "g".repeat(64)), &format!("0:{}", "0".repeat(64))] {
        assert!(wrong.parse::<ExpectedEntry>().is_err(), "{wrong}");
    }
}

/// A log must contain this entry.
fn noted(expected: ExpectedEntry) -> HeadCheck {
    HeadCheck::new([], Some(expected)).expect("one entry contradicts none")
}

#[test]
fn a_flipped_byte_is_reported_with_file_and_offset() {
    let disk = SimulatedDisk::new();
    let (journal, replayed) = open_on(&disk);
    let mut harness = GrantorHarness::open(replayed.recovered, journal);
    let mut snapshotter = snapshotter(&harness.journal);
    harness.acquire_and_release(None, 0..30);
    let head = poll_ready(snapshotter.write_audit()).expect("the disk works");
    let snapshots = harness.journal.snapshots();
    let intact = verify(&snapshots, head).expect("the log is intact");
    let files = snapshots.files().expect("the disk works");
    assert!(files.len() > 3);
    for (number, length) in files {
        let name = format!("trail-{number:020}");
        let bytes = disk.bytes(&name);
        let frames = frames(&bytes);
        for at in (0..length as usize).step_by(depth(199, 41, 3)) {
            disk.tamper(&name, |bytes| bytes[at] ^= 0x20);
            let result = verify(&snapshots, head);
            let in_checkpoint = frames.iter().any(|(from, to, checkpoint)| *checkpoint && (*from..*to).contains(&at));
            match result {
                Err(VerifyError::Damaged { file, offset, .. }) => {
                    assert!(file.ends_with(&name), "{name} at {at}: {file}");
                    let from = frames.iter().rfind(|(from, _, _)| *from <= at).map_or(0, |(from, _, _)| *from);
                    assert_eq!(offset as usize, from, "{name} at {at}");
                }
                // A checkpoint only records progress; no entry depends on it.
                Ok(_) if in_checkpoint => {}
                other => panic!("{name} at {at}: {other:?}"),
            }
            disk.tamper(&name, |bytes| bytes[at] ^= 0x20);
        }
    }
    assert_eq!(verify(&snapshots, head), Ok(intact));
}

/// Start and end of each frame of a file, and whether it is a checkpoint.
fn frames(bytes: &[u8]) -> Vec<(usize, usize, bool)> {
    let (_, salt) = frame::FileHeader::decode(bytes).expect("the file header is valid");
    let (mut at, mut frames) = (frame::HEADER_BYTES, Vec::new());
    loop {
        match frame::read(salt, bytes, at) {
            frame::Frame::Entry { end, .. } => frames.push((at, end, false)),
            frame::Frame::Checkpoint { end, .. } => frames.push((at, end, true)),
            _ => return frames,
        }
        at = frames.last().expect("a frame was pushed").1;
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_rejected_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let _ = scan(&bytes, true, |_| ());
        let cluster = leasehold_core::token::Cluster(*b"anything");
        let header = frame::FileHeader { cluster, first: 1, position: 0, previous: [0; 32], wall_ms: 0 }.encode();
        let framed = [&header[..], &bytes].concat();
        let scanned = scan(&framed, true, |_| ()).expect("the file header is valid");
        prop_assert!(scanned.damage.is_some() || bytes.is_empty());
        prop_assert_eq!(scanned.at, frame::HEADER_BYTES);
        prop_assert!(verify_export(&bytes[..]).is_err());
        let _ = AuditEntry::parse(&bytes);
    }
}
