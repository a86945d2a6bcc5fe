//! A write to a service behind a fence, over HTTP/1.1.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

use crate::op_error::OpError;

/// Time for the fence to respond.
const TIMEOUT: Duration = Duration::from_secs(20);

/// POSTs a body with the token, and returns the status and the code of a problem.
pub async fn post(url: &str, token: Option<String>, body: &str) -> Result<Value, OpError> {
    let (url, body) = (url.to_owned(), body.to_owned());
    let sent = tokio::task::spawn_blocking(move || send(&url, token.as_deref(), &body));
    let response = sent.await.map_err(|error| OpError::driver(error.to_string()))?;
    let response = response.map_err(|error| OpError::driver(format!("the fence: {error}")))?;
    let (head, body) = response.split_once("\r\n\r\n").ok_or_else(|| OpError::driver("no HTTP response"))?;
    let status: u16 = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .ok_or_else(|| OpError::driver(format!("no status: {head}")))?;
    let code = serde_json::from_str::<Value>(body).ok().and_then(|problem| problem.get("code").cloned());
    Ok(json!({ "status": status, "code": code }))
}

fn send(url: &str, token: Option<&str>, body: &str) -> std::io::Result<String> {
    let rest = url.strip_prefix("http://").ok_or_else(|| std::io::Error::other(format!("{url}: no http:// URL")))?;
    let (address, path) = rest.split_once('/').unwrap_or((rest, ""));
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let token = token.map(|token| format!("lease-token: {token}\r\n")).unwrap_or_default();
    let head = format!("POST /{path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{token}");
    write!(stream, "{head}content-length: {}\r\n\r\n{body}", body.len())?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    Ok(response)
}
