//! An HTTP proxy that can hold, lose or answer single requests and responses.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// What the proxy does with one request.
pub enum ProxyAction {
    Forward,
    /// Forward the request without its conditions, as for a store that ignores them.
    ForwardUnconditionally,
    /// Call this, then lose the request.
    LoseRequest(Box<dyn FnOnce() + Send>),
    /// Call this, then forward the request.
    ForwardAfter(Box<dyn FnOnce() + Send>),
    /// Forward the request, call this after its response, and lose the response.
    LoseResponse(Box<dyn FnOnce() + Send>),
    /// Send this response without forwarding the request.
    Respond(Vec<u8>),
    /// Forward the request, and send this response instead of the server's.
    ReplaceResponse(Vec<u8>),
    /// Never respond, and keep the connection open.
    Hang,
}

pub struct FaultyProxy {
    pub address: SocketAddr,
}

impl FaultyProxy {
    /// Starts a proxy to `server`. It calls `decide` with the head of each request, in the order of arrival.
    pub fn start(server: SocketAddr, decide: impl FnMut(&str) -> ProxyAction + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let decide = Arc::new(Mutex::new(decide));
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let decide = decide.clone();
                thread::spawn(move || handle(client, server, &decide));
            }
        });
        Self { address }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

/// Handles one request and its response. The server closes the connection afterwards, so that each request has its own.
fn handle(mut client: TcpStream, server: SocketAddr, decide: &Mutex<impl FnMut(&str) -> ProxyAction>) {
    let Some((head, mut request)) = read_request(&mut client) else { return };
    let action = (decide.lock().expect("not poisoned"))(&head);
    let mut replaced = None;
    let (after, keep) = match action {
        ProxyAction::Forward => (None, true),
        ProxyAction::ForwardUnconditionally => {
            request = without_conditions(&head, &request);
            (None, true)
        }
        ProxyAction::LoseRequest(first) => return first(),
        ProxyAction::ForwardAfter(first) => {
            first();
            (None, true)
        }
        ProxyAction::LoseResponse(then) => (Some(then), false),
        ProxyAction::Respond(response) => {
            client.write_all(&response).ok();
            client.shutdown(Shutdown::Both).ok();
            return;
        }
        ProxyAction::ReplaceResponse(response) => {
            replaced = Some(response);
            (None, true)
        }
        ProxyAction::Hang => {
            // Until the client disconnects.
            client.read_to_end(&mut Vec::new()).ok();
            return;
        }
    };
    let mut upstream = TcpStream::connect(server).expect("the server listens");
    let line = request.windows(2).position(|two| two == b"\r\n").expect("a head has a first line");
    upstream.write_all(&request[..line]).expect("sent");
    upstream.write_all(b"\r\nConnection: close").expect("sent");
    upstream.write_all(&request[line..]).expect("sent");
    let mut response = Vec::new();
    upstream.read_to_end(&mut response).expect("a response");
    if let Some(then) = after {
        then();
    }
    if keep {
        // The client may have disconnected.
        client.write_all(&replaced.unwrap_or(response)).ok();
    }
    client.shutdown(Shutdown::Both).ok();
}

/// An HTTP response of DynamoDB with this status and JSON body.
pub fn dynamodb_response(status: u16, body: &str) -> Vec<u8> {
    let head = "Content-Type: application/x-amz-json-1.0\r\nConnection: close";
    format!("HTTP/1.1 {status} Status\r\n{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// Whether a request calls this operation of DynamoDB.
pub fn calls(head: &str, operation: &str) -> bool {
    let target = format!("x-amz-target: dynamodb_20120810.{operation}").to_ascii_lowercase();
    head.to_ascii_lowercase().lines().any(|line| line == target)
}

/// The request without `If-Match` and `If-None-Match`.
fn without_conditions(head: &str, request: &[u8]) -> Vec<u8> {
    let is_condition = |line: &&str| line.to_ascii_lowercase().starts_with("if-");
    let lines: Vec<&str> = head.split("\r\n").filter(|line| !is_condition(line)).collect();
    [lines.join("\r\n").as_bytes(), &request[head.len()..]].concat()
}

/// Reads a request; returns its head and all its bytes.
fn read_request(client: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 16384];
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
            });
            if bytes.len() >= end + 4 + length.unwrap_or(0) {
                return Some((head, bytes));
            }
        }
        match client.read(&mut buffer) {
            Ok(0) | Err(_) => return None,
            Ok(read) => bytes.extend_from_slice(&buffer[..read]),
        }
    }
}
