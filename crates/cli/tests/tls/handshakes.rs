//! What a stranger costs before it is known: plaintext, silence and slow handshakes (A2, A16).

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpSocket;

use crate::harness::{TlsServer, WORKER, curl};
use crate::support::TEST_TIMEOUT;

fn connect(server: &TlsServer) -> TcpStream {
    let stream = TcpStream::connect(&server.server.address).expect("the server listens");
    stream.set_read_timeout(Some(TEST_TIMEOUT)).expect("a timeout is valid");
    stream
}

/// What the server sends until it closes the connection; a reset counts as a close.
fn read_to_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    let mut part = [0; 1024];
    loop {
        match stream.read(&mut part) {
            Ok(0) => return all,
            Ok(bytes) => all.extend_from_slice(&part[..bytes]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return all,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => panic!("the server did not close the connection: {error}"),
        }
    }
}

#[test]
fn plaintext_gets_nothing_but_a_short_refusal() {
    let server = TlsServer::start();
    let output = curl().arg(format!("http://{}/v1/leases", server.server.address)).output().expect("curl starts");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "400");
    let mut stream = connect(&server);
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").expect("the server reads");
    let reply = String::from_utf8(read_to_end(&mut stream)).expect("text");
    assert!(reply.starts_with("HTTP/1.1 400 ") && reply.ends_with("use https:// in the address"), "{reply}");
    for bytes in [
        &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..],
        b"\0\0\0\0\0\0\0\0",
        b"\x80\x2e\x01\x03\x01",
        b"get / HTTP/1.0\r\n\r\n",
    ] {
        let mut stream = connect(&server);
        stream.write_all(bytes).expect("the server reads");
        assert_eq!(read_to_end(&mut stream), b"", "{bytes:?}");
    }
    // A record that claims to be a handshake and is none: at most an alert.
    let mut stream = connect(&server);
    stream.write_all(b"\x16\x03\x01\x00\x05hello").expect("the server reads");
    let alert = read_to_end(&mut stream);
    assert!(alert.is_empty() || alert[0] == 0x15, "{alert:?}");
}

#[test]
fn a_silent_handshake_is_closed_and_delays_no_other_address() {
    let server = TlsServer::start();
    let client = server.client("worker", WORKER);
    // More than one address may have at once: the others wait, and none of them is served.
    let mut silent: Vec<_> = (0..100).map(|_| connect(&server)).collect();
    for (at, stream) in silent.iter_mut().enumerate() {
        if at % 2 == 0 {
            stream.write_all(b"\x16\x03\x01").expect("the server reads");
        }
    }
    let elsewhere = server.curl(Some(&client), &["--interface", "127.0.0.2", "-m", "4"]);
    assert_eq!(elsewhere, 200, "another address is served while these wait");
    for stream in &mut silent {
        assert_eq!(read_to_end(stream), b"", "no reply, and closed in time");
    }
    assert_eq!(server.curl(Some(&client), &[]), 200, "the address itself is served again");
    let timed_out = server.metric(&client, "leasehold_tls_handshakes_total{result=\"timeout\"}");
    assert!(timed_out >= 100.0, "{timed_out}");
}

#[test]
fn silent_connections_take_no_place_of_known_ones() {
    let server = TlsServer::with_flags(&["--max-connections", "2"]);
    let client = server.client("worker", WORKER);
    let silent: Vec<_> = (0..20).map(|_| connect(&server)).collect();
    std::thread::sleep(Duration::from_millis(100));
    for _ in 0..5 {
        assert_eq!(server.curl(Some(&client), &["--interface", "127.0.0.2"]), 200);
    }
    drop(silent);
}

/// A connection from an address of this machine.
async fn connect_from(last: u8, server: &TlsServer) -> tokio::net::TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(SocketAddr::from(([127, 0, 0, last], 0))).expect("every address of the loopback network is local");
    socket.connect(server.server.address.parse().expect("an address")).await.expect("the server listens")
}

#[tokio::test]
async fn silent_connections_of_many_addresses_keep_no_known_client_out() {
    let server = TlsServer::start();
    let client = server.client("worker", WORKER);
    // More than the queue holds, and of each address as many as one may have.
    let mut silent = Vec::new();
    for at in 0..1_100 {
        let mut stream = connect_from(2 + (at % 5) as u8, &server).await;
        if at % 2 == 0 {
            stream.write_all(b"\x16\x03\x01\x02\x00\x01\x00").await.expect("the server reads");
        }
        silent.push(stream);
    }
    assert_eq!(server.curl(Some(&client), &[]), 200, "a client of another address is served");
    assert_eq!(server.curl(Some(&client), &["--interface", "127.0.0.2"]), 200, "and one of the same address");
    drop(silent);
}
