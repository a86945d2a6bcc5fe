//! The proxy apart from fencing: forwarding, metrics, start and shutdown.

use std::io::{Read, Write};
use std::net::TcpStream;

use leasehold_fence::conformance::{CLUSTER, token};
use leasehold_fence::http::CODES;
use leasehold_wire::Code;

use crate::child::wait_exit;
use crate::process_faults::run;
use crate::proxy::{ProxySetup, Service};
use crate::support::{self, TEST_TIMEOUT, UNUSED_ADDRESS};

/// Larger than any buffer between client and service.
const CHUNK: usize = 1 << 20;
const CHUNKS: usize = 64;

pub fn streams() {
    run(async {
        let (service, setup) = (Service::start(), ProxySetup::new(&[]));
        let proxy = setup.start(&service.address);
        let address = proxy.address.clone();
        // The response begins before the request has ended: each chunk is echoed.
        let echoed = tokio::task::spawn_blocking(move || {
            let mut stream = TcpStream::connect(&address).expect("it listens");
            stream.set_read_timeout(Some(TEST_TIMEOUT)).expect("a bound");
            let head = format!(
                "POST /echo HTTP/1.1\r\nhost: x\r\nlease-token: {}\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n",
                token(5)
            );
            stream.write_all(head.as_bytes()).expect("sent");
            let mut sends = stream.try_clone().expect("a handle");
            let (go, goes) = std::sync::mpsc::channel::<()>();
            let sending = std::thread::spawn(move || {
                let mut chunk = format!("{CHUNK:x}\r\n").into_bytes();
                chunk.resize(chunk.len() + CHUNK, b'x');
                chunk.extend(b"\r\n");
                for sent in 0..CHUNKS {
                    sends.write_all(&chunk).expect("sent");
                    if sent == 0 {
                        goes.recv().expect("the first chunk came back");
                    }
                }
                sends.write_all(b"0\r\n\r\n").expect("sent");
            });
            let (mut total, mut bytes) = (0, vec![0; 64 << 10]);
            loop {
                let read = stream.read(&mut bytes).expect("it goes on");
                if total <= CHUNK / 2 && total + read > CHUNK / 2 {
                    go.send(()).expect("it waits");
                }
                total += read;
                if read == 0 {
                    break;
                }
            }
            sending.join().expect("sent");
            total
        });
        let total = echoed.await.expect("it ends");
        assert!(total >= CHUNK * CHUNKS, "{total}");
        assert_eq!(proxy.claim(6).await.code(), "OK", "and its outcome is known");
    });
}

pub fn hop_by_hop() {
    run(async {
        let (service, setup) = (Service::start(), ProxySetup::new(&[]));
        let proxy = setup.start(&service.address);
        let request = proxy.client.request("GET", "/headers").header("connection", "x-mine").header("x-mine", "1");
        let seen =
            proxy.client.send(request.header("x-other", "2").header("te", "trailers"), "").await.expect("answered");
        assert!(seen.text().contains("x-other") && !seen.text().contains("x-mine"), "{}", seen.text());
        assert!(!seen.text().contains("\"te\""), "{}", seen.text());
        assert!(seen.text().contains(&proxy.address), "the host header is forwarded: {}", seen.text());
        let request =
            proxy.client.request("GET", "/headers").header("connection", "upgrade").header("upgrade", "websocket");
        let refused = proxy.client.send(request, "").await.expect("answered");
        assert_eq!((refused.status.as_u16(), refused.json()["field"].as_str()), (400, Some("upgrade")));
    });
}

/// Sends bytes as they are, and returns the whole response.
async fn raw(address: &str, request: String) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(address).await.expect("it listens");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut response = Vec::new();
    stream.read_to_end(&mut response).await.expect("a response");
    String::from_utf8(response).expect("text")
}

pub fn bodies_of_reads() {
    run(async {
        let (service, setup) = (Service::start(), ProxySetup::new(&[]));
        let proxy = setup.start(&service.address);
        let at = &proxy.address;
        let chunked = format!(
            "GET /echo HTTP/1.1\r\nhost: {at}\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
        );
        let echoed = raw(at, chunked).await;
        assert!(echoed.starts_with("HTTP/1.1 200") && echoed.contains("hello"), "{echoed}");
        let sized = format!("GET /echo HTTP/1.1\r\nhost: {at}\r\nconnection: close\r\ncontent-length: 5\r\n\r\nhello");
        assert!(raw(at, sized).await.ends_with("hello"));
        let without = raw(at, format!("GET /headers HTTP/1.1\r\nhost: {at}\r\nconnection: close\r\n\r\n")).await;
        assert!(without.starts_with("HTTP/1.1 200") && !without.contains("\"transfer-encoding\""), "{without}");
    });
}

