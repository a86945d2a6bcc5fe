//! What entries contain, and how they are queried.

use std::sync::atomic::{AtomicU64, Ordering};

use leasehold_core::command::{Acquire, Answer, Command, LeaseSelector, Revoke};
use leasehold_core::lease::EndReason;
use leasehold_server::audit::{AuditEntry, AuditHead, AuditMatches, AuditQuery, frame, query};
use leasehold_server::journal::memory::MemoryJournal;
use leasehold_server::journal::{AppendOutcome, AuditFiles, Journal, JournalError, ReadError};
use serde_json::Value;

use crate::fixture::{entries, export, memory_harness, snapshotter};
use crate::snapshot_support::{GrantorHarness, poll_ready};

#[test]
fn every_change_has_an_entry_with_resource_holder_and_reason() {
    let mut harness = memory_harness();
    let session = harness.open_session(None, "worker-1");
    let acquire = Acquire { session: Some(session), ttl_ms: None, holder: "", ..Acquire::exclusive("a", "", 0) };
    assert!(matches!(harness.turn(None, Command::Acquire(acquire)), Ok(Answer::Granted(_))));
    let number = harness.acquire(None, "b", "worker-2");
    harness.release(None, "b", number);
    let revoked = harness.acquire(None, "c", "worker-3");
    let revoke = Revoke {
        selector: LeaseSelector::Resource("c"),
        reason: EndReason::Operator,
        comment: "it leaks",
        grace_ms: 1_000,
    };
    harness.turn(None, Command::Revoke(revoke)).expect("the memory journal works");
    harness
        .turn(None, Command::Release(leasehold_core::command::LeaseRef::by_name("c", revoked)))
        .expect("the memory journal works");
    harness.turn(None, Command::SetCapacity { resource: "pool", units: 3 }).expect("the memory journal works");
    harness.turn(None, Command::CloseSession { session }).expect("the memory journal works");
    let mut snapshotter = snapshotter(&harness.journal);
    let head = poll_ready(snapshotter.write_audit()).expect("the memory journal works");
    let entries = entries(&harness.journal.snapshots(), head);
    let summary = |entry: &Value| {
        let text = |name: &str| entry[name].as_str().unwrap_or("-").to_owned();
        ["kind", "resource", "holder", "reason", "why"].map(text).join(" ")
    };
    assert_eq!(
        entries.iter().map(summary).collect::<Vec<_>>(),
        [
            "created - - - -",
            "opened - - - -",
            "session_opened - worker-1 - -",
            "granted a worker-1 - -",
            "granted b worker-2 - -",
            "ended b worker-2 released -",
            "granted c worker-3 - -",
            "revoked c worker-3 operator it leaks",
            "ended c worker-3 operator it leaks",
            "capacity pool - - -",
            "session_ended - worker-1 released -",
            "ended a worker-1 session -",
        ]
    );
    assert_eq!(entries[4]["token_number"], number.get().to_string());
    assert!(entries.iter().zip(1..).all(|(entry, number)| entry["entry"] == number));
    let all = String::from_utf8(export(&harness.journal.snapshots(), head)).expect("the export is UTF-8");
    assert!(!all.contains("secret") && !all.contains("lh1-"), "no secret and no token text: {all}");
}

#[test]
fn entries_of_a_resource_are_paged_in_either_direction() {
    let mut harness = memory_harness();
    for _ in 0..30 {
        let number = harness.acquire(None, "often", "w");
        harness.release(None, "often", number);
        harness.acquire(None, &format!("once/{}", number.get()), "w");
    }
    let mut snapshotter = snapshotter(&harness.journal);
    let head = poll_ready(snapshotter.write_audit()).expect("the memory journal works");
    let snapshots = harness.journal.snapshots();
    let query_page = |oldest_first: bool| AuditQuery {
        resource: Some("often".into()),
        oldest_first,
        limit: 7,
        ..AuditQuery::default()
    };
    let (mut ascending, mut descending) = (Vec::new(), Vec::new());
    let mut next = query_page(true);
    loop {
        let page = query(&snapshots, head, &next, None).expect("the memory journal works");
        let found = numbers(&page);
        assert!(found.len() <= 7);
        ascending.extend(found);
        let Some(last) = page.next else { break };
        next.after = last;
    }
    let mut next = query_page(false);
    loop {
        let page = query(&snapshots, head, &next, None).expect("the memory journal works");
        descending.extend(numbers(&page));
        let Some(last) = page.next else { break };
        next.before = last;
    }
    assert_eq!(ascending.len(), 60);
    descending.reverse();
    assert_eq!(ascending, descending);
}

fn numbers(page: &AuditMatches) -> Vec<u64> {
    let number = |text: &str| AuditEntry::parse(text.as_bytes()).expect("the entry is valid").entry;
    page.entries.iter().map(|(text, _)| number(text)).collect()
}

