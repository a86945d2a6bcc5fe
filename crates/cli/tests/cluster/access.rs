//! Access control over a failover: who caused a change, how much each identity has, and that all servers have the same keys (A6, A12,
//! A13).

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use leasehold_testkit::etcd::EtcdCluster;

use crate::harness::wait_for_leadership;
use crate::support::{CommandRun, Server, TEST_TIMEOUT, leasehold, run, text};

/// Servers on one etcd with an access file, each with a key directory and a unix socket of its own.
struct SecureServers {
    etcd: EtcdCluster,
}

fn my_principal() -> String {
    format!("uid:{}", fs::metadata("/proc/self").expect("the process exists").uid())
}

impl SecureServers {
    fn new() -> Self {
        let servers = Self { etcd: EtcdCluster::single() };
        let rules = format!(
            "[[grant]]\nprincipal = {me:?}\nrole = \"admin\"\nprefix = \"\"\n\
             [[grant]]\nprincipal = {me:?}\nrole = \"holder\"\nprefix = \"jobs\"\n\
             [[limit]]\nprincipal = {me:?}\nleases = 2\nsessions = 1\n",
            me = my_principal()
        );
        fs::write(servers.path("access.toml"), rules).expect("the file is writable");
        servers
    }

    fn path(&self, name: &str) -> PathBuf {
        self.etcd.dir().join(name)
    }

