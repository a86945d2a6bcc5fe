//! The operator's actions on fences: arm, lost, rearm, adopt, and a restore above their marks.

use std::time::{SystemTime, UNIX_EPOCH};

use leasehold_core::name::resource_hash;
use leasehold_core::token::{Incarnation, Number, Token, TokenScope};
use leasehold_fence::file::FencedLog;
use leasehold_fence::{Error, FenceRefusal};
use serde_json::json;

use crate::support::{Server, run, text};
use crate::{Ledger, RESOURCE, cluster, fence, fence_id, number};

#[test]
fn a_restored_target_is_declared_lost_and_rearmed_above_every_earlier_token() {
    let server = Server::start();
    let ledger = Ledger::fenced(&server);
    let (fence, mut db) = (fence(&server), ledger.open());
    let old = server.acquire(RESOURCE, "w1");
    fence.claim(&mut db, &old).expect("the holder claims");
    server.run(&["fence", "lost", &ledger.url]).ok();
    let refused = fence.claim(&mut db, &old);
    assert!(matches!(refused, Err(Error::Refused(FenceRefusal::MarkLost(_)))), "{refused:?}");
    assert_eq!(server.json(&["fence", "marks", &ledger.url])[0]["state"], "lost");
    // Another lease was granted in the meantime: the floor is not below its token.
    let other = server.acquire("jobs/other", "w2");
    server.run(&["fence", "rearm", &ledger.url, "--resource", RESOURCE]).ok();
    let mark = text(&server.json(&["fence", "marks", &ledger.url])[0]["mark"]);
    assert_eq!(mark, number(&other));
    assert!(matches!(fence.claim(&mut db, &old), Err(Error::Refused(FenceRefusal::Stale { .. }))));
    server.run(&["release", RESOURCE, "--token", &old]).ok();
    let new = server.acquire(RESOURCE, "w3");
    fence.claim(&mut db, &new).expect("granted after the re-arming");
    let lower = server.run(&["fence", "rearm", &ledger.url, "--floor", "7"]);
    assert!(lower.exit != 0 && lower.err.contains("CONFLICT"), "{lower:?}");
}

#[test]
fn a_strict_fence_accepts_a_restored_cluster_after_adopt() {
    let server = Server::start();
    let ledger = Ledger::fenced(&server);
    let (fence, mut db) = (fence(&server), ledger.open());
    let token = server.acquire(RESOURCE, "w1");
    fence.claim(&mut db, &token).expect("the holder claims");
    fence.strict(&mut db, true).expect("it is armed");
    let token = Token::parse(&token).expect("a token");
    let restored =
        Token { incarnation: Incarnation(0x0bad_cafe), number: Number::new(token.number.get() + 1).unwrap(), ..token };
    assert!(matches!(fence.claim(&mut db, restored.to_string()), Err(Error::Refused(_))));
    server.run(&["fence", "adopt", &ledger.url, "--incarnation", "0badcafe"]).ok();
    fence.claim(&mut db, restored.to_string()).expect("the new incarnation is accepted");
    let mark = &server.json(&["fence", "marks", &ledger.url])[0];
    assert_eq!(
        (&mark["incarnation"], &mark["strict"], &mark["resource"]),
        (&"0badcafe".into(), &true.into(), &RESOURCE.into())
    );
}

#[test]
fn an_invalid_target_or_a_target_without_marks_is_rejected_with_the_next_step() {
    let server = Server::start();
    let ledger = Ledger::fenced(&server);
    for url in ["mysql://db/x", "ledger.db", "sqlite:"] {
        let output = server.run(&["fence", "marks", url]);
        assert_eq!(output.exit, 2, "{output:?}");
        assert!(output.err.contains("sqlite:") || output.err.contains("postgres://"), "{output:?}");
    }
    let other = server.run(&["fence", "lost", &ledger.url, "--resource", "jobs/other"]);
    assert!(other.exit != 0 && other.err.contains("NOT_FOUND"), "{other:?}");
    let missing = server.run(&["fence", "marks", "sqlite:/nowhere/at/all.db"]);
    assert!(missing.exit != 0 && missing.err.contains("is not a file"), "{missing:?}");
}

