//! Signed heads: they are stored beside the log, and reveal a log that was cut or rewritten (A13).

use std::cell::RefCell;
use std::sync::Arc;

use leasehold_core::token::Cluster;
use leasehold_seal::{Domain, Seal, SealKey, SealKeys};
use leasehold_server::audit::{
    AuditHead, ExpectedEntry, HeadCheck, HeadSigner, SignedHead, VerifyError, encode_heads, frame, hex, link,
    parse_heads, verify, verify_export, verify_export_with, verify_with,
};
use leasehold_server::journal::file::FileJournal;
use leasehold_server::journal::{AppendOutcome, AuditFiles, Journal};
use leasehold_server::recovery::Backlog;
use leasehold_server::snapshotter::{SnapshotConfig, Snapshotter};
use serde_json::Value;

use crate::fixture::{
    entries, export, memory_harness, newest_audit_file, open_on, rewrite_newest_audit_file, small_files,
};
use crate::journal_support::simulated_disk::SimulatedDisk;
use crate::snapshot_support::{GrantorHarness, poll_ready, snapshot_metrics};

/// Keys of a server: the last one signs.
#[derive(Debug)]
pub struct TestKeys(pub Vec<SealKey>);

impl HeadSigner for TestKeys {
    fn sign(&self, domain: Domain, bytes: &[u8]) -> Option<Seal> {
        self.0.last().map(|key| key.sign_bytes(domain, bytes))
    }

    fn keys(&self) -> SealKeys {
        SealKeys::new(self.0.iter().map(SealKey::public)).expect("different keys")
    }
}

pub fn one_key() -> Arc<TestKeys> {
    Arc::new(TestKeys(vec![SealKey::generate(0).expect("a key")]))
}

/// The cluster of the harness.
const CLUSTER: Cluster = Cluster(*b"the-keep");

