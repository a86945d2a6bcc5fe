//! A minimal HTTP/1 client: one request per connection.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::net::SocketAddr;

use leasehold_server::server::ServerConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The default configuration, listening on a free port.
pub fn free_port_config() -> ServerConfig {
    ServerConfig { listen: SocketAddr::from(([127, 0, 0, 1], 0)), ..ServerConfig::default() }
}

/// Sends one request and returns the response's status, its headers in lower case, and its body as sent.
pub async fn raw(address: SocketAddr, method: &str, path: &str, body: &str) -> (u16, String, Vec<u8>) {
    raw_with(address, method, path, "", body).await
}

async fn raw_with(address: SocketAddr, method: &str, path: &str, headers: &str, body: &str) -> (u16, String, Vec<u8>) {
    let mut stream = TcpStream::connect(address).await.expect("the server listens");
    let length = body.len();
    let kind = if body.is_empty() { "" } else { "content-type: application/json\r\n" };
    let head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}{kind}");
    let request = format!("{head}content-length: {length}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).await.expect("the server reads");
    let mut response = Vec::new();
    stream.read_to_end(&mut response).await.expect("the server responds");
    let end = response.windows(4).position(|four| four == b"\r\n\r\n").expect("the response has headers");
    let head = String::from_utf8(response[..end].to_vec()).expect("headers are UTF-8");
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("the status line has a code");
    (status, head.to_lowercase(), response.split_off(end + 4))
}

/// Sends one request and returns the response's status and its body as text.
pub async fn http(address: SocketAddr, method: &str, path: &str, body: &str) -> (u16, String) {
    http_with(address, method, path, "", body).await
}

/// Sends one request with more headers, each with its line end.
pub async fn http_with(address: SocketAddr, method: &str, path: &str, headers: &str, body: &str) -> (u16, String) {
    let (status, head, body) = raw_with(address, method, path, headers, body).await;
    let body = if head.contains("transfer-encoding: chunked") { decode_chunked(&body) } else { body };
    (status, String::from_utf8(body).expect("the body is UTF-8"))
}

/// Downloads a file and checks its length against the header.
pub async fn download(address: SocketAddr, path: &str) -> Vec<u8> {
    let (status, head, body) = raw(address, "GET", path, "").await;
    assert_eq!(status, 200, "{head}");
    assert!(head.contains(&format!("content-length: {}", body.len())), "{head}");
    body
}

fn decode_chunked(mut body: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    while let Some(end) = body.windows(2).position(|two| two == b"\r\n") {
        let size = std::str::from_utf8(&body[..end]).expect("a chunk size is ASCII");
        let size = usize::from_str_radix(size, 16).expect("a chunk size is hexadecimal");
        whole.extend_from_slice(&body[end + 2..end + 2 + size]);
        body = &body[end + 4 + size..];
    }
    whole
}

/// A string field of a JSON body.
pub fn field(body: &str, name: &str) -> String {
    let start = body.find(&format!("\"{name}\":\"")).unwrap_or_else(|| panic!("no {name} in {body}")) + name.len() + 4;
    body[start..].split('"').next().unwrap_or_default().to_owned()
}
