//! What entries contain, and how they are queried.

use leasehold_core::command::{Acquire, Answer, Command, LeaseSelector, Revoke};
use leasehold_core::lease::EndReason;
use leasehold_server::audit::{AuditEntry, AuditQuery, query};
use leasehold_server::journal::Journal;
use serde_json::Value;

use crate::fixture::{entries, export, memory_harness, snapshotter};
use crate::snapshot_support::poll_ready;

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
    let numbers = |page: &[(String, _)]| -> Vec<u64> {
        page.iter().map(|(text, _)| AuditEntry::parse(text.as_bytes()).expect("the entry is valid").entry).collect()
    };
    let (mut ascending, mut descending) = (Vec::new(), Vec::new());
    let mut next = query_page(true);
    loop {
        let page = numbers(&query(&snapshots, head, &next, None).expect("the memory journal works"));
        let Some(last) = page.last() else { break };
        assert!(page.len() <= 7);
        next.after = *last;
        ascending.extend(page);
    }
    let mut next = query_page(false);
    loop {
        let page = numbers(&query(&snapshots, head, &next, None).expect("the memory journal works"));
        let Some(last) = page.last() else { break };
        next.before = *last;
        descending.extend(page);
    }
    assert_eq!(ascending.len(), 60);
    descending.reverse();
    assert_eq!(ascending, descending);
}
