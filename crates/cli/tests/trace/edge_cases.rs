//! Names that never existed, long histories, and options that contradict each other.

use crate::support::{Server, UNUSED_ADDRESS, leasehold, run};
use crate::verify;

#[test]
fn a_resource_of_which_nothing_is_recorded_is_an_error_with_a_next_step() {
    let server = Server::start();
    server.acquire("jobs/a", "w");
    for args in [&["trace", "jobs/b"][..], &["trace", "jobs/b", "--svg"], &["trace", "jobs/b", "--html"]] {
        let missing = server.run(args).fails(1, "leasehold: NOT_FOUND: nothing is recorded of jobs/b");
        assert!(missing.err.contains("leasehold ls"), "{missing:?}");
    }
    server.run(&["trace", "a//b"]).fails(2, "leasehold: INVALID_ARGUMENT");
    run(&mut leasehold(&["trace", "a", "--addr", UNUSED_ADDRESS])).fails(5, "leasehold: UNAVAILABLE");
}

#[test]
fn options_that_contradict_each_other_are_refused_before_anything_is_read() {
    let folder = tempfile::tempdir().expect("a directory");
    let file = folder.path().join("a.svg");
    let file = file.to_str().expect("a UTF-8 path");
    let refused = |args: &[&str], part: &str| {
        let result = run(leasehold(&["trace", "a", "--addr", UNUSED_ADDRESS]).args(args));
        assert_eq!(result.exit, 2, "{args:?} {result:?}");
        assert!(result.err.contains(part), "{args:?} {result:?}");
    };
    refused(&["--svg", "--html"], "cannot be used with");
    refused(&["--out", file], "--out: needs a format; pass --svg or --html");
    refused(&["--svg", "--json"], "--output: standard output gets the drawing or page");
    refused(&["--from", "1h", "--to", "2h"], "--to: must be after --from");
    refused(&["--from", "yesterday"], "must be a time such as");
    refused(&["--limit", "0"], "--limit");
    refused(&["--no-chain"], "--html");
    assert_eq!(std::fs::read_dir(folder.path()).expect("the directory exists").count(), 0);
}

#[test]
fn an_existing_file_is_not_replaced() {
    let server = Server::start();
    server.acquire("a", "w");
    let file = server.data.path().join("a.html");
    let path = file.to_str().expect("a UTF-8 path");
    std::fs::write(&file, "mine").expect("the directory is writable");
    let refused = server.run(&["trace", "a", "--html", "--out", path]);
    assert!(refused.exit != 0 && refused.err.contains("exists"), "{refused:?}");
    assert_eq!(std::fs::read_to_string(&file).expect("the file exists"), "mine");
}

#[test]
fn a_long_history_is_cut_at_the_limit_and_says_so_everywhere() {
    let server = Server::start();
    for round in 0..40 {
        let token = server.acquire("busy", &format!("w{round}"));
        server.run(&["release", "busy", "--token", &token]).ok();
    }
    let short = server.run(&["trace", "busy", "--limit", "10"]).ok();
    assert!(short.err.contains("were left out; raise --limit"), "{short:?}");
    assert_eq!(short.out.lines().filter(|line| line.contains("granted") || line.contains("ended")).count(), 10);
    let file = server.data.path().join("busy.html");
    let path = file.to_str().expect("a UTF-8 path");
    let written = server.run(&["trace", "busy", "--limit", "10", "--html", "--out", path, "--json"]).ok();
    assert_eq!((&written.json()["has_older"], &written.json()["has_chain"]), (&true.into(), &true.into()));
    let page = std::fs::read_to_string(&file).expect("the file exists");
    assert!(page.contains("Older entries of this resource were left out"), "the page says it too");
    let proof = verify(path, &["--json"]).ok().json();
    assert_eq!(proof["page"]["entries"], 10);
    assert!(proof["first"].as_u64() > Some(1), "the chain starts with the oldest entry that is shown: {proof}");
    let whole = server.run(&["trace", "busy"]).ok();
    assert!(whole.err.is_empty() && whole.out.contains("w0"), "{whole:?}");
}
