//! `leasehold fence seal` and `leasehold fence stamp` with real targets: forged tokens are refused, and probes say why (A8).

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use leasehold_core::token::Token;
use leasehold_fence::file::FencedLog;
use leasehold_fence::{Error, SealKeys, SealVerifier, postgres};
use leasehold_seal::SealKey;
use tempfile::TempDir;

use crate::server::Server as Database;
use crate::support::{Server, leasehold, run};
use crate::{Ledger, RESOURCE, fence, fence_id};

/// A seal key of the test, its public file, and a stamp key.
struct Keys {
    dir: TempDir,
    key: SealKey,
    verifier: SealVerifier,
}

impl Keys {
    fn new() -> Self {
        let (dir, key) = (tempfile::tempdir().expect("a directory"), SealKey::generate(0).expect("a key"));
        let public = SealKeys::new([key.public()]).expect("one key");
        std::fs::write(dir.path().join("seal-keys.json"), public.to_json()).expect("written");
        write_private(&dir.path().join("ledger.stamp"), &format!("{}\n", "5a".repeat(32)));
        Self { dir, key, verifier: SealVerifier::new(public) }
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    /// The sealed text of a token that the server granted.
    fn seal(&self, token: &str) -> String {
        self.key.seal(&Token::parse(token).expect("a token"), RESOURCE).to_string()
    }
}

fn write_private(path: &Path, text: &str) {
    std::fs::write(path, text).expect("written");
    std::fs::set_permissions(path, Permissions::from_mode(0o600)).expect("private");
}

fn reason(error: &Error) -> &'static str {
    error.refusal().expect("refused").reason()
}

