//! What tests over a server's own port share: one HTTP request on one connection.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::net::SocketAddr;

use leasehold_server::server::ServerConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The usual settings on a port that nobody has.
pub fn on_a_free_port() -> ServerConfig {
    ServerConfig { listen: SocketAddr::from(([127, 0, 0, 1], 0)), ..ServerConfig::default() }
}

/// The whole answer to one request.
pub async fn raw(at: SocketAddr, method: &str, path: &str, body: &str) -> (u16, String, Vec<u8>) {
    let mut stream = TcpStream::connect(at).await.expect("the server listens");
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await.expect("the server reads");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.expect("the server answers");
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("headers have an end");
    let head = String::from_utf8(answer[..end].to_vec()).expect("headers are text");
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status line");
    (status, head.to_lowercase(), answer.split_off(end + 4))
}

/// The status and the body, as text.
pub async fn http(at: SocketAddr, method: &str, path: &str, body: &str) -> (u16, String) {
    let (status, head, body) = raw(at, method, path, body).await;
    let body = if head.contains("transfer-encoding: chunked") { dechunked(&body) } else { body };
    (status, String::from_utf8(body).expect("a body of text"))
}

/// A file, by its length.
pub async fn download(at: SocketAddr, path: &str) -> Vec<u8> {
    let (status, head, body) = raw(at, "GET", path, "").await;
    assert_eq!(status, 200, "{head}");
    assert!(head.contains(&format!("content-length: {}", body.len())), "{head}");
    body
}

fn dechunked(mut body: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    while let Some(end) = body.windows(2).position(|two| two == b"\r\n") {
        let size = std::str::from_utf8(&body[..end]).expect("a size is text");
        let size = usize::from_str_radix(size, 16).expect("a size is a number");
        whole.extend_from_slice(&body[end + 2..end + 2 + size]);
        body = &body[end + 4 + size..];
    }
    whole
}

/// A text field of a JSON body.
pub fn field(body: &str, name: &str) -> String {
    let start = body.find(&format!("\"{name}\":\"")).unwrap_or_else(|| panic!("{name} in {body}")) + name.len() + 4;
    body[start..].split('"').next().unwrap_or_default().to_owned()
}
