//! `leasehold backup` against a real server, then `leasehold restore` of the result.

mod support;

use std::os::unix::fs::{PermissionsExt, symlink};

use support::{Server, UNUSED_ADDRESS, keys, leasehold, run};

#[test]
fn a_backup_appears_complete_and_can_be_restored() {
    let server = Server::start();
    server.acquire("a", "w1");
    let file = server.data.path().join("monday.backup");
    let path = file.to_str().expect("a UTF-8 path");
    let result = server.json(&["backup", path]);
    assert_eq!(keys(&result), ["bytes", "cluster", "counter", "file", "incarnation", "position", "taken_wall_ms"]);
    assert_eq!(Some(file.metadata().expect("the file exists").len()), result["bytes"].as_u64());
    assert!(!server.data.path().join("monday.backup.part").exists());
    assert!(server.run(&["backup", &format!("{path}.2")]).ok().out.contains("highest number"));

    let restored = server.data.path().join("restored");
    let made =
        run(&mut leasehold(&["restore", path, "--data", restored.to_str().expect("a UTF-8 path"), "--json"])).ok();
    assert_eq!(made.json()["cluster"], result["cluster"]);
}

#[test]
fn a_failed_backup_leaves_and_overwrites_no_file() {
    let server = Server::start();
    let file = server.data.path().join("existing");
    std::fs::write(&file, "precious").expect("the directory exists");
    server.run(&["backup", file.to_str().expect("a UTF-8 path")]).fails(78, "leasehold: CONFIG{file}: ");
    assert_eq!(std::fs::read_to_string(&file).expect("the file exists"), "precious");
    server.run(&["backup", "/nowhere/at/all"]).fails(78, "leasehold: CONFIG{file}: ");
    let data = tempfile::tempdir().expect("a directory");
    let fresh = data.path().join("fresh");
    let result = run(&mut leasehold(&["backup", fresh.to_str().expect("a UTF-8 path"), "--addr", UNUSED_ADDRESS]));
    result.fails(5, "leasehold: UNAVAILABLE: ");
    assert_eq!(std::fs::read_dir(data.path()).expect("the directory exists").count(), 0);
}

#[test]
fn a_planted_part_file_is_neither_followed_nor_overwritten() {
    let server = Server::start();
    server.acquire("a", "w1");
    for (command, name) in [(&["backup"][..], "monday.backup"), (&["audit", "export"], "monday.jsonl")] {
        let folder = tempfile::tempdir().expect("a directory");
        let (victim, file) = (folder.path().join("victim"), folder.path().join(name));
        std::fs::write(&victim, "precious").expect("written");
        symlink(&victim, folder.path().join(format!("{name}.part"))).expect("planted");
        server.run(&[command, &[file.to_str().expect("a UTF-8 path")]].concat()).ok();
        assert_eq!(std::fs::read_to_string(&victim).expect("it is there"), "precious", "{command:?}");
        let kept = file.symlink_metadata().expect("it was written");
        assert!(kept.is_file(), "{command:?}: a file, not a link");
        assert_eq!(kept.permissions().mode() & 0o777, 0o600, "{command:?}");
        let names: Vec<_> = std::fs::read_dir(folder.path()).expect("a directory").flatten().collect();
        assert_eq!(names.len(), 3, "{command:?} leaves nothing else: {names:?}");

        // The planted file belongs to someone else, who would read the state while it is written.
        let open = folder.path().join(format!("{name}.2.part"));
        std::fs::write(&open, "").expect("planted");
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o666)).expect("planted");
        server.run(&[command, &[&format!("{}.2", file.display())]].concat()).ok();
        assert_eq!(
            std::fs::read_to_string(&open).expect("it is there"),
            "",
            "{command:?} wrote to a file of another user"
        );
    }
}
