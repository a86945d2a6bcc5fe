//! The fence before a service, proven from afar by what it answers to a claim.

use std::io::BufReader;
use std::process::Child;

use leasehold_core::charter::Mode;

use crate::support::{Server, await_line, begin, text};
use crate::{RESOURCE, cluster, declare, number};

/// Gone with the test, however that ends.
struct Proxy(Child);

impl Drop for Proxy {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fence_before_a_service_is_proven_by_its_address_and_its_marks_are_those_of_its_file() {
    let server = Server::start();
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let marks = folder.path().join("settle.marks");
    let (marks, of, upstream) =
        (marks.to_str().expect("plain"), cluster(&server).to_string(), format!("http://{}", server.address));
    let words = ["fence", "http", "--upstream", &upstream, "--resource", RESOURCE, "--marks", marks, "--arm"];
    let more = ["--cluster", &of, "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"];
    let mut proxy = Proxy(begin(&mut crate::support::leasehold(&[&words[..], &more].concat())));
    let mut said = BufReader::new(proxy.0.stderr.take().expect("it is piped"));
    let told = await_line(&mut said, "fencing on ");
    let at = told.split("fencing on ").nth(1).and_then(|rest| rest.split(',').next()).expect("an address");
    let url = format!("http://{at}");
    declare(&server, "service", &url, Mode::Cooperative).await;
    let probe = || server.run(&["fences", RESOURCE, "--probe", "--json"]);
    let found = |told: &serde_json::Value| text(&told["targets"][0]["probe"]["found"]);
    for _ in 0..2 {
        assert_eq!(found(&probe().json()), "fresh", "nobody claimed it yet");
    }
    let token = server.acquire(RESOURCE, "w1");
    let claimed = claims(at, &token);
    assert!(claimed.contains(&number(&token)), "{claimed}");
    let proven = probe();
    assert_eq!((proven.exit, found(&proven.json())), (0, "refused".to_owned()), "{proven:?}");
    assert_eq!(text(&proven.json()["targets"][0]["probe"]["mark"]), number(&token));
    for verb in ["marks", "lost"] {
        let told = server.run(&["fence", verb, &url]);
        assert!(told.exit != 0 && told.err.contains("file:PATH"), "{told:?}");
    }
    drop(proxy);
    assert_eq!(server.json(&["fence", "marks", &format!("file:{marks}")])[0]["mark"], number(&token));
    // Whoever answers there now is no fence.
    let other = server.run(&["fences", RESOURCE, "--probe", "--json", "--target", &format!("service={upstream}")]);
    assert_eq!((other.exit, found(&other.json())), (8, "missing".to_owned()), "{other:?}");
}

fn claims(at: &str, token: &str) -> String {
    use std::io::{Read, Write};
    let mut way = std::net::TcpStream::connect(at).expect("it listens");
    let asked = format!("POST /-/claim HTTP/1.1\r\nhost: {at}\r\nlease-token: {token}\r\ncontent-length: 0\r\n");
    way.write_all(format!("{asked}connection: close\r\n\r\n").as_bytes()).expect("it reads");
    let mut answer = String::new();
    way.read_to_string(&mut answer).expect("it answers");
    answer
}
