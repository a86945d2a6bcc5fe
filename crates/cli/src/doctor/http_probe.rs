//! Single HTTP requests over a connection whose steps are reported one by one.

use std::io;
use std::time::Duration;

use leasehold::{Address, TlsOptions};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream, lookup_host};

/// Longest response that is read.
const MAX_RESPONSE_BYTES: u64 = 4 << 20;

/// The step at which a connection failed.
#[derive(Debug)]
pub enum ConnectError {
    /// The name has no address.
    Resolve(io::Error),
    Connect(io::Error),
    Tls(io::Error),
}

/// An open connection, and the certificate that the server presented.
pub struct ProbeConnection {
    stream: Box<dyn Duplex>,
    pub certificate: Option<Vec<u8>>,
}

/// A stream in both directions.
trait Duplex: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin> Duplex for T {}

/// The response to a request.
pub struct HttpResponse {
    pub status: u16,
    head: String,
    pub body: String,
}

impl HttpResponse {
    fn parse(text: &str) -> Option<Self> {
        let (head, body) = text.split_once("\r\n\r\n")?;
        let status = head.split_whitespace().nth(1)?.parse().ok()?;
        Some(Self { status, head: head.to_owned(), body: body.to_owned() })
    }

    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut fields = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        fields.find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }
}

/// Connects to a server, each step within `limit`.
pub async fn connect(at: &Address, tls: Option<&TlsOptions>, limit: Duration) -> Result<ProbeConnection, ConnectError> {
    if let Some(path) = at.unix_path() {
        let stream = within(limit, UnixStream::connect(path)).await.map_err(ConnectError::Connect)?;
        return Ok(ProbeConnection { stream: Box::new(stream), certificate: None });
    }
    let resolved = within(limit, async { Ok(lookup_host(at.as_str()).await?.collect::<Vec<_>>()) }).await;
    let resolved = resolved.map_err(ConnectError::Resolve)?;
    let stream = within(limit, TcpStream::connect(&resolved[..])).await.map_err(ConnectError::Connect)?;
    let Some(tls) = tls else { return Ok(ProbeConnection { stream: Box::new(stream), certificate: None }) };
    let (stream, chain) = within(limit, tls.connect_http1(at.host(), stream)).await.map_err(ConnectError::Tls)?;
    Ok(ProbeConnection { stream: Box::new(stream), certificate: chain.into_iter().next() })
}

impl ProbeConnection {
    /// Sends one request and reads the response until the server closes the connection.
    pub async fn get(
        mut self,
        at: &Address,
        path: &str,
        bearer: Option<&str>,
        limit: Duration,
    ) -> io::Result<HttpResponse> {
        let host = if at.unix_path().is_some() { "localhost" } else { at.as_str() };
        let authorization = bearer.map(|token| format!("authorization: Bearer {token}\r\n")).unwrap_or_default();
        let request = format!("GET {path} HTTP/1.0\r\nhost: {host}\r\n{authorization}\r\n");
        let response = within(limit, async {
            self.stream.write_all(request.as_bytes()).await?;
            let mut bytes = Vec::new();
            (&mut self.stream).take(MAX_RESPONSE_BYTES).read_to_end(&mut bytes).await.or_else(|error| {
                // The end of a TLS connection without its alert; the length of the body shows whether anything is missing.
                if error.kind() == io::ErrorKind::UnexpectedEof && !bytes.is_empty() {
                    Ok(bytes.len())
                } else {
                    Err(error)
                }
            })?;
            Ok(bytes)
        });
        let text = String::from_utf8_lossy(&response.await?).into_owned();
        HttpResponse::parse(&text).ok_or_else(|| io::Error::other("the reply is no HTTP response"))
    }
}

/// The result of a step, or a timeout.
pub async fn within<T>(limit: Duration, step: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let timeout = || io::Error::new(io::ErrorKind::TimedOut, format!("no reply within {} ms", limit.as_millis()));
    tokio::time::timeout(limit, step).await.unwrap_or_else(|_| Err(timeout()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_has_a_status_headers_and_a_body() {
        let response =
            HttpResponse::parse("HTTP/1.0 200 OK\r\nDate: Thu\r\nX: a:b\r\n\r\nready\n").expect("a response");
        assert_eq!((response.status, response.body.as_str()), (200, "ready\n"));
        assert_eq!(
            (response.header("date"), response.header("x"), response.header("y")),
            (Some("Thu"), Some("a:b"), None)
        );
        assert!(HttpResponse::parse("SSH-2.0-OpenSSH\r\n").is_none());
    }
}
