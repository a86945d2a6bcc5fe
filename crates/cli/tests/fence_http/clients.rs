//! Hostile clients of the proxy: silent ones, too many of them, and web pages.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use leasehold_fence::conformance::token;

use crate::child::start_logging;
use crate::process_faults::run;
use crate::proxy::{Proxy, ProxySetup, Service};
use crate::support::{self, TEST_TIMEOUT, UNUSED_ADDRESS};

fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(TEST_TIMEOUT)).expect("a bound");
    stream
}

/// Waits until the proxy closes the connection.
#[track_caller]
fn wait_closed(mut stream: TcpStream, client: &str) {
    match stream.read_to_end(&mut Vec::new()) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("{client} stays connected: {error}"),
    }
}

/// A request that succeeds without a token.
fn get(stream: &mut TcpStream, path: &str) -> String {
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").as_bytes()).expect("sent");
    let (mut response, mut bytes) = (Vec::new(), [0; 1024]);
    while !response.ends_with(b"ok\n") {
        let read = stream.read(&mut bytes).expect("answered");
        assert!(read > 0, "closed after {:?}", String::from_utf8_lossy(&response));
        response.extend(&bytes[..read]);
    }
    String::from_utf8(response).expect("text")
}

pub fn silent() {
    run(async {
        let (service, setup) = (Service::start(), ProxySetup::new(&["--header-timeout", "300ms"]));
        let proxy = setup.start(&service.address);
        for address in [&proxy.address, &proxy.admin_address] {
            wait_closed(connect(address), "a silent client");
            for start in [&b"P"[..], b"PRI * HTTP/2.0\r\n", b"GET / HTTP/1.1\r\nho"] {
                let mut stream = connect(address);
                stream.write_all(start).expect("sent");
                wait_closed(stream, "a client that stops in its first request");
            }
        }
        for (address, path) in [(&proxy.address, "/-/healthz"), (&proxy.admin_address, "/healthz")] {
            let mut stream = connect(address);
            assert!(get(&mut stream, path).contains("200"));
            wait_closed(stream, "a client without a further request");
        }

        let setup = ProxySetup::new(&["--header-timeout", "1h", "--connections", "8"]);
        let proxy = setup.start(&service.address);
        for (address, limit, path) in [(&proxy.address, 8, "/-/healthz"), (&proxy.admin_address, 64, "/healthz")] {
            let mut clients: Vec<_> = (0..limit + 10).map(|_| connect(address)).collect();
            for above_limit in clients.split_off(limit) {
                wait_closed(above_limit, "a client above the limit");
            }
            assert!(get(&mut clients[0], path).contains("200"), "clients within the limit are served");
        }
    });
}

/// Processor time that a process has used.
fn processor_time(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let fields: Vec<_> = stat.rsplit(')').next().expect("fields").split_whitespace().collect();
    let ticks: u64 = fields[11..13].iter().map(|ticks| ticks.parse::<u64>().expect("a number")).sum();
    Duration::from_millis(ticks * 10)
}

pub fn no_descriptors() {
    run(async {
        let (service, setup) = (Service::start(), ProxySetup::new(&["--header-timeout", "1h"]));
        let mut args = vec!["--nofile=48:48".to_owned(), env!("CARGO_BIN_EXE_leasehold").to_owned()];
        args.extend(setup.start_args(&service.address));
        let proxy = Proxy::new(start_logging("prlimit", &args));
        let clients: Vec<_> = (0..60).map(|_| connect(&proxy.admin_address)).collect();
        // It has tried to accept more than it can.
        proxy.process.stderr().wait_for("cannot accept a connection");
        let (before, began) = (processor_time(proxy.process.id()), Instant::now());
        tokio::time::sleep(Duration::from_secs(2)).await;
        let (used, passed) = (processor_time(proxy.process.id()) - before, began.elapsed());
        assert!(used < passed / 4, "{used:?} of processor time in {passed:?}");
        drop(clients);
        let mut stream = connect(&proxy.admin_address);
        assert!(get(&mut stream, "/healthz").contains("200"), "it recovers");
    });
}

pub fn web_pages() {
    run(async {
        let (service, setup) = (Service::start(), ProxySetup::new(&[]));
        let proxy = setup.start(&service.address);
        let foreign = [
            ("host", "evil.example"),
            ("origin", "http://evil.example"),
            ("origin", "null"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
        ];
        for (name, value) in foreign {
            for path in ["/metrics", "/marks", "/healthz"] {
                let request = proxy.admin.request("GET", path).header(name, value);
                let response = proxy.admin.send(request, "").await.expect("answered");
                assert_eq!((response.status.as_u16(), response.code().as_str()), (403, "PERMISSION_DENIED"), "{name}");
            }
        }
        let request =
            proxy.admin.request("GET", "/healthz").header("host", "localhost").header("sec-fetch-site", "none");
        assert_eq!(proxy.admin.send(request, "").await.expect("answered").status, 200);
        for (name, value) in &foreign[1..] {
            let request =
                proxy.client.request("POST", "/-/claim").header("lease-token", token(9)).header(*name, *value);
            let response = proxy.client.send(request, "").await.expect("answered");
            assert_eq!((response.status.as_u16(), response.code().as_str()), (403, "PERMISSION_DENIED"), "{name}");
        }
        assert_eq!(proxy.mark().await, 0);
        // The service decides about names and origins of its own requests.
        let request =
            proxy.client.request("GET", "/headers").header("host", "shop.example").header("origin", "http://other");
        let headers = proxy.client.send(request, "").await.expect("answered");
        assert!(
            headers.text().contains("shop.example") && headers.text().contains("http://other"),
            "{}",
            headers.text()
        );
        assert_eq!(proxy.stop().0, Some(0));

        let setup = ProxySetup::new(&["--host", "shop.example"]);
        let proxy = setup.start(&service.address);
        for (host, status) in
            [("shop.example:80", 200), ("SHOP.example", 200), ("127.0.0.1", 200), ("evil.example", 403)]
        {
            for client in [&proxy.client, &proxy.admin] {
                let request = client.request("GET", "/healthz").header("host", host);
                assert_eq!(client.send(request, "").await.expect("answered").status, status, "{host}");
            }
        }

        let setup = ProxySetup::new(&[]);
        drop(setup.start(UNUSED_ADDRESS));
        for flag in ["--listen", "--metrics"] {
            let mut args = setup.args(UNUSED_ADDRESS);
            let place = args.iter().position(|arg| arg == flag).expect("the flag is set");
            args[place + 1] = "0.0.0.0:0".to_owned();
            let refused = support::run(support::leasehold(&[]).args(&args));
            assert_eq!(refused.exit, 78, "{refused:?}");
            assert!(
                refused.err.contains("0.0.0.0:0 without TLS") && refused.err.contains("--insecure-listen"),
                "{refused:?}"
            );
            args.push("--insecure-listen".to_owned());
            assert_eq!(Proxy::new(start_logging(env!("CARGO_BIN_EXE_leasehold"), &args)).stop().0, Some(0));
        }
    });
}
