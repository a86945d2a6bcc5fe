//! The way to a server, which a test can watch request by request: hold one, lose its answer, or end whoever sent it.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// What is done with one request.
pub enum Deed {
    Pass,
    /// This first, then nothing: the request is lost.
    LoseAfter(Box<dyn FnOnce() + Send>),
    /// This first, then the request goes on.
    Before(Box<dyn FnOnce() + Send>),
    /// The request goes on; this when it was answered; the answer is lost.
    AnswerLost(Box<dyn FnOnce() + Send>),
}

pub struct Way {
    pub address: SocketAddr,
}

impl Way {
    /// A way to `server` on which `judge` sees the first lines of each request, in the order in which they came.
    pub fn to(server: SocketAddr, judge: impl FnMut(&str) -> Deed + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let judge = Arc::new(Mutex::new(judge));
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let judge = judge.clone();
                thread::spawn(move || carry(client, server, &judge));
            }
        });
        Self { address }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

/// One request and its answer. The server is asked to close the connection after it, so that each has one of its own.
fn carry(mut client: TcpStream, server: SocketAddr, judge: &Mutex<impl FnMut(&str) -> Deed>) {
    let Some((head, request)) = whole(&mut client) else { return };
    let deed = (judge.lock().expect("no judge panicked"))(&head);
    let (after, keep) = match deed {
        Deed::Pass => (None, true),
        Deed::LoseAfter(first) => return first(),
        Deed::Before(first) => {
            first();
            (None, true)
        }
        Deed::AnswerLost(then) => (Some(then), false),
    };
    let mut upstream = TcpStream::connect(server).expect("the server listens");
    let line = request.windows(2).position(|two| two == b"\r\n").expect("a head has a first line");
    upstream.write_all(&request[..line]).expect("sent");
    upstream.write_all(b"\r\nConnection: close").expect("sent");
    upstream.write_all(&request[line..]).expect("sent");
    let mut answer = Vec::new();
    upstream.read_to_end(&mut answer).expect("answered");
    if let Some(then) = after {
        then();
    }
    if keep {
        // Whoever asked may be gone.
        client.write_all(&answer).ok();
    }
    client.shutdown(Shutdown::Both).ok();
}

/// A request's head as text, and all its bytes.
fn whole(client: &mut TcpStream) -> Option<(String, Vec<u8>)> {
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
