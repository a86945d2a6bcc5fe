//! The audit trail: one entry for each change, told once whatever crashes, and proved by anybody (A1).

mod http_client;
mod journal_support;
mod snapshot_support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http_client::{field, http, on_a_free_port};
use journal_support::simulated_disk::{Power, record};
use journal_support::{depth, small, small_in};
use leasehold_core::command::{Acquire, Answer, Command, LeaseSelector, Revoke};
use leasehold_core::lease::EndReason;
use leasehold_server::audit::{
    AuditEntry, AuditExport, AuditHead, AuditQuery, ExportLineError, Retention, VerifyError, frame, hex, query, scan,
    verify, verify_export,
};
use leasehold_server::backup::{self, BackupChunks, RestoreOptions, restore_onto};
use leasehold_server::journal::file::FileJournal;
use leasehold_server::journal::memory::Memory;
use leasehold_server::journal::{AuditFiles, Journal, JournalLocation};
use leasehold_server::recovery::Backlog;
use leasehold_server::server::start;
use leasehold_server::snapshotter::{SnapshotConfig, Snapshotter};
use proptest::prelude::*;
use serde_json::Value;
use snapshot_support::{Folded, World, at, keep, meter, now};

/// Small parts, so that there are many.
fn small_parts() -> SnapshotConfig {
    SnapshotConfig { audit: Retention { file_bytes: 2_000, ..Retention::default() }, ..keep(0) }
}

fn keeper<J: Journal>(journal: &J) -> Snapshotter<J::Snapshots> {
    Snapshotter::new(journal.snapshots(), small_parts(), Backlog::default(), meter())
}

fn open_on(power: &Power) -> (FileJournal<Power>, Folded) {
    let mut folded = Folded::default();
    let opened = FileJournal::open_on(power.clone(), &small(), &mut folded);
    (opened.unwrap_or_else(|error| panic!("{error}")).journal, folded)
}

fn in_memory() -> World<leasehold_server::journal::memory::MemoryJournal> {
    let journal = now(Memory::new().open(&mut Folded::default())).expect("memory is well").journal;
    World::open(Folded::default().recovered, journal)
}

/// Everything that the trail tells, oldest first.
fn told(audit_files: &dyn AuditFiles, head: AuditHead) -> Vec<Value> {
    let asked = AuditQuery { oldest_first: true, limit: usize::MAX, ..AuditQuery::default() };
    let page = query(audit_files, head, &asked).expect("it can be read");
    page.iter().map(|(text, _)| serde_json::from_str(text).expect("an entry is JSON")).collect()
}

fn export(audit_files: &dyn AuditFiles, head: AuditHead) -> Vec<u8> {
    let mut exporting = AuditExport::new(head);
    let mut file = Vec::new();
    while let Some(lines) = exporting.lines(audit_files).expect("it can be read") {
        file.extend(lines);
    }
    file
}

