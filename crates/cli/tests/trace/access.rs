//! Who may have what: the history needs one right, the chain of all entries another one.

use std::os::unix::fs::MetadataExt;

use crate::support::{CommandRun, Server, leasehold, run};
use crate::verify;

/// A server whose socket gives this user a role.
struct RestrictedServer {
    folder: tempfile::TempDir,
    _server: Server,
}

impl RestrictedServer {
    fn start(role: &str, prefix: &str) -> Self {
        let folder = tempfile::tempdir().expect("a directory");
        let path = |name: &str| folder.path().join(name).to_str().expect("a UTF-8 path").to_owned();
        let user = std::fs::metadata("/proc/self").expect("the process exists").uid();
        let grant = |role: &str, prefix: &str| {
            format!("[[grant]]\nprincipal = \"uid:{user}\"\nrole = {role:?}\nprefix = {prefix:?}\n")
        };
        let access = format!("{}{}", grant("holder", ""), grant(role, prefix));
        std::fs::write(path("access.toml"), access).expect("the file is writable");
        let (data, access, socket) = (path("data"), path("access.toml"), path("socket"));
        let flags = ["--listen", "127.0.0.1:0", "--data", &data, "--access", &access, "--socket", &socket];
        let server = Server::with_flags(&flags);
        Self { folder, _server: server }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().expect("a UTF-8 path").to_owned()
    }

    fn run(&self, args: &[&str]) -> CommandRun {
        run(leasehold(args).env("LEASEHOLD_ADDR", format!("unix:{}", self.path("socket"))))
    }
}

#[test]
fn a_page_without_the_right_to_export_says_that_it_has_no_chain() {
    let server = RestrictedServer::start("observer", "jobs");
    server.run(&["acquire", "jobs/a", "--holder", "w", "--ttl", "60s"]).ok();
    server.run(&["acquire", "secret/a", "--holder", "w", "--ttl", "60s"]).ok();
    let file = server.path("page.html");
    let written = server.run(&["trace", "jobs/a", "--html", "--out", &file]);
    assert_eq!(written.exit, 6, "{written:?}");
    assert!(written.err.contains("the page has no audit chain: PERMISSION_DENIED"), "{written:?}");
    assert!(written.err.contains("--no-chain") && written.out.contains("cannot be verified"), "{written:?}");
    let page = std::fs::read_to_string(&file).expect("the page is written all the same");
    assert!(page.contains("does not contain the chain") && page.contains("granted"), "{page}");
    assert!(!page.contains("secret"), "entries of other names are not in it");
    let refused = verify(&file, &[]);
    assert_eq!(refused.exit, 8, "{refused:?}");
    assert!(refused.err.contains("contains no audit chain"), "{refused:?}");

    let intended = server.run(&["trace", "jobs/a", "--html", "--no-chain", "--out", &server.path("other.html")]).ok();
    assert_eq!(intended.err, "");
    server.run(&["trace", "jobs/a"]).ok();
    // A name that may not be seen looks like one of which nothing is recorded.
    let hidden = server.run(&["trace", "secret/a"]).fails(1, "leasehold: NOT_FOUND: ");
    assert!(!hidden.err.contains("denied"), "{hidden:?}");
}

#[test]
fn an_administrator_gets_the_chain_and_a_holder_nothing() {
    let server = RestrictedServer::start("admin", "");
    server.run(&["acquire", "jobs/a", "--holder", "w", "--ttl", "60s"]).ok();
    let file = server.path("page.html");
    server.run(&["trace", "jobs/a", "--html", "--out", &file]).ok();
    verify(&file, &[]).ok();
    let server = RestrictedServer::start("holder", "jobs");
    server.run(&["acquire", "jobs/a", "--holder", "w", "--ttl", "60s"]).ok();
    server.run(&["trace", "jobs/a"]).fails(6, "leasehold: PERMISSION_DENIED");
}