#[test]
fn a_restore_with_targets_issues_tokens_above_their_marks() {
    let server = Server::start();
    let ledger = Ledger::fenced(&server);
    let dir = tempfile::tempdir().expect("a directory");
    let backup = dir.path().join("monday.backup");
    server.run(&["backup", backup.to_str().expect("plain")]).ok();
    // A token of an incarnation after the backup, half an hour ahead of this clock.
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as u64 + 1_800_000;
    let ahead = Number::new((since - 1_735_689_600_000) << 22).expect("a number");
    let token = Token {
        cluster: cluster(&server),
        incarnation: Incarnation(7),
        resource: resource_hash(RESOURCE),
        scope: TokenScope::Slot(0),
        number: ahead,
    };
    fence(&server).claim(&mut ledger.open(), token.to_string()).expect("plausible");
    let restore = |into: &str, more: &[&str]| {
        let data = dir.path().join(into);
        let mut command = crate::support::leasehold(&["restore", "--json"]);
        run(command.arg(&backup).arg("--data").arg(&data).args(more)).ok().json()
    };
    let floor = |restored: &serde_json::Value| text(&restored["token_floor"]).parse::<u64>().expect("a number");
    let plain = restore("plain", &[]);
    assert!(floor(&plain) < ahead.get(), "the clock alone gives a lower floor: {plain}");
    let with_marks = restore("with_marks", &["--target", &ledger.url]);
    assert!(floor(&with_marks) >= ahead.get(), "{with_marks}");
    assert_eq!(with_marks["marks"][0]["mark"], json!(ahead.to_string()));
}

#[test]
fn an_append_log_is_armed_probed_lost_and_rearmed_by_its_address() {
    let server = Server::start();
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let path = dir.path().join("events.log");
    let url = format!("file:{}", path.display());
    server.run(&["fence", "arm", &url, "--resource", RESOURCE]).ok();
    let mut log = FencedLog::open(&path, &fence_id(&server)).expect("it was made");
    let token = server.acquire(RESOURCE, "w1");
    log.claim(&token).expect("the holder claims");
    let before = std::fs::read(&path).expect("it is there");
    let probed = server.run(&["coverage", RESOURCE, "--probe", "--target", &format!("events={url}"), "--json"]).json();
    assert_eq!(probed["targets"][0]["probe"]["result"], "refused", "{probed}");
    assert_eq!(before, std::fs::read(&path).expect("it is there"), "a probe changes nothing");
    assert_eq!(text(&server.json(&["fence", "marks", &url])[0]["mark"]), number(&token));
    let unnamed = server.run(&["fence", "lost", &url]);
    assert!(unnamed.exit != 0 && unnamed.err.contains("--resource"), "{unnamed:?}");
    server.run(&["fence", "lost", &url, "--resource", RESOURCE]).ok();
    assert!(log.append(&token, b"late").is_err(), "lost until it is re-armed");
    server.run(&["fence", "rearm", &url, "--resource", RESOURCE]).ok();
    assert_eq!(server.json(&["fence", "marks", &url])[0]["state"], "armed");
}

/// A target with a fence of this cluster and one of another, both claimed or fresh as `arm` left them.
fn shared_by_two_clusters(server: &Server) -> Ledger {
    let ledger = Ledger::fenced(server);
    let foreign = ["--resource", "jobs/aaa", "--cluster", "00c0ffee00c0ffee"];
    server.run(&[&["fence", "arm", &ledger.url][..], &foreign].concat()).ok();
    ledger
}

