//! Tests of the faults, against a server that echoes lines.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use super::{Flow, ProxyUpstream, TcpProxy};
use crate::process::TIMEOUT;

/// Echoes each line of each connection after a prefix.
fn echo_server(prefix: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut out = stream.try_clone().expect("a handle");
                let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
                lines.try_for_each(|line| writeln!(out, "{prefix}{line}"))
            });
        }
    });
    address
}

struct LineClient(BufReader<TcpStream>);

impl LineClient {
    fn connect(proxy: &TcpProxy) -> Self {
        let stream = TcpStream::connect(proxy.address()).expect("the proxy listens");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
        Self(BufReader::new(stream))
    }

    fn send(&mut self, line: &str) {
        writeln!(self.0.get_mut(), "{line}").expect("the proxy reads");
    }

    /// The next line; empty if the connection was closed.
    fn receive(&mut self) -> String {
        let mut line = String::new();
        match self.0.read_line(&mut line) {
            Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("{error}"),
            _ => line.trim_end().to_owned(),
        }
    }

    fn call(&mut self, line: &str) -> String {
        self.send(line);
        self.receive()
    }

    /// Asserts that nothing arrives for a moment.
    fn assert_silent(&mut self) {
        self.0.get_ref().set_read_timeout(Some(Duration::from_millis(50))).expect("a socket");
        let read = self.0.read_line(&mut String::new());
        assert!(read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock));
        self.0.get_ref().set_read_timeout(Some(TIMEOUT)).expect("a socket");
    }
}

#[test]
fn held_bytes_arrive_when_they_pass_again() {
    let proxy = TcpProxy::start(echo_server(""));
    let mut client = LineClient::connect(&proxy);
    assert_eq!(client.call("one"), "one");
    for (requests, replies) in [(Flow::Hold, Flow::Pass), (Flow::Pass, Flow::Hold), (Flow::Hold, Flow::Hold)] {
        proxy.set_flow(requests, replies);
        client.send("two");
        client.assert_silent();
        proxy.set_both(Flow::Pass);
        assert_eq!(client.receive(), "two", "{requests:?} and {replies:?}");
    }
    assert_eq!((proxy.connection_count(), proxy.dropped_bytes()), (1, 0));
}

#[test]
fn held_requests_can_be_awaited_and_arrive_after_the_client_has_gone() {
    let upstream = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let proxy = TcpProxy::start(upstream.local_addr().expect("it is bound"));
    let mut client = LineClient::connect(&proxy);
    let (server, _) = upstream.accept().expect("the proxy connects");
    proxy.set_flow(Flow::Hold, Flow::Pass);
    client.send("ping");
    client.send("in flight");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(proxy.wait_until_held(b"in flight"));
    drop(client);
    proxy.set_both(Flow::Pass);
    let lines: Vec<_> = BufReader::new(server).lines().map_while(Result::ok).collect();
    assert_eq!(lines, ["ping", "in flight"]);
}

#[test]
fn dropped_bytes_are_counted_and_their_connection_closes_when_bytes_pass_again() {
    let proxy = TcpProxy::start(echo_server(""));
    for (requests, replies) in [(Flow::Pass, Flow::Drop), (Flow::Drop, Flow::Drop)] {
        let mut client = LineClient::connect(&proxy);
        assert_eq!(client.call("one"), "one");
        let before = proxy.dropped_bytes();
        proxy.set_flow(requests, replies);
        client.send("two");
        while proxy.dropped_bytes() != before + "two\n".len() {
            std::thread::yield_now();
        }
        proxy.set_both(Flow::Pass);
        assert_eq!(client.receive(), "", "{requests:?} and {replies:?}");
        assert_eq!(LineClient::connect(&proxy).call("three"), "three");
    }
}

#[test]
fn connections_are_closed_on_request_and_new_ones_reach_the_new_server() {
    let proxy = TcpProxy::start(echo_server("a "));
    let mut client = LineClient::connect(&proxy);
    assert_eq!(client.call("one"), "a one");
    proxy.set_upstream(echo_server("b "));
    assert_eq!(client.call("two"), "a two", "an existing connection keeps its server");
    proxy.disconnect_all();
    assert_eq!(client.receive(), "");
    assert_eq!(LineClient::connect(&proxy).call("three"), "b three");
    proxy.set_upstream(ProxyUpstream::Nowhere);
    assert_eq!(LineClient::connect(&proxy).receive(), "");
}

#[test]
fn replies_can_be_rewritten() {
    let proxy = TcpProxy::rewriting(echo_server(""), |bytes| bytes.make_ascii_uppercase());
    assert_eq!(LineClient::connect(&proxy).call("one"), "ONE");
}

#[test]
fn a_dropped_proxy_closes_its_connections() {
    let proxy = TcpProxy::start(echo_server(""));
    let mut client = LineClient::connect(&proxy);
    assert_eq!(client.call("one"), "one");
    drop(proxy);
    assert_eq!(client.receive(), "");
}
