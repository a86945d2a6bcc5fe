//! What a proxy is for beside the fence: passing on, telling, starting and stopping.

use std::io::{Read, Write};
use std::net::TcpStream;

use leasehold_fence::conformance::{CLUSTER, token};
use leasehold_fence::http::CODES;
use leasehold_wire::Code;

use crate::proxy::{Place, Service};
use crate::stories::play;
use crate::support::{self, NOBODY, PATIENCE};

/// More than any buffer on the way.
const CHUNK: usize = 1 << 20;
const CHUNKS: usize = 64;

pub fn streams() {
    play(async {
        let (service, place) = (Service::start(), Place::new(&[]));
        let proxy = place.start(&service.address);
        let address = proxy.address.clone();
        // The answer begins before the request has ended: chunk by chunk it comes back.
        let echoed = tokio::task::spawn_blocking(move || {
            let mut stream = TcpStream::connect(&address).expect("it listens");
            stream.set_read_timeout(Some(PATIENCE)).expect("a bound");
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
        assert_eq!(proxy.claims(6).await.code(), "OK", "and its outcome is known");
    });
}

pub fn hop_by_hop() {
    play(async {
        let (service, place) = (Service::start(), Place::new(&[]));
        let proxy = place.start(&service.address);
        let asks = proxy.way.asks("GET", "/headers").header("connection", "x-mine").header("x-mine", "1");
        let seen = proxy.way.send(asks.header("x-other", "2").header("te", "trailers"), "").await.expect("answered");
        assert!(seen.text().contains("x-other") && !seen.text().contains("x-mine"), "{}", seen.text());
        assert!(!seen.text().contains("\"te\""), "{}", seen.text());
        assert!(seen.text().contains(&proxy.address), "the host that was asked for is passed on: {}", seen.text());
        let asks = proxy.way.asks("GET", "/headers").header("connection", "upgrade").header("upgrade", "websocket");
        let refused = proxy.way.send(asks, "").await.expect("answered");
        assert_eq!((refused.status.as_u16(), refused.json()["field"].as_str()), (400, Some("upgrade")));
    });
}

pub fn nobody_behind() {
    play(async {
        let place = Place::new(&[]);
        let proxy = place.start(NOBODY);
        let said = proxy.process.said.join("\n");
        assert!(said.contains("cannot be reached yet"), "{said}");
        let write = proxy.writes(33, "/now", "x").await;
        assert_eq!((write.status.as_u16(), write.code().as_str()), (503, "UNAVAILABLE"));
        assert!(write.json()["detail"].as_str().is_some_and(|told| told.contains("nothing happened")), "{write:?}");
        assert_eq!(proxy.claims_once(34).await.code(), "OK", "what never began leaves nothing unknown");
        assert_eq!(proxy.way.get("/-/healthz").await.text(), "ok\n");
    });
}

pub fn stops() {
    play(async {
        let (service, place) = (Service::start(), Place::new(&["--patience", "100ms"]));
        let proxy = place.start(&service.address);
        let way = proxy.way.clone();
        let held = tokio::spawn(async move { way.writes(&token(33), "/held", "taken in").await });
        service.has(1).await;
        proxy.process.signal(rustix::process::Signal::TERM);
        let mut process = proxy.process;
        process.tells("stopping");
        // It says so before it closes its door.
        while TcpStream::connect(&proxy.address).is_ok() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        service.release().await;
        assert_eq!(held.await.expect("it ends").expect("answered").code(), "OK");
        let (code, said) = process.ended();
        assert_eq!((code, said.last().is_some_and(|line| line.contains("stopped"))), (Some(0), true), "{said:?}");
        let proxy = place.start(&service.address);
        assert_eq!(proxy.claims_once(34).await.code(), "OK", "every outcome was known");
        assert_eq!(proxy.writes(33, "/now", "zombie").await.code(), "STALE_TOKEN", "and the mark was kept");
        assert_eq!(proxy.stops().0, Some(0));
    });
}

pub fn misused() {
    play(async {
        let place = Place::new(&[]);
        let fails = |args: Vec<String>, exit: i32, says: &str| {
            let told = support::run(support::leasehold(&[]).args(args));
            assert_eq!(told.exit, exit, "{told:?}");
            assert!(told.err.contains(says), "{says:?} is not in {told:?}");
        };
        let with = |more: &[&str]| {
            let own = more.iter().map(|word| (*word).to_owned());
            place.args(NOBODY).into_iter().chain(own).collect::<Vec<_>>()
        };
        let cluster = CLUSTER.to_string();
        fails(with(&[]), 5, "STORAGE_FAILED");
        fails(with(&["--cluster", &cluster]), 5, "arm the fence");
        fails(with(&["--arm"]), 2, "--cluster");
        fails(with(&["--under", "orders=shop"]), 2, "write it like /orders");
        fails(with(&["--settle", "10"]), 2, "10s");
        let proxy = place.start(NOBODY);
        fails(with(&["--cluster", &cluster]), 5, &format!("{:?}", proxy.process.pid().as_raw_nonzero()));
        fails(with(&["--cluster", &cluster, "--arm"]), 1, "CONFLICT");
        assert_eq!(proxy.stops().0, Some(0));
        fails(with(&["--cluster", "00c0ffee00c0ffee"]), 2, "WRONG_CLUSTER");
        std::fs::write(place.marks(), b"not a mark file, but something else entirely").expect("written");
        fails(with(&["--cluster", &cluster]), 5, "STORAGE_FAILED");
    });
}

pub fn figures() {
    play(async {
        let (service, place) = (Service::start(), Place::new(&["--json", "--log-level", "trace"]));
        let proxy = place.start(&service.address);
        assert_eq!(proxy.claims(34).await.code(), "OK");
        assert_eq!(proxy.writes(34, "/now", "x").await.code(), "OK");
        assert_eq!(proxy.writes(33, "/now", "x").await.code(), "STALE_TOKEN");
        proxy.way.get("/ghost").await;
        let told = proxy.aside.get("/metrics").await;
        for line in [
            "leasehold_fence_requests_total{answer=\"claimed\"} 1",
            "leasehold_fence_requests_total{answer=\"admitted\"} 1",
            "leasehold_fence_requests_total{answer=\"stale\"} 1",
            "leasehold_fence_requests_total{answer=\"free\"} 1",
            "leasehold_fence_mark{resource=\"conformance/target\",slot=\"0\"} 34",
            "leasehold_fence_inside{resource=\"conformance/target\",slot=\"0\"} 0",
        ] {
            assert!(told.text().lines().any(|told| told == line), "{line}: {}", told.text());
        }
        assert!(told.text().ends_with("# EOF\n"));
        assert_eq!(proxy.aside.get("/healthz").await.text(), "ok\n");
        assert_eq!(proxy.aside.get("/marks").await.json()["marks"][0]["state"], "armed");
        let (code, said) = proxy.stops();
        assert_eq!(code, Some(0));
        for line in &said {
            let line: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
            assert!(line["message"].is_string(), "{line}");
        }
        assert!(!said.iter().any(|line| line.contains("lh1-")), "{said:?}");
        for row in CODES {
            let code = Code::from_word(row.code).unwrap_or_else(|| panic!("{} is in the table", row.code));
            let table = (code.http(), code.grpc() as i32, code.means(), code.next_step());
            assert_eq!((row.http, i32::from(row.grpc), row.means, row.next_step), table, "{}", row.code);
        }
    });
}

/// A grantor is a gRPC service like any other: what changes something there is fenced here like anywhere.
pub fn grpc() {
    let server = support::Server::start();
    play(async {
        let place = Place::new(&["--free", "/leasehold.v1.Leasehold/Session"]);
        let proxy = place.start(&server.address);
        let channel = tonic::transport::Channel::from_shared(format!("http://{}", proxy.address)).expect("an address");
        let channel = channel.timeout(PATIENCE).connect().await.expect("it listens");
        let mut client = leasehold_wire::v1::leasehold_client::LeaseholdClient::new(channel.clone());
        let bare = client.charters(leasehold_wire::v1::ChartersRequest::default()).await.expect_err("bare");
        assert_eq!(bare.metadata().get("leasehold-code").expect("a code"), "TOKEN_INVALID");
        let ask = |number: u64| {
            let mut request = tonic::Request::new(leasehold_wire::v1::ChartersRequest::default());
            request.metadata_mut().insert("lease-token", token(number).parse().expect("a value"));
            request
        };
        client.charters(ask(34)).await.expect("it is passed on and answered, trailers and all");
        let stale = client.charters(ask(33)).await.expect_err("stale");
        assert_eq!(stale.code(), tonic::Code::FailedPrecondition);
        assert_eq!(stale.metadata().get("leasehold-mark").expect("the mark"), "34");
        // The outcome was known when the trailers came: nobody waits.
        client.charters(ask(35)).await.expect("let in at once");
        assert_eq!(proxy.mark().await, 35);
    });
}