#[test]
fn a_sealed_database_and_log_refuse_plain_tokens_and_the_list_of_marks_says_so() {
    let (server, keys) = (Server::start(), Keys::new());
    let ledger = Ledger::fenced(&server);
    let log_path = keys.dir.path().join("events.log");
    let log_url = format!("file:{}", log_path.display());
    server.run(&["fence", "arm", &log_url, "--resource", RESOURCE]).ok();
    let token = server.acquire(RESOURCE, "w1");
    let mut db = ledger.open();
    fence(&server).claim(&mut db, &token).expect("not sealed yet");
    for url in [&ledger.url, &log_url] {
        assert_eq!(server.json(&["fence", "marks", url])[0]["sealed"], false);
        let sealed = server.run(&["fence", "seal", url, "--resource", RESOURCE]).ok();
        assert!(sealed.out.contains("accepts sealed tokens only"), "{sealed:?}");
        server.run(&["fence", "seal", url, "--resource", RESOURCE]).ok();
        assert_eq!(server.json(&["fence", "marks", url])[0]["sealed"], true);
    }
    let sealed_text = keys.seal(&token);
    assert_eq!(reason(&fence(&server).claim(&mut db, &token).expect_err("plain")), "unsealed");
    assert_eq!(reason(&fence(&server).claim(&mut db, &sealed_text).expect_err("no keys")), "no_seal_keys");
    fence(&server).with_seal_verifier(&keys.verifier).claim(&mut db, &sealed_text).expect("sealed");
    let mut log = FencedLog::open(&log_path, &fence_id(&server)).expect("opened");
    assert_eq!(reason(&log.claim(&token).expect_err("plain")), "unsealed");
    log = log.with_seal_verifier(&keys.verifier);
    log.claim(&sealed_text).expect("sealed");
    // A probe has no key to seal its token with.
    let target = format!("ledger={}", ledger.url);
    let coverage = server.run(&["coverage", RESOURCE, "--probe", "--target", &target, "--json"]);
    assert_eq!(coverage.json()["targets"][0]["probe"]["result"], "sealed", "{coverage:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_takes_a_stamp_that_the_command_makes_only_for_a_genuine_token() {
    let (server, keys) = (Server::start(), Keys::new());
    let database = tokio::task::spawn_blocking(Database::shared).await.expect("a server");
    let main = database.connect("leasehold", "postgres").await.expect("it answers");
    main.batch_execute("CREATE DATABASE sealed_by_cli").await.expect("a database");
    let socket = database.socket().to_str().expect("plain").replace('/', "%2F");
    let url = format!("postgres://leasehold@{socket}/sealed_by_cli");
    server.run(&["fence", "arm", &url, "--resource", RESOURCE]).ok();
    let without_key = server.run(&["fence", "seal", &url, "--resource", RESOURCE]);
    assert!(without_key.exit != 0 && without_key.err.contains("--stamp-key"), "{without_key:?}");
    let stamp_key = keys.path("ledger.stamp");
    server.run(&["fence", "seal", &url, "--resource", RESOURCE, "--stamp-key", &stamp_key]).ok();
    assert_eq!(server.json(&["fence", "marks", &url])[0]["sealed"], true);

    let token = server.acquire(RESOURCE, "w1");
    let seal_keys = keys.path("seal-keys.json");
    let stamp = |text: &str, resource: &str| {
        let words = ["fence", "stamp", "--resource", resource, "--seal-keys", &seal_keys, "--stamp-key", &stamp_key];
        run(&mut leasehold(&[&words[..], &["--token", text]].concat()))
    };
    let stamped = stamp(&keys.seal(&token), RESOURCE).ok().out.trim().to_owned();
    let db = database.connect("leasehold", "sealed_by_cli").await.expect("it answers");
    let fence = postgres::Fence::new(&fence_id(&server));
    assert_eq!(reason(&fence.claim(&db, &token).await.expect_err("plain")), "unsealed");
    assert_eq!(reason(&fence.claim(&db, keys.seal(&token)).await.expect_err("no stamp")), "stamp");
    fence.claim(&db, &stamped).await.expect("stamped");

    for (what, text, resource, words) in [
        ("a plain token", token.clone(), RESOURCE, "unsealed"),
        ("a token of another resource", keys.seal(&token), "jobs/other", "TOKEN_INVALID"),
        ("no token", "x".to_owned(), RESOURCE, "TOKEN_INVALID"),
    ] {
        let refused = stamp(&text, resource);
        assert!(refused.exit != 0 && refused.out.is_empty(), "{what}: {refused:?}");
        assert!(refused.err.contains("TOKEN_INVALID") || refused.err.contains(words), "{what}: {refused:?}");
    }
}

#[test]
fn key_files_that_cannot_be_used_are_refused_with_the_next_step() {
    let keys = Keys::new();
    let (dir, stamp_key, seal_keys) = (keys.dir.path(), keys.path("ledger.stamp"), keys.path("seal-keys.json"));
    let open: PathBuf = dir.join("open.stamp");
    std::fs::write(&open, "5a".repeat(32)).expect("written");
    std::fs::set_permissions(&open, Permissions::from_mode(0o644)).expect("readable for all");
    write_private(&dir.join("short.stamp"), "5a5a");
    std::fs::write(dir.join("empty.json"), SealKeys::default().to_json()).expect("written");
    std::fs::write(dir.join("wrong.json"), "{").expect("written");
    let token = keys.seal("lh1-74657374696e6721-00000007-4b5b0bbca9e2ece3-w00000000-0000000000000000009-45340cbf");
    for (stamp_key, seal_keys, expected) in [
        (keys.path("open.stamp"), seal_keys.clone(), "chmod 0600"),
        (keys.path("short.stamp"), seal_keys.clone(), "64 hexadecimal digits"),
        (keys.path("missing.stamp"), seal_keys, "does not exist"),
        (stamp_key.clone(), keys.path("empty.json"), "has no key"),
        (stamp_key.clone(), keys.path("wrong.json"), "not a key file"),
        (stamp_key, keys.path("missing.json"), "does not exist"),
    ] {
        let words = ["fence", "stamp", "--resource", RESOURCE, "--seal-keys", &seal_keys, "--stamp-key", &stamp_key];
        let refused = run(&mut leasehold(&[&words[..], &["--token", &token]].concat()));
        assert!(refused.exit != 0 && refused.err.contains(expected), "{expected}: {refused:?}");
        assert!(!refused.err.contains("5a5a"), "the key is not repeated: {refused:?}");
    }
}