thread_local! {
    static WARNINGS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

fn config() -> SnapshotConfig {
    SnapshotConfig { warn: |line| WARNINGS.with_borrow_mut(|lines| lines.push(line.to_owned())), ..small_files() }
}

/// Whether a snapshotter of this test has warned.
fn warned(part: &str) -> bool {
    WARNINGS.with_borrow(|lines| lines.iter().any(|line| line.contains(part)))
}

/// The snapshotter of a server that starts: it has compared the log with what is known of it.
fn started<J: Journal>(journal: &J, cluster: Cluster, keys: &Arc<TestKeys>) -> Snapshotter<J::Snapshots> {
    let snapshotter = Snapshotter::new(journal.snapshots(), config(), Backlog::default(), snapshot_metrics());
    let mut snapshotter = snapshotter.with_heads(cluster, Some(keys.clone() as Arc<dyn HeadSigner>));
    snapshotter.check_audit_end();
    snapshotter
}

fn stored(files: &dyn AuditFiles) -> Vec<SignedHead> {
    parse_heads(&files.heads().expect("the disk works")[..]).expect("stored heads are valid")
}

fn check(heads: &[SignedHead], keys: &TestKeys) -> HeadCheck {
    let known: Vec<AuditHead> = heads.iter().map(|head| head.verify(&keys.keys()).expect("a valid head")).collect();
    HeadCheck::new(known.iter().map(ExpectedEntry::from), None).expect("no contradiction")
}

#[test]
fn the_end_of_a_log_is_signed_stored_and_verified() {
    let (mut harness, keys) = (memory_harness(), one_key());
    let cluster = CLUSTER;
    harness.acquire_and_release(None, 0..10);
    let head = poll_ready(started(&harness.journal, cluster, &keys).write_audit()).expect("the journal works");
    let files = harness.journal.snapshots();
    let heads = stored(&files);
    assert_eq!(heads.len(), 1);
    assert_eq!((heads[0].entry, &heads[0].hash, heads[0].position), (head.entries, &hex(&head.hash), head.position));
    assert_eq!(heads[0].verify_for(&keys.keys(), cluster), Ok(head));
    assert_eq!(verify_with(&files, head, check(&heads, &keys)).map(|proof| proof.heads), Ok(1));

    // Within a minute and 10,000 entries there is no other head, unless the server starts again.
    harness.acquire_and_release(None, 10..20);
    let mut snapshotter = started(&harness.journal, cluster, &keys);
    poll_ready(snapshotter.write_audit()).expect("the journal works");
    harness.acquire_and_release(None, 20..30);
    poll_ready(snapshotter.write_audit()).expect("the journal works");
    assert_eq!(stored(&files).len(), 2);
    let again = started(&harness.journal, cluster, &keys);
    drop(again);
    assert_eq!(stored(&files).len(), 2, "a log that did not grow gets no head");
}

#[test]
fn a_log_of_ten_thousand_entries_gets_a_head_within_the_minute() {
    let (mut harness, keys) = (memory_harness(), one_key());
    let mut snapshotter = started(&harness.journal, CLUSTER, &keys);
    poll_ready(snapshotter.write_audit()).expect("the journal works");
    let files = harness.journal.snapshots();
    assert_eq!(stored(&files).len(), 1);
    harness.acquire_and_release(None, 0..6_000);
    poll_ready(snapshotter.write_audit()).expect("the journal works");
    assert_eq!(stored(&files).len(), 2);
}

/// A disk with a log that was signed, closed in order.
fn signed_disk(keys: &Arc<TestKeys>) -> (SimulatedDisk, Cluster, AuditHead) {
    let disk = SimulatedDisk::new();
    let (journal, replayed) = open_on(&disk);
    let mut harness = GrantorHarness::open(replayed.recovered, journal);
    harness.acquire_and_release(None, 0..6);
    let cluster = CLUSTER;
    let head = poll_ready(started(&harness.journal, cluster, keys).write_audit()).expect("the disk works");
    (disk, cluster, head)
}

/// Removes the newest file, and cuts the one before it after its first entry.
fn cut_tail(disk: &SimulatedDisk) {
    disk.remove_file(&newest_audit_file(disk));
    let name = newest_audit_file(disk);
    disk.tamper(&name, |bytes| {
        let (_, salt) = frame::FileHeader::decode(bytes).expect("a header");
        let frame::Frame::Entry { end, .. } = frame::read(salt, bytes, frame::HEADER_BYTES) else { panic!("an entry") };
        bytes.truncate(end);
    });
}

fn restart(disk: &SimulatedDisk, cluster: Cluster, keys: &Arc<TestKeys>) -> (FileJournal<SimulatedDisk>, AuditHead) {
    let (journal, _) = open_on(disk);
    let head = poll_ready(started(&journal, cluster, keys).write_audit()).expect("the disk works");
    (journal, head)
}

#[test]
fn a_shortened_log_is_reported_at_the_start_and_derived_again_from_the_journal() {
    let keys = one_key();
    let (disk, cluster, head) = signed_disk(&keys);
    cut_tail(&disk);
    let (journal, again) = restart(&disk, cluster, &keys);
    assert!(warned(&format!("but a signed head names entry {}", head.entries)), "it is reported");
    assert_eq!((again.entries, again.hash), (head.entries, head.hash), "every entry is back");
    let files = journal.snapshots();
    assert_eq!(verify_with(&files, again, check(&stored(&files), &keys)).map(|proof| proof.gaps), Ok(0));
}

#[test]
fn a_shortened_log_whose_batches_are_gone_gets_a_gap_and_reuses_no_number() {
    let keys = one_key();
    let (disk, cluster, _) = signed_disk(&keys);
    let (journal, _) = open_on(&disk);
    let mut snapshotter = started(&journal, cluster, &keys);
    // The snapshot trims the journal; its head is older than the one that is signed after it.
    poll_ready(snapshotter.snapshot()).expect("the disk works");
    drop(snapshotter);
    let known = stored(&journal.snapshots()).pop().expect("a head");
    drop(journal);
    cut_tail(&disk);
    let (journal, head) = restart(&disk, cluster, &keys);
    assert!(warned(&format!("names entry {}", known.entry)), "it is reported");
    let gap = entries(&journal.snapshots(), head).pop().expect("entries");
    assert_eq!((gap["kind"].as_str(), gap["entry"].as_u64()), (Some("gap"), Some(known.entry + 1)));
    assert!(gap["why"].as_str().is_some_and(|why| why.contains("lost entries")), "{gap}");
}

#[test]
fn a_log_that_was_rewritten_is_recorded_as_a_gap_and_revealed_by_its_heads() {
    let keys = one_key();
    let (disk, cluster, head) = signed_disk(&keys);
    rewrite_newest_audit_file(&disk, head.position);
    let heads = stored(&open_on(&disk).0.snapshots());
    let (journal, again) = restart(&disk, cluster, &keys);
    let files = journal.snapshots();
    assert!(verify(&files, again).is_ok(), "the chain has no key");
    let gaps: Vec<Value> = entries(&files, again).into_iter().filter(|entry| entry["kind"] == "gap").collect();
    assert!(gaps.iter().any(|gap| gap["why"].as_str().is_some_and(|why| why.contains("was changed"))), "{gaps:?}");
    match verify_with(&files, again, check(&heads, &keys)) {
        Err(VerifyError::Damaged { reason, .. }) => assert!(reason.contains("was rewritten"), "{reason}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn stored_heads_of_another_key_or_cluster_are_reported_and_not_used() {
    let keys = one_key();
    let (disk, cluster, head) = signed_disk(&keys);
    let end = AuditHead { entries: 1 << 40, ..head };
    let foreign = SignedHead::sign(&*one_key(), cluster, end, 0).expect("signed");
    let other = SignedHead::sign(&*keys, Cluster(*b"another1"), end, 0).expect("signed");
    let (journal, _) = open_on(&disk);
    let files = journal.snapshots();
    let mut heads = stored(&files);
    heads.extend([foreign.clone(), other]);
    assert_eq!(files.put_heads(&encode_heads(&heads)), Ok(AppendOutcome::Durable));
    let again = poll_ready(started(&journal, cluster, &keys).write_audit()).expect("the disk works");
    assert!(again.entries < 1 << 20, "a forged head does not move the log");
    assert!(warned(&format!("signed by the unknown key {}", foreign.kid)));
    assert!(warned("is of another cluster, 616e6f7468657231"));
}

#[test]
fn an_exported_file_that_was_cut_or_rewritten_is_revealed_by_its_heads() {
    let (mut harness, keys) = (memory_harness(), one_key());
    let cluster = CLUSTER;
    let mut heads = Vec::new();
    let mut head = AuditHead::default();
    for round in 0..3 {
        harness.acquire_and_release(None, round * 5..round * 5 + 5);
        head = poll_ready(started(&harness.journal, cluster, &keys).write_audit()).expect("the journal works");
        heads = stored(&harness.journal.snapshots());
        assert_eq!(heads.len(), round + 1);
    }
    let file = String::from_utf8(export(&harness.journal.snapshots(), head)).expect("UTF-8");
    let known = || check(&heads, &keys);
    assert_eq!(verify_export_with(file.as_bytes(), known()).map(|proof| proof.heads), Ok(3));

    let lines: Vec<&str> = file.lines().collect();
    let entry_at = |line: usize| serde_json::from_str::<Value>(lines[line]).expect("an entry");
    // Cut at the end, and closed again.
    let last = entry_at(lines.len() - 5);
    let end = format!("{{\"end\":{},\"hash\":{}}}", last["entry"], last["hash"]);
    let cut = format!("{}\n{end}\n", lines[..lines.len() - 4].join("\n"));
    verify_export(cut.as_bytes()).expect("the chain has no key");
    let error = verify_export_with(cut.as_bytes(), known()).expect_err("cut").reason;
    assert!(error.contains(&format!("entry {} is expected", head.entries)) && error.contains("were cut"), "{error}");

    // Rewritten from the second half on, with a valid chain; also without one entry in the middle.
    for drop_one in [false, true] {
        let from = lines.len() / 2;
        let before = entry_at(from - 1);
        let mut hash = leasehold_server::audit::unhex(before["hash"].as_str().expect("text")).expect("a hash");
        let (mut next, mut forged) = (before["entry"].as_u64().expect("a number"), lines[..from].join("\n"));
        for line in &lines[from + usize::from(drop_one)..lines.len() - 1] {
            let (text, _) = line.rsplit_once(",\"hash\"").expect("an entry");
            let (_, rest) = text.split_once(',').expect("fields");
            next += 1;
            let text = format!("{{\"entry\":{next},{}}}", rest.replace("worker-", "walker-"));
            hash = link(&hash, text.as_bytes());
            forged += &format!("\n{},\"hash\":\"{}\"}}", text.strip_suffix('}').expect("an object"), hex(&hash));
        }
        forged += &format!("\n{{\"end\":{next},\"hash\":\"{}\"}}\n", hex(&hash));
        verify_export(forged.as_bytes()).expect("the chain has no key");
        let error = verify_export_with(forged.as_bytes(), known()).expect_err("rewritten").reason;
        assert!(error.contains(&format!("was rewritten after entry {}", heads[0].entry)), "{error}");
    }

    // A number that occurs twice, and one that is missing.
    let twice = [&lines[..6], &lines[5..]].concat().join("\n") + "\n";
    let error = verify_export_with(twice.as_bytes(), known()).expect_err("twice");
    assert_eq!((error.line, error.reason.as_str()), (7, "expected entry 6, got 5"));
    let missing = [&lines[..5], &lines[6..]].concat().join("\n") + "\n";
    let error = verify_export_with(missing.as_bytes(), known()).expect_err("missing");
    assert_eq!((error.line, error.reason.as_str()), (6, "expected entry 5, got 6"));
}
