//! A snapshotter with small audit files, and helpers that read the whole log.

use leasehold_server::audit::{AuditExport, AuditHead, AuditQuery, Retention, frame, link, query, scan};
use leasehold_server::journal::file::FileJournal;
use leasehold_server::journal::memory::{Memory, MemoryJournal};
use leasehold_server::journal::{AuditFiles, Journal, JournalLocation};
use leasehold_server::recovery::Backlog;
use leasehold_server::snapshotter::{SnapshotConfig, Snapshotter};
use serde_json::Value;

use crate::journal_support::simulated_disk::SimulatedDisk;
use crate::journal_support::small_segments;
use crate::snapshot_support::{GrantorHarness, ReplayedState, poll_ready, snapshot_config, snapshot_metrics};

/// Audit files of 2 kB, so that a short test fills several.
pub fn small_files() -> SnapshotConfig {
    SnapshotConfig { audit: Retention { file_bytes: 2_000, ..Retention::default() }, ..snapshot_config(0) }
}

pub fn snapshotter<J: Journal>(journal: &J) -> Snapshotter<J::Snapshots> {
    Snapshotter::new(journal.snapshots(), small_files(), Backlog::default(), snapshot_metrics())
}

pub fn open_on(disk: &SimulatedDisk) -> (FileJournal<SimulatedDisk>, ReplayedState) {
    let mut replayed = ReplayedState::default();
    let opened = FileJournal::open_on(disk.clone(), &small_segments(), &mut replayed);
    (opened.unwrap_or_else(|error| panic!("{error}")).journal, replayed)
}

pub fn memory_harness() -> GrantorHarness<MemoryJournal> {
    let journal =
        poll_ready(Memory::new().open(&mut ReplayedState::default())).expect("the memory journal works").journal;
    GrantorHarness::open(ReplayedState::default().recovered, journal)
}

/// All entries, oldest first.
pub fn entries(audit_files: &dyn AuditFiles, head: AuditHead) -> Vec<Value> {
    let all = AuditQuery { oldest_first: true, limit: usize::MAX, max_bytes: u64::MAX, ..AuditQuery::default() };
    let page = query(audit_files, head, &all, None).expect("the audit log is readable");
    assert_eq!(page.next, None);
    page.entries.iter().map(|(text, _)| serde_json::from_str(text).expect("an entry is JSON")).collect()
}

pub fn export(audit_files: &dyn AuditFiles, head: AuditHead) -> Vec<u8> {
    let mut export = AuditExport::new(head);
    let mut file = Vec::new();
    while let Some(lines) = export.lines(audit_files).expect("the audit log is readable") {
        file.extend(lines);
    }
    file
}

/// The newest file of the audit log.
pub fn newest_audit_file(disk: &SimulatedDisk) -> String {
    disk.contents().into_keys().rfind(|name| name.starts_with("trail-")).expect("a file of the audit log")
}

/// Rewrites the newest file as someone would who can write it: other entries with a valid chain.
pub fn rewrite_newest_audit_file(disk: &SimulatedDisk, position: u64) {
    disk.tamper(&newest_audit_file(disk), |bytes| {
        let (header, salt) = frame::FileHeader::decode(bytes).expect("a header");
        let mut texts = Vec::new();
        scan(bytes, true, |entry| texts.push((entry.key, entry.text.to_vec()))).expect("an intact file");
        bytes.truncate(frame::HEADER_BYTES);
        let mut hash = header.previous;
        for (key, text) in texts {
            let text = String::from_utf8(text).expect("UTF-8").replace("worker-", "walker-").into_bytes();
            hash = link(&hash, &text);
            frame::put(salt, key, &text, &hash, bytes);
        }
        frame::put_checkpoint(salt, position, &[0; 32], bytes);
    });
}