#[test]
fn a_change_of_all_fences_leaves_those_of_another_cluster_alone() {
    let server = Server::start();
    let ledger = shared_by_two_clusters(&server);
    fence(&server).claim(&mut ledger.open(), server.acquire(RESOURCE, "w1")).expect("the holder claims");
    let before = server.json(&["fence", "marks", &ledger.url]);
    let mine = cluster(&server).to_string();
    for command in [&["rearm", "--floor", "7"][..], &["rearm"], &["lost"], &["adopt", "--incarnation", "0badcafe"]] {
        let refused = server.run(&[&["fence", command[0], &ledger.url][..], &command[1..]].concat());
        assert_eq!(refused.exit, 2, "{command:?}: {refused:?}");
        for named in ["WRONG_CLUSTER", "jobs/aaa", RESOURCE, "00c0ffee00c0ffee", &mine, "--cluster"] {
            assert!(refused.err.contains(named), "{command:?} names {named}: {refused:?}");
        }
        assert_eq!(server.json(&["fence", "marks", &ledger.url]), before, "{command:?} changed nothing");
    }
    server.run(&["fence", "rearm", &ledger.url, "--cluster", &mine]).ok();
    let after = server.json(&["fence", "marks", &ledger.url]);
    let find = |marks: &serde_json::Value, name: &str| {
        marks.as_array().expect("a list").iter().find(|mark| mark["resource"] == name).expect("it is listed").clone()
    };
    assert_eq!(find(&after, "jobs/aaa"), find(&before, "jobs/aaa"));
    assert_eq!(find(&after, RESOURCE)["state"], "armed");
    let none = server.run(&["fence", "lost", &ledger.url, "--cluster", "1111111111111111"]);
    assert!(none.exit != 0 && none.err.contains("NOT_FOUND"), "{none:?}");
}

#[test]
fn all_marks_are_checked_before_the_first_one_changes() {
    let server = Server::start();
    let ledger = Ledger::fenced(&server);
    server.run(&["fence", "arm", &ledger.url, "--resource", "jobs/aaa"]).ok();
    let token = server.acquire(RESOURCE, "w1");
    fence(&server).claim(&mut ledger.open(), &token).expect("the holder claims");
    let before = server.json(&["fence", "marks", &ledger.url]);
    let refused = server.run(&["fence", "rearm", &ledger.url, "--floor", "7"]);
    assert!(refused.exit != 0 && refused.err.contains("CONFLICT"), "{refused:?}");
    let names = refused.err.contains(RESOURCE) && refused.err.contains(&number(&token));
    assert!(names && refused.err.contains("nothing changed"), "{refused:?}");
    assert_eq!(server.json(&["fence", "marks", &ledger.url]), before, "jobs/aaa was not re-armed");

    // A lost mark shows no number: the failure names the fence, and the one that was re-armed before it.
    server.run(&["fence", "lost", &ledger.url, "--resource", RESOURCE]).ok();
    let marks = server.json(&["fence", "marks", &ledger.url]);
    let first = text(&marks[0]["resource"]);
    let partly = server.run(&["fence", "rearm", &ledger.url, "--floor", "7"]);
    assert!(partly.exit != 0 && partly.err.contains(&format!("{RESOURCE} slot 0: ")), "{partly:?}");
    let done = if first == RESOURCE { "changed before it: none" } else { "changed before it: jobs/aaa slot 0" };
    assert!(partly.err.contains(done), "{partly:?}");
}

#[test]
fn a_damaged_log_is_not_armed_as_a_replaced_file() {
    let server = Server::start();
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let path = dir.path().join("events.log");
    let url = format!("file:{}", path.display());
    server.run(&["fence", "arm", &url, "--resource", RESOURCE]).ok();
    let mut bytes = std::fs::read(&path).expect("it is there");
    // The header keeps its shape, but not its checksum.
    bytes[20] ^= 1;
    std::fs::write(&path, &bytes).expect("written");
    let refused = server.run(&["fence", "arm", &url, "--resource", RESOURCE]);
    assert!(refused.exit != 0 && refused.err.contains("CORRUPT"), "{refused:?}");
    assert_eq!(std::fs::read(&path).expect("it is there"), bytes);
}
