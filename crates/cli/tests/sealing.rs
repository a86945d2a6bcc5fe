//! Sealed tokens of a real server: keys on the command line, rotation while serving, the wrapper, and forged rollbacks (A8, A9).

mod support;

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use leasehold_seal::TargetStampKey;
use serde_json::Value;
use support::{CommandRun, Server, leasehold, run};
use tempfile::TempDir;

struct Place {
    directory: TempDir,
}

impl Place {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().expect("a directory") }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().expect("a UTF-8 path").to_owned()
    }

    /// Runs `leasehold keys` on the key directory.
    fn keys(&self, command: &str, more: &[&str]) -> CommandRun {
        let directory = self.text("keys");
        run(leasehold(&["--json", "keys", command, "--keys", &directory]).args(more))
    }

    fn create_key(&self, more: &[&str]) -> String {
        support::text(&self.keys("create", more).ok().json()["kid"])
    }

    fn states(&self) -> Vec<(String, String)> {
        let keys = self.keys("list", &[]).ok().json();
        let keys = keys["keys"].as_array().expect("a list of keys");
        keys.iter().map(|key| (support::text(&key["kid"]), support::text(&key["state"]))).collect()
    }

    fn serve(&self) -> Server {
        let (data, keys) = (self.text("data"), self.text("keys"));
        Server::with_flags(&["--listen", "127.0.0.1:0", "--data", &data, "--keys", &keys, "--file-check", "1"])
    }

    /// Verifies a token with the public keys of a file.
    fn verify(&self, file: &str, name: &str, token: &str) -> CommandRun {
        run(&mut leasehold(&["--json", "token", "verify", "--keys", &self.text(file), "--name", name, token]))
    }

    /// Writes what a command prints.
    fn save(&self, name: &str, printed: &CommandRun) {
        std::fs::write(self.path(name), &printed.out).expect("the file is writable");
    }
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).expect("the file exists").permissions().mode() & 0o7777
}

#[test]
fn a_server_with_a_key_seals_every_token_and_anyone_with_the_public_keys_verifies_it() {
    let place = Place::new();
    let kid = place.create_key(&[]);
    assert_eq!(mode(&place.path("keys")), 0o700);
    assert_eq!(mode(&place.path(&format!("keys/seal-{kid}.key"))), 0o600);
    let server = place.serve();
    let granted = server.json(&["acquire", "db/orders", "--holder", "w", "--ttl", "60s"]);
    let token = support::text(&granted["token"]);
    assert!(token.starts_with("lh2-") && token.len() == 172, "{token}");

    place.save("keys.json", &server.run(&["keys", "export"]).ok());
    let verified = place.verify("keys.json", "db/orders", &token).ok().json();
    assert_eq!((&verified["number"], &verified["kid"]), (&granted["token_number"], &kid.as_str().into()));
    // The public set is the same from the directory, from the server and over HTTP, and holds no private key.
    let file = std::fs::read_to_string(place.path(&format!("keys/seal-{kid}.key"))).expect("the file is readable");
    let private: Value = serde_json::from_str(&file).expect("the file is JSON");
    let private = support::text(&private["private"]);
    let http = server.http("GET", "/v1/keys", "", "");
    let body = http.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let exported = place.keys("export", &[]).ok();
    for text in [&exported.out, body] {
        let set: Value = serde_json::from_str(text).expect("the set is JSON");
        assert_eq!(set, place.file("keys.json"), "{text}");
        assert!(!text.contains(&private));
    }

    // A changed number, another resource, a plain token and a stranger's key are refused.
    let number = support::text(&granted["token_number"]);
    let raised =
        token.replacen(&format!("{number:0>19}"), &format!("{:019}", number.parse::<u64>().expect("a number") + 1), 1);
    assert_ne!(raised, token);
    place.verify("keys.json", "db/orders", &raised).fails(2, "");
    place.verify("keys.json", "db/users", &token).fails(2, "");
    let plain = format!("lh1{}", &token[3..76]);
    place.verify("keys.json", "db/orders", &plain).fails(2, "");
    let other = Place::new();
    other.create_key(&[]);
    other.save("keys.json", &other.keys("export", &[]).ok());
    other.verify("keys.json", "db/orders", &token).fails(2, "");

    // The full text renews and releases, and the wrapper passes it on; queries show the number only.
    let renewed = server.json(&["renew", "db/orders", "--token", &token]);
    assert_eq!(renewed["token_number"], granted["token_number"]);
    for args in [&["show", "db/orders"][..], &["ls"], &["held-by", "w"]] {
        let shown = server.run(&[&["--json"], args].concat()).ok().out;
        assert!(!shown.contains("lh2-") && !shown.contains("lh1-"), "{shown}");
    }
    server.run(&["release", "db/orders", "--token", &token]).ok();
    let inside = server.run(&["run", "db/orders", "--", "sh", "-c", "printf %s \"$LEASEHOLD_TOKEN\""]).ok();
    place.verify("keys.json", "db/orders", &inside.out).ok();
}

