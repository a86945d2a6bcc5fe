//! `leasehold backup` against a real server, and back through `restore`.

mod support;

use support::{NOBODY, Server, keys, leasehold, run};

#[test]
fn a_backup_is_whole_under_its_name_and_restores() {
    let server = Server::start();
    server.acquire("a", "w1");
    let file = server.data.path().join("monday.backup");
    let path = file.to_str().expect("a text");
    let told = server.json(&["backup", path]);
    assert_eq!(keys(&told), ["bytes", "cluster", "counter", "file", "incarnation", "position", "taken_wall_ms"]);
    assert_eq!(Some(file.metadata().expect("it is there").len()), told["bytes"].as_u64());
    assert!(!server.data.path().join("monday.backup.part").exists());
    assert!(server.run(&["backup", &format!("{path}.2")]).ok().out.contains("highest number"));

    let restored = server.data.path().join("restored");
    let made = run(&mut leasehold(&["restore", path, "--data", restored.to_str().expect("a text"), "--json"])).ok();
    assert_eq!(made.json()["cluster"], told["cluster"]);
}

#[test]
fn a_backup_that_cannot_be_leaves_nothing_and_touches_nothing() {
    let server = Server::start();
    let file = server.data.path().join("there");
    std::fs::write(&file, "precious").expect("the directory is there");
    server.run(&["backup", file.to_str().expect("a text")]).fails(78, "leasehold: CONFIG{file}: ");
    assert_eq!(std::fs::read_to_string(&file).expect("it is there"), "precious");
    server.run(&["backup", "/nowhere/at/all"]).fails(78, "leasehold: CONFIG{file}: ");
    let data = tempfile::tempdir().expect("a directory");
    let fresh = data.path().join("fresh");
    let told = run(&mut leasehold(&["backup", fresh.to_str().expect("a text"), "--addr", NOBODY]));
    told.fails(5, "leasehold: UNAVAILABLE: ");
    assert_eq!(std::fs::read_dir(data.path()).expect("it is there").count(), 0);
}
