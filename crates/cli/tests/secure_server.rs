//! Runs the commands of `docs/how-to/secure-a-server.md` as they are written, in a network of their own where `192.0.2.10` is this machine.

mod support;

use std::fs;
use std::path::Path;
use std::process::Command;

use support::{CommandRun, run};
use tempfile::TempDir;

const PAGE: &str = "docs/how-to/secure-a-server.md";

/// Commands of the page that a test performs in another way: there is no second terminal, and no service manager.
const REPLACED: [(&str, &str); 2] = [
    (
        "leasehold serve --config leasehold.toml\n",
        "touch serve.log; leasehold serve --config leasehold.toml 2>serve.log & server=$!\n\
         trap 'kill $server; wait $server' EXIT\n\
         until grep -q 'serving on' serve.log; do kill -0 $server || { cat serve.log >&2; exit 1; }; sleep 0.05; done\n",
    ),
    (
        "systemctl reload leasehold\n",
        "before=$(grep -c 'access rules reloaded' serve.log || true)\nkill -HUP $server\n\
         while [ \"$(grep -c 'access rules reloaded' serve.log || true)\" = \"$before\" ]; do sleep 0.05; done\n",
    ),
];

/// The blocks of the page that are run, in their order.
fn blocks() -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(PAGE);
    let page = fs::read_to_string(page).expect("the page exists");
    let blocks = page.split("```sh secure\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.map(str::to_owned).collect()
}

/// Runs a script in an empty directory, in a network with the address of the page. The server runs until the script ends.
fn run_script(folder: &TempDir, script: &str) -> CommandRun {
    let (here, home) = (folder.path().join("here"), folder.path().join("home"));
    fs::create_dir(&here).and_then(|()| fs::create_dir(&home)).expect("the directory is writable");
    let binary = Path::new(env!("CARGO_BIN_EXE_leasehold")).parent().expect("the binary is in a directory");
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap_or_default());
    let script = REPLACED.iter().fold(script.to_owned(), |script, (command, own)| script.replace(command, own));
    let network = "ip link set lo up\nip address add 192.0.2.10/32 dev lo\n";
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    command.args(["--net", "sh", "-euc", &format!("{network}{script}")]);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("LEASEHOLD_") {
            command.env_remove(name);
        }
    }
    command.current_dir(here).env("PATH", path).env("HOME", home).env_remove("XDG_CONFIG_HOME");
    run(&mut command)
}

#[test]
fn every_command_of_the_page_works_from_an_empty_directory() {
    let folder = tempfile::tempdir().expect("a directory");
    let blocks = blocks();
    let result = run_script(&folder, &blocks.concat()).ok();
    let log = fs::read_to_string(folder.path().join("here/serve.log")).expect("the server has a log");
    assert_eq!(log.matches("access rules reloaded").count(), 2, "{log}");
    let parts = [
        "Move ca.key off this machine",
        "granted holder under \"jobs\"",
        "jobs/settle",
        "\"resource\":\"jobs/nightly\"",
        "200 worker-1\n",
        "URI:spiffe://leasehold.internal/worker",
        "worker.pem: OK",
        "renewed server",
        "revoked 2 certificates of worker",
    ];
    for part in parts {
        assert!(result.out.contains(part), "{part:?} is missing in {}", result.out);
    }
    assert!(result.err.contains("TLSv1.3"), "{}", result.err);
}

#[test]
fn a_lease_over_the_network_takes_at_most_five_commands() {
    let blocks = blocks();
    let first: String = blocks[..3].concat();
    let commands: Vec<_> = first.lines().collect();
    assert!(commands.iter().all(|line| line.starts_with("leasehold ")), "{commands:?}");
    let until_lease = commands.iter().position(|line| line.contains("acquire")).expect("a lease is acquired") + 1;
    assert!(until_lease <= 5, "{commands:?}");
}

/// What a caller gets that is not the worker of the page: shell lines after the server has started, each with a condition.
const REFUSALS: &str = r#"
url=https://192.0.2.10:7421/v1/leases/jobs/settle
worker="--cacert ca.pem --cert worker.pem --key worker.key"
curl -sf $worker $url:acquire --json '{"holder":"w","ttl":"30s"}' >/dev/null
echo "no certificate: $(curl -s -o /dev/null -w '%{http_code}' --cacert ca.pem $url || true)"
echo "plain: $(curl -s -o /dev/null -w '%{http_code}' http://192.0.2.10:7421/v1/leases/jobs/settle || true)"
echo "TLS 1.2: $(curl -s -o /dev/null -w '%{http_code}' $worker --tls-max 1.2 $url || true)"
mkdir other && XDG_CONFIG_HOME=$PWD/other leasehold init other/ca >/dev/null
echo "another CA: $(curl -s -o /dev/null -w '%{http_code}' --cacert ca.pem --cert other/ca/admin.pem --key other/ca/admin.key $url || true)"
echo "server's certificate: $(curl -s -o /dev/null -w '%{http_code}' --cacert ca.pem --cert server.pem --key server.key $url || true)"
echo "own prefix: $(curl -s -o /dev/null -w '%{http_code}' $worker $url)"
echo "other prefix: $(curl -s -o /dev/null -w '%{http_code}' $worker https://192.0.2.10:7421/v1/leases/other:acquire --json '{"holder":"w","ttl":"30s"}')"
echo "like the prefix: $(curl -s -o /dev/null -w '%{http_code}' $worker https://192.0.2.10:7421/v1/leases/jobsx:acquire --json '{"holder":"w","ttl":"30s"}')"
leasehold ca issue late --role holder --prefix jobs/late >/dev/null 2>&1
late="--cacert ca.pem --cert late.pem --key late.key"
lease="https://192.0.2.10:7421/v1/leases/jobs/late:acquire"
echo "before reload: $(curl -s -o /dev/null -w '%{http_code}' $late $lease --json '{"holder":"w","ttl":"30s"}')"
kill -HUP $server
until curl -sf -o /dev/null $late $lease --json '{"holder":"w","ttl":"30s"}'; do sleep 0.05; done
echo "after reload: granted"
leasehold ca revoke worker >/dev/null 2>&1
kill -HUP $server
while curl -s -o /dev/null $worker $url; do sleep 0.05; done
echo "revoked: refused"
curl -sf -o /dev/null $late https://192.0.2.10:7421/v1/leases/jobs/late
echo "another certificate: stays"
"#;

#[test]
fn only_the_certificates_of_the_page_get_in() {
    let folder = tempfile::tempdir().expect("a directory");
    let script = blocks()[..2].concat() + REFUSALS;
    let result = run_script(&folder, &script).ok();
    let lines: Vec<_> = result.out.lines().collect();
    let got =
        |what: &str| lines.iter().find_map(|line| line.strip_prefix(what)?.strip_prefix(": ")).unwrap_or("missing");
    for what in ["no certificate", "plain", "TLS 1.2", "another CA", "server's certificate"] {
        assert!(["000", "400"].contains(&got(what)), "{what} got {}: {result:?}", got(what));
    }
    let accepted = ["own prefix", "after reload", "revoked", "another certificate"].map(got);
    assert_eq!(accepted, ["200", "granted", "refused", "stays"], "{result:?}");
    for what in ["other prefix", "like the prefix", "before reload"] {
        assert_eq!(got(what), "403", "{what}: {result:?}");
    }
}