#[test]
fn every_change_is_told_with_who_what_and_why() {
    let mut world = in_memory();
    let session = world.session(None, "worker-1");
    let acquire = Acquire { session: Some(session), ttl_ms: None, holder: "", ..Acquire::exclusive("a", "", 0) };
    assert!(matches!(world.turn(None, Command::Acquire(acquire)), Ok(Answer::Granted(_))));
    let number = world.acquire(None, "b", "worker-2");
    world.release(None, "b", number);
    let taken = world.acquire(None, "c", "worker-3");
    let revoke = Revoke {
        selector: LeaseSelector::Resource("c"),
        reason: EndReason::Operator,
        comment: "it leaks",
        grace_ms: 1_000,
    };
    world.turn(None, Command::Revoke(revoke)).expect("memory is well");
    world.turn(None, Command::Release(leasehold_core::command::LeaseRef::by_name("c", taken))).expect("memory is well");
    world.turn(None, Command::SetCapacity { resource: "pool", units: 3 }).expect("memory is well");
    world.turn(None, Command::CloseSession { session }).expect("memory is well");
    let mut keeper = keeper(&world.journal);
    let head = now(keeper.write_audit()).expect("memory is well");
    let entries = told(&world.journal.snapshots(), head);
    let short = |entry: &Value| {
        let word = |name: &str| entry[name].as_str().unwrap_or("-").to_owned();
        ["kind", "resource", "holder", "reason", "why"].map(word).join(" ")
    };
    assert_eq!(
        entries.iter().map(short).collect::<Vec<_>>(),
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
    let all = String::from_utf8(export(&world.journal.snapshots(), head)).expect("text");
    assert!(!all.contains("secret") && !all.contains("lh1-"), "no secret and no token text: {all}");
}

#[test]
fn an_export_is_proved_without_a_server_and_a_changed_one_is_not() {
    let mut world = in_memory();
    world.work(None, 0..40);
    let mut keeper = keeper(&world.journal);
    let head = now(keeper.write_audit()).expect("memory is well");
    let snapshots = world.journal.snapshots();
    assert!(snapshots.files().expect("memory is well").len() > 3, "it has parts");
    let file = export(&snapshots, head);
    let verified = verify_export(&file[..]).expect("it is whole");
    assert_eq!((verified.first, verified.last, verified.hash), (1, head.entries, head.hash));
    assert_eq!(verify(&snapshots, head), Ok(verified));

    let text = String::from_utf8(file).expect("text");
    let lines: Vec<&str> = text.lines().collect();
    let bad = |lines: &[&str]| verify_export(format!("{}\n", lines.join("\n")).as_bytes());
    assert_eq!(bad(&lines[..lines.len() - 1]).map_err(|bad| bad.line), Err(lines.len() as u64), "cut at the end");
    assert_eq!(bad(&[&lines[..5], &lines[6..]].concat()).map_err(|bad| bad.line), Err(6), "one was taken out");
    let mut swapped = lines.clone();
    swapped.swap(7, 8);
    assert_eq!(bad(&swapped).map_err(|bad| bad.line), Err(8), "two were swapped");
    let changed = lines[9].replace("worker-", "worker_");
    let mut lied = lines.clone();
    lied[9] = &changed;
    assert!(matches!(bad(&lied), Err(ExportLineError { line: 10, .. })), "one was changed");
    assert!(bad(&[&lines[..], &["{}"]].concat()).is_err(), "one was added");
}

#[test]
fn a_resource_is_told_newest_first_or_oldest_first_page_by_page() {
    let mut world = in_memory();
    for _ in 0..30 {
        let number = world.acquire(None, "often", "w");
        world.release(None, "often", number);
        world.acquire(None, &format!("once/{}", number.get()), "w");
    }
    let mut keeper = keeper(&world.journal);
    let head = now(keeper.write_audit()).expect("memory is well");
    let snapshots = world.journal.snapshots();
    let asked = |oldest_first: bool| AuditQuery {
        resource: Some("often".into()),
        oldest_first,
        limit: 7,
        ..AuditQuery::default()
    };
    let numbers = |page: &[(String, _)]| -> Vec<u64> {
        page.iter().map(|(text, _)| AuditEntry::parse(text.as_bytes()).expect("an entry").entry).collect()
    };
    let (mut forth, mut back) = (Vec::new(), Vec::new());
    let mut next = asked(true);
    loop {
        let page = numbers(&query(&snapshots, head, &next).expect("memory is well"));
        let Some(last) = page.last() else { break };
        assert!(page.len() <= 7);
        next.after = *last;
        forth.extend(page);
    }
    let mut next = asked(false);
    loop {
        let page = numbers(&query(&snapshots, head, &next).expect("memory is well"));
        let Some(last) = page.last() else { break };
        next.before = *last;
        back.extend(page);
    }
    assert_eq!(forth.len(), 60);
    back.reverse();
    assert_eq!(forth, back);
}

#[test]
fn a_flipped_byte_is_found_with_its_file_and_place() {
    let power = Power::new();
    let (journal, folded) = open_on(&power);
    let mut world = World::open(folded.recovered, journal);
    let mut keeper = keeper(&world.journal);
    world.work(None, 0..30);
    let head = now(keeper.write_audit()).expect("the disk is well");
    let snapshots = world.journal.snapshots();
    let whole = verify(&snapshots, head).expect("it is whole");
    let files = snapshots.files().expect("the disk is well");
    assert!(files.len() > 3);
    for (number, length) in files {
        let name = format!("trail-{number:020}");
        let bytes = power.bytes(&name);
        let frames = frames(&bytes);
        for at in (0..length as usize).step_by(depth(199, 41, 3)) {
            power.tamper(&name, |bytes| bytes[at] ^= 0x20);
            let found = verify(&snapshots, head);
            let is_mark = frames.iter().any(|(from, to, mark)| *mark && (*from..*to).contains(&at));
            match found {
                Err(VerifyError::Damaged { file, offset, .. }) => {
                    assert!(file.ends_with(&name), "{name} at {at}: {file}");
                    let from = frames.iter().rfind(|(from, _, _)| *from <= at).map_or(0, |(from, _, _)| *from);
                    assert_eq!(offset as usize, from, "{name} at {at}");
                }
                // A mark says only how far it goes; after the last entry nothing depends on it.
                Ok(_) if is_mark => {}
                other => panic!("{name} at {at}: {other:?}"),
            }
            power.tamper(&name, |bytes| bytes[at] ^= 0x20);
        }
    }
    assert_eq!(verify(&snapshots, head), Ok(whole));
}

/// Where each frame of a part begins and ends, and whether it is a mark.
fn frames(bytes: &[u8]) -> Vec<(usize, usize, bool)> {
    let (_, salt) = frame::FileHeader::decode(bytes).expect("a part");
    let (mut at, mut frames) = (frame::HEADER_BYTES, Vec::new());
    loop {
        match frame::read(salt, bytes, at) {
            frame::Frame::Entry { end, .. } => frames.push((at, end, false)),
            frame::Frame::Checkpoint { end, .. } => frames.push((at, end, true)),
            _ => return frames,
        }
        at = frames.last().expect("just put").1;
    }
}

#[test]
fn after_a_crash_at_any_point_nothing_is_missing_and_nothing_is_told_twice() {
    let power = Power::new();
    let (journal, folded) = open_on(&power);
    let mut world = World::open(folded.recovered, journal);
    let mut first = keeper(&world.journal);
    world.work(None, 0..12);
    now(first.snapshot()).expect("the disk is well");
    world.work(None, 12..24);
    now(first.write_audit()).expect("the disk is well");
    world.work(None, 24..36);
    let session = world.session(None, "many");
    for name in 0..8 {
        let resource = format!("many/{name}");
        let acquire =
            Acquire { session: Some(session), ttl_ms: None, holder: "", ..Acquire::exclusive(&resource, "", 0) };
        world.turn(None, Command::Acquire(acquire)).expect("the disk is well");
    }
    world.turn(None, Command::CloseSession { session }).expect("the disk is well");
    let mut head = AuditHead::default();
    let worlds = record(&power, || {
        now(first.snapshot()).expect("the disk is well");
        head = now(first.write_audit()).expect("the disk is well");
    });
    let expected = told(&world.journal.snapshots(), head);
    assert!(expected.len() > 70, "{}", expected.len());
    drop((world, first));
    let check = |power: &Power, context: &str| {
        let (journal, _) = open_on(power);
        let snapshots = journal.snapshots();
        let again = now(keeper(&journal).write_audit()).unwrap_or_else(|reason| panic!("{context}: {reason}"));
        assert_eq!((again.entries, hex(&again.hash)), (head.entries, hex(&head.hash)), "{context}");
        verify(&snapshots, again).unwrap_or_else(|broken| panic!("{context}: {broken}"));
        assert_eq!(told(&snapshots, again), expected, "{context}");
    };
    let mut states = 0;
    for (step, world) in worlds.iter().enumerate() {
        check(&Power::from(world.clone()), &format!("killed at step {step}"));
        for (pick, crash) in world.crashes(depth(8, 48, 2_048)).iter().enumerate() {
            check(crash, &format!("no power at step {step}, state {pick}"));
            states += 1;
        }
    }
    assert!(states > worlds.len());
}

#[test]
fn the_oldest_parts_go_and_the_rest_proves_itself() {
    let mut world = in_memory();
    let retention = Retention { bytes: 10_000, age_ms: None, file_bytes: 2_000 };
    let settings = SnapshotConfig { audit: retention, ..keep(0) };
    let mut keeper = Snapshotter::new(world.journal.snapshots(), settings, Backlog::default(), meter());
    for round in 0..10 {
        world.work(None, round * 10..(round + 1) * 10);
        now(keeper.write_audit()).expect("memory is well");
    }
    let head = now(keeper.write_audit()).expect("memory is well");
    let snapshots = world.journal.snapshots();
    let verified = verify(&snapshots, head).expect("it is whole");
    assert!(verified.first > 1 && verified.last == head.entries);
    let bytes: u64 = snapshots.files().expect("memory is well").iter().map(|(_, length)| length).sum();
    assert!(bytes <= 12_500, "{bytes}");
    assert_eq!(verify_export(&export(&snapshots, head)[..]), Ok(verified));

    let by_age = SnapshotConfig { audit: Retention { age_ms: Some(0), ..retention }, ..keep(0) };
    let mut keeper = Snapshotter::new(world.journal.snapshots(), by_age, Backlog::default(), meter());
    world.work(None, 200..201);
    now(keeper.write_audit()).expect("memory is well");
    assert!(snapshots.files().expect("memory is well").len() <= 2, "all but the newest are too old");
}

#[test]
fn a_restored_cluster_goes_on_with_the_chain_of_its_backup_and_tells_every_end() {
    let mut world = in_memory();
    world.work(None, 0..6);
    let taken = now(keeper(&world.journal).snapshot()).expect("memory is well");
    let before = taken.audit;
    let bytes: Vec<u8> = BackupChunks::of(taken, at(0).wall).flatten().collect();
    let backup = backup::decode(&bytes).expect("it is whole");
    let power = Power::new();
    restore_onto(&power, &small(), &backup, &RestoreOptions::default(), at(10_000)).expect("the disk is empty");
    let (journal, _) = open_on(&power);
    let head = now(keeper(&journal).write_audit()).expect("the disk is well");
    let verified = verify(&journal.snapshots(), head).expect("it is whole");
    assert_eq!(verified.first, before.0 + 1);
    let mut kinds = BTreeMap::new();
    for entry in told(&journal.snapshots(), head) {
        *kinds.entry(format!("{} {}", entry["kind"], entry["reason"])).or_insert(0) += 1;
    }
    let expected = [("\"restored\" null", 1), ("\"ended\" \"restored\"", 2), ("\"opened\" null", 1)];
    assert_eq!(kinds, expected.map(|(kind, count)| (kind.to_owned(), count)).into());
}

#[test]
fn a_trail_that_was_lost_says_so_and_goes_on() {
    let power = Power::new();
    let (journal, folded) = open_on(&power);
    let mut world = World::open(folded.recovered, journal);
    let mut first = keeper(&world.journal);
    world.work(None, 0..12);
    now(first.snapshot()).expect("the disk is well");
    world.work(None, 12..14);
    drop((world, first));
    for name in power.contents().into_keys().filter(|name| name.starts_with("trail-")) {
        power.take_away(&name);
    }
    let (journal, _) = open_on(&power);
    let head = now(keeper(&journal).write_audit()).expect("the disk is well");
    let entries = told(&journal.snapshots(), head);
    assert_eq!(entries[0]["kind"], "gap");
    assert_eq!(entries.iter().filter(|entry| entry["kind"] == "granted").count(), 2);
}

#[test]
fn the_golden_part_is_read_and_written_for_ever() {
    let mut world = in_memory();
    let number = world.acquire(None, "jobs/settle", "worker-1");
    world.release(None, "jobs/settle", number);
    let head = now(keeper(&world.journal).write_audit()).expect("memory is well");
    let mut written = vec![0; 1 << 16];
    let got = world.journal.snapshots().read(1, 0, &mut written).expect("memory is well");
    written.truncate(got);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/golden/trail-v1");
    if std::env::var_os("LEASEHOLD_BLESS").is_some() {
        std::fs::write(&path, &written).expect("the folder is there");
    }
    let golden = std::fs::read(&path).expect("the golden file is committed");
    assert!(golden == written, "a part is written with other bytes than version 1");
    let mut texts = Vec::new();
    let walked = scan(&golden, true, |found| texts.push(String::from_utf8(found.text.to_vec()).expect("text")));
    let walked = walked.expect("version 1 is read for ever");
    assert_eq!((walked.next - 1, walked.hash, walked.damage), (head.entries, head.hash, None));
    assert_eq!(
        texts[3],
        format!(
            r#"{{"entry":4,"position":3,"step":0,"time_ms":20,"wall_ms":1770000000020,"kind":"ended","resource":"jobs/settle","holder":"worker-1","lease":"0.0","token_number":"{number}","state":"expired","reason":"released"}}"#
        )
    );
}

/// The bytes of a backup, as this version and the ones before wrote them.
fn golden_backup(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/golden").join(name)
}

#[test]
fn the_golden_backup_is_read_for_ever() {
    let mut world = in_memory();
    world.acquire(None, "jobs/settle", "worker-1");
    let taken = now(keeper(&world.journal).snapshot()).expect("memory is well");
    let written: Vec<u8> = BackupChunks::of(taken, at(50).wall).flatten().collect();
    // The second has a snapshot of the second format in it.
    let newest = golden_backup("backup-v1-snapshot-v2");
    if std::env::var_os("LEASEHOLD_BLESS").is_some() {
        std::fs::write(&newest, &written).expect("the folder is there");
    }
    let golden = std::fs::read(&newest).expect("the golden file is committed");
    assert!(golden == written, "a backup is written with other bytes than before");
    for golden in [golden, std::fs::read(golden_backup("backup-v1")).expect("the golden file is committed")] {
        let backup = backup::decode(&golden).expect("version 1 is read for ever");
        assert_eq!((backup.header.position, backup.header.audit.0), (2, 3));
        let power = Power::new();
        restore_onto(&power, &small(), &backup, &RestoreOptions::default(), at(1_000))
            .expect("it is restored for ever");
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_no_trail_and_panic_nobody(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let _ = scan(&bytes, true, |_| ());
        let cluster = leasehold_core::token::Cluster(*b"anything");
        let part = frame::FileHeader { cluster, first: 1, position: 0, previous: [0; 32], wall_ms: 0 }.encode();
        let framed = [&part[..], &bytes].concat();
        let walked = scan(&framed, true, |_| ()).expect("the beginning is good");
        prop_assert!(walked.damage.is_some() || bytes.is_empty());
        prop_assert_eq!(walked.at, frame::HEADER_BYTES);
        prop_assert!(verify_export(&bytes[..]).is_err());
        let _ = AuditEntry::parse(&bytes);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_trail_holds_exactly_what_clients_were_told_over_a_restart() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let directory = small_in(folder.path().join("data"));
    let mut settings = on_a_free_port();
    settings.snapshots = SnapshotConfig { log_bytes: 2_000, ..small_parts() };
    let mut granted = BTreeMap::new();
    let mut ended = BTreeMap::new();
    for round in 0..3 {
        let running = start(directory.clone(), settings.clone()).await.expect("it starts");
        let at = running.address;
        for turn in 0..20 {
            let name = format!("r{round}/t{turn}");
            let body = format!(r#"{{"holder":"w{turn}","ttl":"60s"}}"#);
            let (status, grant) = http(at, "POST", &format!("/v1/leases/{name}:acquire"), &body).await;
            assert_eq!(status, 200, "{grant}");
            granted.insert(field(&grant, "token_number"), (name.clone(), format!("w{turn}")));
            if turn % 2 == 0 {
                let shown = format!(r#"{{"token":"{}"}}"#, field(&grant, "token"));
                assert_eq!(http(at, "POST", &format!("/v1/leases/{name}:release"), &shown).await.0, 200);
                ended.insert(field(&grant, "token_number"), name);
            }
        }
        running.stop().await;
    }
    let running = start(directory, settings).await.expect("it starts");
    let at = running.address;
    let (_, lines) = http(at, "GET", "/v1/audit", "").await;
    let verified = verify_export(lines.as_bytes()).expect("the export proves itself");
    let (mut told_granted, mut told_ended) = (BTreeMap::new(), BTreeMap::new());
    for line in lines.lines() {
        let entry: Value = serde_json::from_str(line).expect("a line of JSON");
        let word = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
        let twice = match word("kind").as_str() {
            "granted" => told_granted.insert(word("token_number"), (word("resource"), word("holder"))).is_some(),
            "ended" => told_ended.insert(word("token_number"), word("resource")).is_some(),
            _ => false,
        };
        assert!(!twice, "{line}");
    }
    assert_eq!(told_granted, granted);
    assert_eq!(told_ended, ended);
    let (status, found) = http(at, "GET", "/v1/audit:verify", "").await;
    let found: Value = serde_json::from_str(&found).expect("JSON");
    assert_eq!((status, &found["intact"], &found["entries"]), (200, &true.into(), &verified.entries().into()));
    let (status, history) = http(at, "GET", "/v1/history/r1/t0", "").await;
    let history: Value = serde_json::from_str(&history).expect("JSON");
    let kinds: Vec<_> = history["entries"].as_array().expect("a list").iter().map(|entry| &entry["kind"]).collect();
    assert_eq!((status, kinds), (200, vec![&Value::from("ended"), &Value::from("granted")]), "newest first");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_calls_tell_the_same_as_the_web() {
    use futures::StreamExt;
    use leasehold_server::api::GrpcService;
    use leasehold_wire::v1::{self, leasehold_server::Leasehold};
    use tonic::Request;
    let running = start(Memory::new(), on_a_free_port()).await.expect("it starts");
    let calls = GrpcService { api: running.api().clone(), hello_timeout: Duration::from_secs(1) };
    let acquire = v1::Acquire { resource: "a".into(), holder: "w".into(), ttl_ms: Some(60_000), ..Default::default() };
    let granted = calls.acquire(Request::new(acquire)).await.expect("it is free");
    let position = granted.metadata().get("leasehold-position").expect("every answer has one").clone();
    let asked = v1::AuditRequest { resource: "a".into(), ..Default::default() };
    let told = calls.audit(Request::new(asked)).await.expect("it is told").into_inner();
    let [entry] = &told.entries[..] else { panic!("one change: {told:?}") };
    assert_eq!((entry.kind.as_str(), entry.holder.as_str()), ("granted", "w"));
    assert_eq!(entry.token_number, Some(granted.get_ref().token_number));
    assert_eq!(entry.position.to_string(), position.to_str().expect("a number"));
    assert_eq!(entry.hash, told.hash, "it is the last");
    let whole = calls.verify_audit(Request::new(v1::VerifyAuditRequest {})).await.expect("it is told").into_inner();
    assert!(whole.intact && whole.last == told.last && whole.hash == told.hash, "{whole:?}");
    let mut lines = calls.export_audit(Request::new(v1::ExportAuditRequest {})).await.expect("told").into_inner();
    let mut file = Vec::new();
    while let Some(piece) = lines.next().await {
        file.extend(piece.expect("a piece").bytes);
    }
    assert_eq!(verify_export(&file[..]).expect("it proves itself").last, told.last);
    let mut pieces = calls.backup(Request::new(v1::BackupRequest {})).await.expect("told").into_inner();
    let mut file = Vec::new();
    while let Some(piece) = pieces.next().await {
        file.extend(piece.expect("a piece").bytes);
    }
    let backup = backup::decode(&file).expect("it is whole");
    assert!(backup.header.position >= entry.position);
    let late = v1::ShowRequest { resource: "a".into(), min_position: u64::MAX };
    assert_eq!(calls.show(Request::new(late)).await.expect_err("not there yet").code(), tonic::Code::Unavailable);
    running.stop().await;
}