/// Files that count the bytes that are read, without the headers that say which files a query needs.
struct CountedFiles<F> {
    inner: F,
    read: AtomicU64,
    longest: u64,
}

impl<F: AuditFiles> AuditFiles for CountedFiles<F> {
    fn files(&self) -> Result<Vec<(u64, u64)>, ReadError> {
        self.inner.files()
    }

    fn read(&self, number: u64, at: u64, into: &mut [u8]) -> Result<usize, ReadError> {
        if into.len() != frame::HEADER_BYTES {
            self.read.fetch_add(into.len() as u64, Ordering::Relaxed);
        }
        self.inner.read(number, at, into)
    }

    fn create(&self, _: u64, _: &[u8]) -> Result<AppendOutcome, JournalError> {
        unreachable!("a query writes nothing")
    }

    fn write(&self, _: u64, _: u64, _: &[u8]) -> Result<AppendOutcome, JournalError> {
        unreachable!("a query writes nothing")
    }

    fn sync(&self, _: u64) -> Result<AppendOutcome, JournalError> {
        unreachable!("a query writes nothing")
    }

    fn remove(&self, _: u64) -> Result<AppendOutcome, JournalError> {
        unreachable!("a query writes nothing")
    }

    fn label(&self, number: u64) -> String {
        self.inner.label(number)
    }

    fn heads(&self) -> Result<Vec<u8>, ReadError> {
        self.inner.heads()
    }

    fn put_heads(&self, _: &[u8]) -> Result<AppendOutcome, JournalError> {
        unreachable!("a query writes nothing")
    }

    fn max_bytes(&self) -> u64 {
        self.inner.max_bytes()
    }
}

/// Reads all pages of a search, each of at most `max_bytes`. Returns the entries of each page.
fn pages(harness: &GrantorHarness<MemoryJournal>, head: AuditHead, query: AuditQuery) -> Vec<Vec<u64>> {
    let files = CountedFiles::new(harness.journal.snapshots());
    let (mut pages, mut next) = (Vec::new(), query);
    loop {
        files.read.store(0, Ordering::Relaxed);
        let is_visible = |resource: &str| resource.is_empty() || resource.starts_with("rare");
        let page = leasehold_server::audit::query(&files, head, &next, Some(&is_visible)).expect("it is readable");
        let read = files.read.load(Ordering::Relaxed);
        assert!(read <= next.max_bytes.max(files.longest), "{read} bytes for one page");
        pages.push(numbers(&page));
        match page.next {
            None => return pages,
            Some(entry) if next.oldest_first => {
                assert!(entry > next.after, "each page continues");
                next.after = entry;
            }
            Some(entry) => {
                assert!(next.before == 0 || entry < next.before, "each page continues");
                next.before = entry;
            }
        }
    }
}

#[test]
fn a_page_of_a_search_reads_a_bounded_part_of_the_log_and_continues() {
    let mut harness = memory_harness();
    harness.acquire(None, "rare/first", "w");
    for round in 0..200 {
        let number = harness.acquire(None, "often", "w");
        harness.release(None, "often", number);
        if round == 100 {
            harness.acquire(None, "rare/middle", "w");
        }
    }
    harness.acquire(None, "rare/last", "w");
    let mut snapshotter = snapshotter(&harness.journal);
    let head = poll_ready(snapshotter.write_audit()).expect("the memory journal works");
    let files = harness.journal.snapshots().files().expect("the memory journal works").len();
    assert!(files > 20, "{files} files");
    for oldest_first in [false, true] {
        let query = AuditQuery { oldest_first, limit: 100, max_bytes: 5_000, ..AuditQuery::default() };
        let found = pages(&harness, head, query.clone());
        assert!(found.len() >= files / 3, "{} pages of at most three of {files} files", found.len());
        let mut all: Vec<u64> = found.into_iter().flatten().collect();
        if !oldest_first {
            all.reverse();
        }
        // The cluster and its tenure come first, with no resource.
        assert_eq!(all, [1, 2, 3, 206, head.entries], "each entry once");
        let few = pages(&harness, head, AuditQuery { limit: 2, max_bytes: u64::MAX, ..query.clone() });
        assert_eq!(few.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2, 1], "at most the limit");
        let none = pages(&harness, head, AuditQuery { resource: Some("absent".into()), max_bytes: 1, ..query });
        assert_eq!((none.len(), none.iter().all(Vec::is_empty)), (files, true), "one file for each page");
    }
}

impl<F: AuditFiles> CountedFiles<F> {
    fn new(inner: F) -> Self {
        let longest = inner.files().expect("they are readable").into_iter().map(|(_, length)| length).max();
        Self { inner, read: AtomicU64::new(0), longest: longest.unwrap_or(0) }
    }
}
