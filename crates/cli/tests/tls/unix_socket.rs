//! The unix socket: its file, and callers that are known by their user id (A3).

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;

use crate::harness::{TlsServer, curl, write_access};
use crate::support::{Server, leasehold, run};

fn text(path: &Path) -> &str {
    path.to_str().expect("a UTF-8 path")
}

fn by_curl(socket: &Path, path: &str) -> String {
    let output = curl().arg("--unix-socket").arg(socket).arg(format!("http://localhost{path}")).output();
    String::from_utf8_lossy(&output.expect("curl starts").stdout).into_owned()
}

#[test]
fn a_file_journal_has_a_socket_that_serves_curl_and_the_command_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("data");
    let flags = ["--listen", "127.0.0.1:0", "--data", text(&data)];
    let mut server = Server::with_flags(&flags);
    let socket = data.join("leasehold.sock");
    assert_eq!(std::fs::metadata(&socket).expect("the socket exists").mode() & 0o7777, 0o660);
    assert_eq!(by_curl(&socket, "/v1/leases"), "200");
    let addr = format!("unix:{}", text(&socket));
    let on_socket = |args: &[&str]| run(leasehold(args).env("LEASEHOLD_ADDR", &addr));
    let token =
        on_socket(&["acquire", "jobs/a", "--holder", "w1", "--ttl", "60s", "--json"]).ok().json()["token"].clone();
    on_socket(&["renew", "jobs/a", "--token", token.as_str().expect("a token")]).ok();
    on_socket(&["run", "jobs/b", "--", "true"]).ok();
    assert_eq!(server.json(&["show", "jobs/a"])["held"], 1, "the same server");
    // A second server cannot take the live socket over, and a killed one leaves a file that does not stop the next.
    let other = run(&mut leasehold(&["serve", "--ephemeral", "--listen", "127.0.0.1:0", "--socket", text(&socket)]));
    other.fails(78, "leasehold: CONFIG{socket}: socket: another process listens on ");
    assert_eq!(by_curl(&socket, "/v1/leases"), "200");
    server.signal("KILL");
    server.wait();
    assert!(socket.exists());
    let mut server = Server::with_flags(&flags);
    assert_eq!(by_curl(&socket, "/v1/leases"), "200");
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    assert!(!socket.exists(), "a clean stop removes the socket");
}

#[test]
fn a_socket_can_be_chosen_or_left_out_and_bad_paths_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let (socket, file) = (directory.path().join("chosen.sock"), directory.path().join("file"));
    std::fs::write(&file, "data").expect("the file is writable");
    let serve = ["serve", "--ephemeral", "--listen", "127.0.0.1:0", "--socket"];
    let server = Server::with_flags(&[&serve[1..], &[text(&socket)]].concat());
    assert_eq!(by_curl(&socket, "/v1/leases"), "200");
    drop(server);
    let data = directory.path().join("data");
    let server = Server::with_flags(&["--listen", "127.0.0.1:0", "--data", text(&data), "--socket", ""]);
    assert!(!data.join("leasehold.sock").exists());
    drop(server);
    let long = directory.path().join("x".repeat(120));
    let missing = directory.path().join("missing/socket");
    for (path, message) in
        [(&file, "exists and is not a socket"), (&long, "longer than 107 bytes"), (&missing, "cannot listen on ")]
    {
        let refused = run(&mut leasehold(&[&serve[..], &[text(path)]].concat()));
        let refused = refused.fails(78, "leasehold: CONFIG{socket}: ");
        assert!(refused.err.contains(message), "{refused:?}");
    }
    assert_eq!(std::fs::read(&file).expect("the file is there"), b"data");
}

#[test]
fn a_default_path_that_is_too_long_only_warns() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("x".repeat(110));
    let server = Server::with_flags(&["--listen", "127.0.0.1:0", "--data", text(&data)]);
    assert!(server.startup_log.iter().any(|line| line.contains("without a unix socket")), "{:?}", server.startup_log);
    server.json(&["status"]);
}

#[test]
fn only_users_with_permission_reach_the_socket_and_are_known_by_their_uid() {
    assert_eq!(rustix::process::geteuid().as_raw(), 0, "the test starts processes of another user");
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).expect("the mode is set");
    let (socket, access) = (directory.path().join("socket"), directory.path().join("access.toml"));
    write_access(&access, &["uid:1234"]);
    let flags = ["--ephemeral", "--listen", "127.0.0.1:0", "--socket", text(&socket), "--access", text(&access)];
    let server = Server::with_flags(&flags);
    let as_user = |uid: u32| {
        let mut command = std::process::Command::new("setpriv");
        command.args([
            &format!("--reuid={uid}"),
            "--regid=1234",
            "--clear-groups",
            "curl",
            "-sS",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
        ]);
        let output = command.args(["--unix-socket", text(&socket), "http://localhost/v1/leases"]).output();
        String::from_utf8_lossy(&output.expect("setpriv starts").stdout).into_owned()
    };
    assert_eq!(as_user(1234), "000", "mode 0660 keeps other users off");
    std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o666)).expect("the mode is set");
    assert_eq!(as_user(1234), "200", "its uid has a grant");
    assert_eq!(as_user(1235), "403", "another uid has none");
    assert_eq!(as_user(0), "403", "root has none either");
    assert!(
        server.http("GET", "/v1/leases", "", "").starts_with("HTTP/1.1 403"),
        "plain callers on loopback are anonymous"
    );
}

#[test]
fn a_socket_of_a_dead_process_is_replaced_and_the_unix_socket_serves_beside_tls() {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("socket");
    drop(UnixListener::bind(&socket).expect("the path is free"));
    let server = TlsServer::with_flags(&["--socket", text(&socket)]);
    assert_eq!(by_curl(&socket, "/v1/leases"), "200", "uid:0 has a grant");
    drop(server);
}