    /// Creates a key directory with this cluster key.
    fn create_keys(&self, name: &str, cluster_key: &str) {
        let directory = self.path(name);
        fs::create_dir(&directory).expect("a new directory");
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).expect("the mode is set");
        let file = directory.join("cluster.key");
        fs::write(&file, format!("{}\n", cluster_key.repeat(32))).expect("writable");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("the mode is set");
    }

    /// Copies the keys of a kind, `seal` or `stamp`, from one key directory to another.
    fn copy_keys(&self, kind: &str, from: &str, to: &str) {
        for entry in fs::read_dir(self.path(from)).expect("a directory").flatten() {
            let name = entry.file_name();
            if name.to_str().is_some_and(|name| name.starts_with(&format!("{kind}-"))) {
                fs::copy(entry.path(), self.path(to).join(name)).expect("copied with its mode");
            }
        }
    }

    fn create_seal_key(&self, keys: &str, more: &[&str]) -> String {
        let directory = self.path(keys).display().to_string();
        text(&run(leasehold(&["--json", "keys", "create", "--keys", &directory]).args(more)).ok().json()["kid"])
    }

    fn create_stamp_key(&self, keys: &str) -> String {
        let directory = self.path(keys).display().to_string();
        let create = ["--json", "keys", "create-stamp", "ledger", "--under", "jobs", "--keys", &directory];
        text(&run(&mut leasehold(&create)).ok().json()["id"])
    }

    fn flags(&self, name: &str, keys: &str) -> Vec<String> {
        let path = |name: &str| self.path(name).display().to_string();
        let journal = format!("etcd://{}/secure", self.etcd.endpoints().join(","));
        let (socket, data) = (path(&format!("{name}.sock")), path(name));
        let (access, keys) = (path("access.toml"), path(keys));
        let flags = ["--listen", "127.0.0.1:0", "--journal", &journal, "--data", &data, "--access", &access];
        let more = ["--keys", &keys, "--socket", &socket, "--file-check", "1"];
        flags.into_iter().chain(more).map(str::to_owned).collect()
    }

    fn start(&self, name: &str, keys: &str) -> Server {
        Server::with_flags(&self.flags(name, keys).iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// What the leader has recorded about its keys.
    fn record(&self) -> String {
        self.etcd.ctl_ok(&["get", "/secure/keys"])
    }

    /// Waits until the leader has recorded a seal key or a stamp key.
    fn wait_for_record(&self, kid: &str) {
        let deadline = Instant::now() + TEST_TIMEOUT;
        while !self.record().contains(kid) {
            assert!(Instant::now() < deadline, "the key is not recorded: {}", self.record());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Runs a server that refuses to start.
    fn refused(&self, name: &str, keys: &str) -> CommandRun {
        let flags = self.flags(name, keys);
        run(leasehold(&["serve"]).args(flags)).fails(78, "leasehold: CONFIG")
    }

    /// Runs a command as this user, over the unix socket of a server.
    fn run(&self, name: &str, args: &[&str]) -> CommandRun {
        let socket = format!("unix:{}", self.path(&format!("{name}.sock")).display());
        run(leasehold(args).env("LEASEHOLD_ADDR", socket))
    }
}

#[test]
fn the_cause_of_a_change_and_the_counts_of_an_identity_survive_a_failover() {
    let servers = SecureServers::new();
    servers.create_keys("keys", "5a");
    let first = servers.start("first", "keys");
    wait_for_leadership(&first);
    let second = servers.start("second", "keys");
    let acquire = |server: &str, name: &str| servers.run(server, &["acquire", name, "--holder", "w", "--ttl", "9m"]);
    let granted = servers.run("first", &["acquire", "jobs/a", "--holder", "w", "--ttl", "9m", "--json"]).ok().json();
    acquire("first", "jobs/b").ok();
    acquire("first", "jobs/c").fails(7, "leasehold: RESOURCE_EXHAUSTED{identity_leases, 2, 3}");
    servers.run("first", &["cluster", "set-max-ttl", "20m", "--comment", "slow batches"]).ok();
    let causes = |server: &str| {
        let history = servers.run(server, &["history", "--json"]).ok().json();
        let entries = history["entries"].as_array().expect("an array").clone();
        let caused = entries.iter().filter(|entry| entry["by"] == my_principal().as_str());
        caused.map(|entry| (text(&entry["kind"]), text(&entry["via"]))).collect::<Vec<_>>()
    };
    let before = causes("first");
    assert!(before.len() >= 3 && before.iter().all(|(_, via)| via == "uid"), "{before:?}");
    drop(first);
    wait_for_leadership(&second);
    assert_eq!(causes("second"), before, "the next leader names the same causes");
    // The counts are those of the state, and they fall with the leases.
    acquire("second", "jobs/c").fails(7, "leasehold: RESOURCE_EXHAUSTED{identity_leases, 2, 3}");
    let secret_file = servers.path("secret");
    fs::write(&secret_file, text(&granted["secret"])).expect("written");
    fs::set_permissions(&secret_file, fs::Permissions::from_mode(0o600)).expect("the mode is set");
    let (token, secret_file) = (text(&granted["token"]), secret_file.display().to_string());
    servers.run("second", &["release", "jobs/a", "--token", &token, "--secret-file", &secret_file]).ok();
    acquire("second", "jobs/c").ok();
    acquire("second", "jobs/d").fails(7, "leasehold: RESOURCE_EXHAUSTED{identity_leases, 2, 3}");
}

#[test]
fn a_server_with_other_keys_than_the_cluster_does_not_start_and_a_rotation_stops_no_one() {
    let servers = SecureServers::new();
    for (name, cluster_key) in [("one", "5a"), ("two", "5a"), ("other", "7e")] {
        servers.create_keys(name, cluster_key);
    }
    let old = servers.create_seal_key("one", &[]);
    let first = servers.start("first", "one");
    wait_for_leadership(&first);
    servers.wait_for_record(&old);
    assert!(!servers.record().contains("5a5a"), "the record shows no key");
    let refused = servers.refused("second", "other");
    let directory = servers.path("other").display().to_string();
    for part in ["another cluster.key", &directory, "copy cluster.key from another server", "delete /secure/keys"] {
        assert!(refused.err.contains(part), "{part}: {}", refused.err);
    }
    let refused = servers.refused("second", "two");
    assert!(refused.err.contains(&format!("seal-{old}.key")) && refused.err.contains("copy it"), "{}", refused.err);
    let foreign = servers.create_seal_key("two", &[]);
    assert!(servers.refused("second", "two").err.contains(&format!("seal-{old}.key")), "another seal key");
    fs::remove_file(servers.path(&format!("two/seal-{foreign}.key"))).expect("it was created");
    servers.copy_keys("seal", "one", "two");
    // A key that one server has before the others does not stop them.
    servers.create_seal_key("one", &["--active-in", "1h"]);
    first.signal("HUP");
    first.wait_for_log("seal keys reloaded");
    let second = servers.start("second", "two");
    drop(first);
    wait_for_leadership(&second);
    // When the next key is in use, the others need it.
    let new = servers.create_seal_key("two", &["--active-in", "0s"]);
    second.signal("HUP");
    servers.wait_for_record(&new);
    assert!(servers.refused("first", "one").err.contains(&format!("seal-{new}.key")));
    servers.copy_keys("seal", "two", "one");
    // So it is with the key that stamps tokens for a database.
    let stamp = servers.create_stamp_key("two");
    second.signal("HUP");
    servers.wait_for_record(&stamp);
    let refused = servers.refused("first", "one");
    assert!(refused.err.contains(&format!("stamp-{stamp}.key")) && refused.err.contains("copy it"), "{}", refused.err);
    servers.copy_keys("stamp", "two", "one");
    drop(servers.start("first", "one"));
}