pub fn malformed_requests() {
    run(async {
        let (service, setup) = (Service::start(), ProxySetup::new(&[]));
        let proxy = setup.start(&service.address);
        let at = &proxy.address;
        for name in ["host", "Host, x-mine", "content-length", "authorization"] {
            let request = format!("GET /headers HTTP/1.1\r\nhost: {at}\r\nconnection: close, {name}\r\n\r\n");
            let refused = raw(at, request).await;
            assert!(refused.starts_with("HTTP/1.1 400") && refused.contains("end-to-end header"), "{name}: {refused}");
        }
        let token = leasehold_fence::conformance::token(33);
        let malformed = format!(
            "POST /now HTTP/1.1\r\nhost: {at}\r\nconnection: close\r\nlease-token: {token}\r\n\
             transfer-encoding: chunked\r\n\r\n5\r\nhello\r\nnot a length\r\n"
        );
        let refused = raw(at, malformed).await;
        assert!(refused.starts_with("HTTP/1.1 400") && refused.contains("INVALID_ARGUMENT"), "{refused}");
        assert_eq!(service.applied().await, []);
    });
}

pub fn unreachable_upstream() {
    run(async {
        let setup = ProxySetup::new(&[]);
        let proxy = setup.start(UNUSED_ADDRESS);
        let log = proxy.process.stderr().so_far().join("\n");
        assert!(log.contains("is unreachable"), "{log}");
        let write = proxy.write(33, "/now", "x").await;
        assert_eq!((write.status.as_u16(), write.code().as_str()), (503, "UNAVAILABLE"));
        assert!(write.json()["detail"].as_str().is_some_and(|output| output.contains("nothing changed")), "{write:?}");
        assert_eq!(proxy.claim_once(34).await.code(), "OK", "a request that was never sent has no unknown outcome");
        assert_eq!(proxy.client.get("/-/healthz").await.text(), "ok\n");
    });
}

pub fn stops() {
    run(async {
        let (service, setup) = (Service::start(), ProxySetup::new(&["--claim-timeout", "100ms"]));
        let proxy = setup.start(&service.address);
        let client = proxy.client.clone();
        let held = tokio::spawn(async move { client.write(&token(33), "/held", "taken in").await });
        service.wait_arrived(1).await;
        proxy.process.signal(rustix::process::Signal::TERM).expect("it runs");
        let process = proxy.process;
        process.stderr().wait_for("stopping");
        // It logs this before it closes its listener.
        while TcpStream::connect(&proxy.address).is_ok() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        service.release().await;
        assert_eq!(held.await.expect("it ends").expect("answered").code(), "OK");
        let (code, log) = wait_exit(process);
        assert_eq!((code, log.last().is_some_and(|line| line.contains("stopped"))), (Some(0), true), "{log:?}");
        let proxy = setup.start(&service.address);
        assert_eq!(proxy.claim_once(34).await.code(), "OK", "all outcomes were known");
        assert_eq!(proxy.write(33, "/now", "zombie").await.code(), "STALE_TOKEN", "and the mark was stored");
        assert_eq!(proxy.stop().0, Some(0));
    });
}

pub fn usage_errors() {
    run(async {
        let setup = ProxySetup::new(&[]);
        let fails = |args: Vec<String>, exit: i32, expected: &str| {
            let output = support::run(support::leasehold(&[]).args(args));
            assert_eq!(output.exit, exit, "{output:?}");
            assert!(output.err.contains(expected), "{expected:?} is not in {output:?}");
        };
        let with = |more: &[&str]| {
            let own = more.iter().map(|word| (*word).to_owned());
            setup.args(UNUSED_ADDRESS).into_iter().chain(own).collect::<Vec<_>>()
        };
        let cluster = CLUSTER.to_string();
        fails(with(&[]), 5, "STORAGE_FAILED");
        fails(with(&["--cluster", &cluster]), 5, "arm the fence");
        fails(with(&["--arm"]), 2, "--cluster");
        fails(with(&["--scope", "orders=shop"]), 2, "write for example /orders");
        fails(with(&["--settle-time", "10"]), 2, "10s");
        let proxy = setup.start(UNUSED_ADDRESS);
        fails(with(&["--cluster", &cluster]), 5, &format!("{:?}", proxy.process.pid().as_raw_nonzero()));
        fails(with(&["--cluster", &cluster, "--arm"]), 1, "CONFLICT");
        assert_eq!(proxy.stop().0, Some(0));
        fails(with(&["--cluster", "00c0ffee00c0ffee"]), 2, "WRONG_CLUSTER");
        std::fs::write(setup.marks(), b"not a mark file, but something else entirely").expect("written");
        fails(with(&["--cluster", &cluster]), 5, "STORAGE_FAILED");
    });
}

