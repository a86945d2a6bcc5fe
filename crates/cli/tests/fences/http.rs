//! The command line with an HTTP fence proxy, which is probed by a claim.

use leasehold_core::charter::TargetMode;
use leasehold_testkit::process::TestProcess;

use crate::support::{Server, spawn_piped, text};
use crate::{RESOURCE, cluster, declare, number};

#[tokio::test(flavor = "multi_thread")]
async fn an_http_fence_is_probed_by_its_address_and_its_marks_are_in_its_file() {
    let server = Server::start();
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let marks = dir.path().join("settle.marks");
    let (marks, of, upstream) =
        (marks.to_str().expect("plain"), cluster(&server).to_string(), format!("http://{}", server.address));
    let args = ["fence", "http", "--upstream", &upstream, "--resource", RESOURCE, "--marks", marks, "--arm"];
    let more = ["--cluster", &of, "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"];
    let proxy = TestProcess::from(spawn_piped(&mut crate::support::leasehold(&[&args[..], &more].concat())));
    let output = proxy.stderr().wait_for_rest("fencing on ");
    let at = output.split(',').next().expect("an address");
    let url = format!("http://{at}");
    declare(&server, "service", &url, TargetMode::Cooperative).await;
    let target = format!("service={url}");
    let probe = || server.run(&["coverage", RESOURCE, "--probe", "--target", &target, "--json"]);
    let probe_result = |output: &serde_json::Value| text(&output["targets"][0]["probe"]["result"]);
    for _ in 0..2 {
        assert_eq!(probe_result(&probe().json()), "fresh", "no token was claimed yet");
    }
    let token = server.acquire(RESOURCE, "w1");
    let claimed = claim(at, &token);
    assert!(claimed.contains(&number(&token)), "{claimed}");
    let proven = probe();
    assert_eq!((proven.exit, probe_result(&proven.json())), (0, "refused".to_owned()), "{proven:?}");
    assert_eq!(text(&proven.json()["targets"][0]["probe"]["mark"]), number(&token));
    declare(&server, "service", &url, TargetMode::Forced).await;
    let forced = probe();
    assert_eq!(forced.exit, 0, "requests without a token are refused: {forced:?}");
    assert_eq!(forced.json()["targets"][0]["probe"]["established"], "forced", "{forced:?}");
    for verb in ["marks", "lost"] {
        let output = server.run(&["fence", verb, &url]);
        assert!(output.exit != 0 && output.err.contains("file:PATH"), "{output:?}");
    }
    drop(proxy);
    assert_eq!(server.json(&["fence", "marks", &format!("file:{marks}")])[0]["mark"], number(&token));
    // The service at this address is not a fence.
    let other = server.run(&["coverage", RESOURCE, "--probe", "--json", "--target", &format!("service={upstream}")]);
    assert_eq!((other.exit, probe_result(&other.json())), (8, "missing".to_owned()), "{other:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_http_fence_that_exempts_requests_is_not_forced() {
    let server = Server::start();
    let cases: [(&[&str], Option<&str>); 5] = [
        (&["--exempt", "/"], Some("/: exempt")),
        (&["--exempt", "POST,PUT,DELETE,PATCH /"], Some("POST,PUT,DELETE,PATCH /: exempt")),
        (&["--exempt", "/orders"], Some("/orders: exempt")),
        (&["--exempt", "GET,HEAD /", "--scope", "/orders=shop/orders@3"], None),
        (&["--exempt", "GET /", "--fence-reads"], Some("GET /: exempt")),
    ];
    for (rules, finding) in cases {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        let marks = dir.path().join("settle.marks");
        let (marks, of, upstream) =
            (marks.to_str().expect("plain"), cluster(&server).to_string(), format!("http://{}", server.address));
        let args = ["fence", "http", "--upstream", &upstream, "--resource", RESOURCE, "--marks", marks, "--arm"];
        let more = ["--cluster", &of, "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"];
        let proxy = TestProcess::from(spawn_piped(&mut crate::support::leasehold(&[&args[..], &more, rules].concat())));
        let output = proxy.stderr().wait_for_rest("fencing on ");
        let at = output.split(',').next().expect("an address");
        declare(&server, "service", &format!("http://{at}"), TargetMode::Forced).await;
        let token = server.acquire(RESOURCE, "w1");
        claim(at, &token);
        let target = format!("service=http://{at}");
        let probed = server.run(&["coverage", RESOURCE, "--probe", "--json", "--target", &target]);
        server.run(&["release", RESOURCE, "--token", &token]).ok();
        let shown = &probed.json()["targets"][0];
        let Some(finding) = finding else {
            assert_eq!(probed.exit, 0, "{rules:?}: {probed:?}");
            let refused = shown["probe"]["refused_without_token"].to_string();
            assert!(refused.contains("/orders (guarded by shop/orders@3)"), "{probed:?}");
            continue;
        };
        assert_eq!((probed.exit, text(&shown["hole"])), (8, "unprotected".to_owned()), "{rules:?}: {probed:?}");
        assert_eq!(text(&shown["probe"]["established"]), "cooperative", "{probed:?}");
        assert!(probed.err.contains(finding), "{probed:?}");
    }
}

fn claim(at: &str, token: &str) -> String {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(at).expect("it listens");
    let request = format!("POST /-/claim HTTP/1.1\r\nhost: {at}\r\nlease-token: {token}\r\ncontent-length: 0\r\n");
    stream.write_all(format!("{request}connection: close\r\n\r\n").as_bytes()).expect("sent");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("a response");
    response
}