impl Place {
    fn file(&self, name: &str) -> Value {
        let text = std::fs::read_to_string(self.path(name)).expect("the file is readable");
        serde_json::from_str(&text).expect("the file is JSON")
    }
}

#[test]
fn a_key_is_replaced_while_serving_and_tokens_of_both_are_accepted_meanwhile() {
    let place = Place::new();
    let old = place.create_key(&[]);
    place.keys("retire", &[&old]).fails(78, "");
    let server = place.serve();
    let before = server.acquire("a", "w");
    let waiting = place.create_key(&[]);
    assert_eq!(place.states().len(), 2);
    assert!(place.states().contains(&(waiting.clone(), "waits".to_owned())), "a further key waits");
    assert!(place.states().contains(&(old.clone(), "signs".to_owned())));
    let new = place.create_key(&["--active-in", "0s"]);
    server.wait_for_log("seal keys reloaded");
    server.signal("HUP");
    let sealed_by = |token: &str| token[77..85].to_owned();
    let mut names = 0;
    let after = loop {
        names += 1;
        let token = server.acquire(&format!("b/{names}"), "w");
        if sealed_by(&token) == new {
            break token;
        }
        assert_eq!(sealed_by(&token), old);
        std::thread::sleep(std::time::Duration::from_millis(50));
    };
    assert_eq!(sealed_by(&before), old);
    let name = format!("b/{names}");
    place.save("keys.json", &server.run(&["keys", "export"]).ok());
    place.verify("keys.json", "a", &before).ok();
    place.verify("keys.json", &name, &after).ok();

    place.keys("retire", &[&old, "--after", "0s"]).ok();
    assert!(place.states().contains(&(old.clone(), "ended".to_owned())));
    place.save("keys.json", &place.keys("export", &[]).ok());
    place.verify("keys.json", "a", &before).fails(2, "");
    place.verify("keys.json", &name, &after).ok();
    place.keys("retire", &[&old]).fails(78, "");
    place.keys("retire", &["00000000"]).fails(78, "");
    place.keys("retire", &["KID"]).fails(2, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn holders_receive_stamped_tokens_from_the_command_line_the_wrapper_and_the_client_and_keys_are_replaced() {
    let place = Place::new();
    place.keys("create-stamp", &["ledger", "--under", "jobs"]).fails(78, "");
    place.create_key(&[]);
    place.keys("create-stamp", &["ledger", "--under", "jobs/"]).fails(78, "").err.find("under").expect("it is named");
    place.keys("create-stamp", &["", "--under", "jobs"]).fails(78, "").err.find("target").expect("it is named");
    let create = |more: &[&str]| {
        let created = place.keys("create-stamp", &[&["ledger", "--under", "jobs"], more].concat()).ok().json();
        assert_eq!(mode(Path::new(&support::text(&created["file"]))), 0o600);
        let text = std::fs::read_to_string(support::text(&created["file"])).expect("the file is readable");
        TargetStampKey::from_file_text(&text).expect("a key file")
    };
    let states = || {
        let listed = place.keys("list", &[]).ok().json();
        let state = |key: &Value| (support::text(&key["id"]), support::text(&key["state"]));
        listed["stamp_keys"].as_array().expect("an array").iter().map(state).collect::<Vec<_>>()
    };
    let old = create(&[]);
    let id = |key: &TargetStampKey| key.key.id().to_string();
    let server = place.serve();
    let charter = "prefix = \"jobs\"\n[[charter.targets]]\nname = \"ledger\"\nat = \"db\"\n\
                   [[charter.targets]]\nname = \"the mail\"\nat = \"elsewhere\"\n";
    std::fs::write(place.path("jobs.toml"), charter).expect("the file is writable");
    server.run(&["charter", "apply", &place.text("jobs.toml"), "--comment", "c"]).ok();

    let granted = server.json(&["acquire", "jobs/a", "--holder", "w", "--ttl", "60s"]);
    let token = support::text(&granted["token"]);
    assert_eq!(granted["stamped_tokens"], serde_json::json!({ "ledger": old.key.stamp(&token) }));
    let renewed = server.json(&["renew", "jobs/a", "--token", &token]);
    assert_eq!(renewed["stamped_tokens"], granted["stamped_tokens"]);
    let script = "printf '%s %s' \"$LEASEHOLD_TOKEN\" \"$LEASEHOLD_STAMPED_TOKEN_LEDGER\"; env | grep -c STAMPED";
    let inside = server.run(&["run", "jobs/b", "--", "sh", "-c", script]).ok().out;
    let (token, rest) = inside.split_once(' ').expect("two words");
    assert_eq!(rest.trim_end(), format!("{}1", old.key.stamp(token)), "one target has a key");

    // The next key waits, is used by new grants and by raised tokens, and replaces the old one.
    let client = leasehold::Client::new(&server.address).expect("a valid address");
    let guard = client.lock("jobs/c").acquire().await.expect("the name is free");
    let stamped = guard.stamped_token("ledger").expect("stamped");
    assert_eq!(stamped.as_str(), old.key.stamp(guard.token().as_str()));
    assert!(guard.stamped_token("the mail").is_none());
    let waiting = create(&[]);
    let new = create(&["--active-in", "0s"]);
    let mut expected = [(id(&old), "replaced"), (id(&waiting), "waits"), (id(&new), "stamps")]
        .map(|(id, state)| (id, state.to_owned()))
        .to_vec();
    let mut found = states();
    expected.sort();
    found.sort();
    assert_eq!(found, expected);
    server.signal("HUP");
    let deadline = std::time::Instant::now() + support::TEST_TIMEOUT;
    loop {
        let raised = guard.rotate().await.expect("the lease is current");
        let stamped = guard.stamped_token("ledger").expect("stamped");
        if stamped.as_str() == new.key.stamp(raised.as_str()) {
            break;
        }
        assert_eq!(stamped.as_str(), old.key.stamp(raised.as_str()), "the key that waits stamps nothing");
        assert!(std::time::Instant::now() < deadline, "the new key is not used");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    guard.release().await.expect("released");
    let after = server.json(&["acquire", "jobs/d", "--holder", "w", "--ttl", "60s"]);
    assert_eq!(after["stamped_tokens"]["ledger"], new.key.stamp(&support::text(&after["token"])).as_str());
}

#[test]
fn a_server_starts_and_reloads_only_with_keys_that_it_can_use() {
    let place = Place::new();
    let kid = place.create_key(&[]);
    let file = place.path(&format!("keys/seal-{kid}.key"));
    let (data, keys) = (place.text("data"), place.text("keys"));
    let start = || run(&mut leasehold(&["serve", "--listen", "127.0.0.1:0", "--data", &data, "--keys", &keys]));
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).expect("the mode is set");
    start().fails(78, "leasehold: CONFIG{keys}: ");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("the mode is set");
    let text = std::fs::read_to_string(&file).expect("the file is readable");
    std::fs::write(&file, text.replace(&kid, "00000000")).expect("the file is writable");
    start().fails(78, "leasehold: CONFIG{keys}: ");
    std::fs::write(&file, &text).expect("the file is writable");
    let server = place.serve();
    assert_eq!(&server.acquire("a", "w")[77..85], kid);
    std::fs::write(&file, "{}").expect("the file is writable");
    let log = server.wait_for_log("seal keys unchanged");
    assert!(log.contains("not a key file"), "{log}");
    assert_eq!(&server.acquire("b", "w")[77..85], kid, "the server continues with the keys that it has");
}

#[test]
fn a_server_without_a_key_prints_plain_tokens_and_an_empty_set() {
    let server = Server::start();
    assert!(server.acquire("a", "w").starts_with("lh1-"));
    let set = server.run(&["keys", "export"]).ok();
    assert_eq!(serde_json::from_str::<Value>(&set.out).expect("JSON"), serde_json::json!({ "version": 1, "keys": [] }));
}

/// Restores a data directory and shows that only the sealed token of the lost grant stops the cluster.
#[test]
fn with_access_rules_a_forged_rollback_stops_nothing_and_a_lost_sealed_token_does() {
    let place = Place::new();
    place.create_key(&[]);
    let uid = std::fs::metadata("/proc/self").expect("the process exists").uid();
    let grant = format!("[[grant]]\nprincipal = \"uid:{uid}\"\nrole = \"admin\"\nprefix = \"\"\n");
    std::fs::write(place.path("access.toml"), grant).expect("the file is writable");
    let (data, keys, access, socket) =
        (place.text("data"), place.text("keys"), place.text("access.toml"), place.text("socket"));
    let serve = || {
        Server::with_flags(&[
            "--listen",
            "127.0.0.1:0",
            "--data",
            &data,
            "--keys",
            &keys,
            "--access",
            &access,
            "--socket",
            &socket,
        ])
    };
    let call = |args: &[&str]| run(leasehold(args).env("LEASEHOLD_ADDR", format!("unix:{socket}")));
    let acquire = |name: &str| call(&["--json", "acquire", name, "--holder", "w", "--ttl", "10m"]);
    let mut server = serve();
    let kept = acquire("kept").ok().json();
    server.signal("TERM");
    server.wait();
    let copy = copy_files(&place.path("data"));
    let mut server = serve();
    let lost = acquire("lost").ok().json();
    server.signal("TERM");
    server.wait();
    restore_files(&place.path("data"), &copy);

    let server = serve();
    acquire("after").ok();
    let (sealed, number) = (support::text(&lost["token"]), support::text(&lost["token_number"]));
    assert!(sealed.starts_with("lh2-") && kept["token"].is_string());
    // Everyone who sees the number can write this text.
    let body = &sealed[4..76];
    let forged = format!("lh1-{body}-{:08x}", crc32(format!("lh1-{body}").as_bytes()));
    call(&["check", "lost", "--token", &forged]).fails(3, "");
    let log = server.wait_for_log("token ignored");
    assert!(log.contains(&format!("uid:{uid}")) && log.contains(&number), "{log}");
    acquire("still-granted").ok();
    call(&["check", "lost", "--token", &sealed]).fails(3, "");
    let log = server.wait_for_log("ROLLED_BACK");
    assert!(log.contains(&number), "{log}");
    let refused = acquire("quarantined");
    assert_eq!(refused.problem()["code"], "ROLLED_BACK");
}

/// The checksum of plain tokens, as anyone computes it.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32| if crc & 1 == 1 { (crc >> 1) ^ 0xEDB8_8320 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc)))
}

fn copy_files(data: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = std::fs::read_dir(data).expect("the directory exists").map(|entry| entry.expect("an entry").path());
    let files = entries.filter(|path| path.is_file());
    files.map(|path| (path.clone(), std::fs::read(&path).expect("the file is readable"))).collect()
}

fn restore_files(data: &Path, files: &[(PathBuf, Vec<u8>)]) {
    for (path, _) in copy_files(data).iter().filter(|(path, _)| files.iter().all(|(kept, _)| kept != path)) {
        std::fs::remove_file(path).expect("the file exists");
    }
    for (path, bytes) in files {
        std::fs::write(path, bytes).expect("the file is writable");
    }
}