pub fn metrics() {
    run(async {
        let (service, setup) = (Service::start(), ProxySetup::new(&["--json", "--log-level", "trace"]));
        let proxy = setup.start(&service.address);
        assert_eq!(proxy.claim(34).await.code(), "OK");
        assert_eq!(proxy.write(34, "/now", "x").await.code(), "OK");
        assert_eq!(proxy.write(33, "/now", "x").await.code(), "STALE_TOKEN");
        proxy.client.get("/ghost").await;
        let output = proxy.admin.get("/metrics").await;
        for line in [
            "leasehold_fence_requests_total{decision=\"claimed\"} 1",
            "leasehold_fence_requests_total{decision=\"admitted\"} 1",
            "leasehold_fence_requests_total{decision=\"stale\"} 1",
            "leasehold_fence_requests_total{decision=\"exempt\"} 1",
            "leasehold_fence_mark{resource=\"conformance/target\",slot=\"0\"} 34",
            "leasehold_fence_in_flight_requests{resource=\"conformance/target\",slot=\"0\"} 0",
        ] {
            assert!(output.text().lines().any(|output| output == line), "{line}: {}", output.text());
        }
        assert!(output.text().ends_with("# EOF\n"));
        assert_eq!(proxy.admin.get("/healthz").await.text(), "ok\n");
        assert_eq!(proxy.admin.get("/marks").await.json()["marks"][0]["state"], "armed");
        let (code, log) = proxy.stop();
        assert_eq!(code, Some(0));
        for line in &log {
            let line: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
            assert!(line["message"].is_string(), "{line}");
        }
        assert!(!log.iter().any(|line| line.contains("lh1-")), "{log:?}");
        for row in CODES {
            let code = Code::from_word(row.code).unwrap_or_else(|| panic!("{} is in the table", row.code));
            let table = (code.http(), code.grpc() as i32, code.meaning(), code.next_step());
            assert_eq!((row.http, i32::from(row.grpc), row.meaning, row.next_step), table, "{}", row.code);
        }
    });
}

/// Uses a grantor as the gRPC service behind the proxy.
pub fn grpc() {
    let server = support::Server::start();
    run(async {
        let setup = ProxySetup::new(&["--exempt", "/leasehold.v1.Leasehold/Session"]);
        let proxy = setup.start(&server.address);
        let channel = tonic::transport::Channel::from_shared(format!("http://{}", proxy.address)).expect("an address");
        let channel = channel.timeout(TEST_TIMEOUT).connect().await.expect("it listens");
        let mut client = leasehold_wire::v1::leasehold_client::LeaseholdClient::new(channel.clone());
        let bare = client.charters(leasehold_wire::v1::ChartersRequest::default()).await.expect_err("bare");
        assert_eq!(bare.metadata().get("leasehold-code").expect("a code"), "TOKEN_INVALID");
        let ask = |number: u64| {
            let mut request = tonic::Request::new(leasehold_wire::v1::ChartersRequest::default());
            request.metadata_mut().insert("lease-token", token(number).parse().expect("a value"));
            request
        };
        client.charters(ask(34)).await.expect("it is forwarded, with trailers");
        let stale = client.charters(ask(33)).await.expect_err("stale");
        assert_eq!(stale.code(), tonic::Code::FailedPrecondition);
        assert_eq!(stale.metadata().get("leasehold-mark").expect("the mark"), "34");
        // The outcome was known when the trailers arrived, so the next token does not wait.
        client.charters(ask(35)).await.expect("admitted immediately");
        assert_eq!(proxy.mark().await, 35);
    });
}
