//! Single HTTP requests of the runner to a server, over TCP or its Unix socket.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

/// Time for a server to respond.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Where a server listens for the runner.
#[derive(Clone, Debug)]
pub enum ServerEndpoint {
    /// A TCP address without TLS.
    Tcp(String),
    /// A Unix socket.
    Unix(PathBuf),
}

/// Status and body of a response.
#[derive(Clone, Debug)]
pub struct RunnerResponse {
    /// HTTP status.
    pub status: u16,
    /// The body as text.
    pub text: String,
}

impl RunnerResponse {
    /// The body as JSON; null if it is none.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_default()
    }
}

/// Sends one request on a connection of its own.
pub fn send(endpoint: &ServerEndpoint, method: &str, path: &str, body: Option<&Value>) -> io::Result<RunnerResponse> {
    match endpoint {
        ServerEndpoint::Tcp(address) => {
            let stream = TcpStream::connect_timeout(&address.parse().map_err(io::Error::other)?, TIMEOUT)?;
            stream.set_read_timeout(Some(TIMEOUT))?;
            exchange(stream, method, path, body)
        }
        ServerEndpoint::Unix(socket) => {
            let stream = UnixStream::connect(socket)?;
            stream.set_read_timeout(Some(TIMEOUT))?;
            exchange(stream, method, path, body)
        }
    }
}

fn exchange(
    mut stream: impl Read + Write,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> io::Result<RunnerResponse> {
    let (kind, body) = match body {
        Some(body) => ("content-type: application/json\r\n", body.to_string()),
        None => ("", String::new()),
    };
    let head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{kind}");
    write!(stream, "{head}content-length: {}\r\n\r\n{body}", body.len())?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    let (head, text) = response.split_once("\r\n\r\n").ok_or_else(|| io::Error::other("no HTTP response"))?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| io::Error::other("no HTTP status"))?;
    Ok(RunnerResponse { status, text: text.to_owned() })
}
