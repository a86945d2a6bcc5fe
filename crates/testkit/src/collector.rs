//! A collector of OpenTelemetry for tests: it receives spans over OTLP (HTTP with Protocol Buffers) and answers as a test says.
//!
//! It decodes with the field numbers of opentelemetry-proto, and not with the messages of the server, so that the two check each
//! other.

mod span;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use span::{ReceivedEvent, ReceivedSpan, StatusCode};

use crate::ports::unused_address;

/// Longest time that a test waits for spans.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Longest time that a connection may be silent.
const READ_TIMEOUT: Duration = Duration::from_secs(20);

/// What the collector answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CollectorAnswer {
    /// It takes the spans.
    Accept,
    /// It takes them, and says that it rejected some, for a reason.
    AcceptPartly(u64, String),
    /// This HTTP status; with `retry-after`, if there are seconds. It takes nothing.
    Status(u16, Option<u64>),
    /// It closes the connection without an answer.
    Close,
}

/// One request that a collector received, whatever it answered.
#[derive(Clone, Debug)]
pub struct ReceivedExport {
    /// The path.
    pub path: String,
    /// Headers, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body, as it arrived.
    pub body: Vec<u8>,
}

impl ReceivedExport {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }
}

#[derive(Default)]
struct State {
    answer: Option<CollectorAnswer>,
    exports: Vec<ReceivedExport>,
    spans: Vec<ReceivedSpan>,
    connections: usize,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    is_stopping: AtomicBool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running collector. It stops when it is dropped.
pub struct CollectorStub {
    address: SocketAddr,
    shared: Arc<Shared>,
    listener: Option<JoinHandle<()>>,
}

impl CollectorStub {
    /// A collector that takes all spans, at an address of its own.
    pub fn start() -> Self {
        Self::at(unused_address())
    }

    /// A collector that takes all spans.
    pub fn at(address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).expect("the address is free");
        let shared = Arc::new(Shared::default());
        let accepted = shared.clone();
        let listener = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if accepted.is_stopping.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let shared = accepted.clone();
                shared.state().connections += 1;
                // A client that goes away ends its thread, and nothing else.
                std::thread::spawn(move || drop(serve(&shared, stream)));
            }
        });
        Self { address, shared, listener: Some(listener) }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its base URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Sets the answer from now on.
    pub fn answer(&self, answer: CollectorAnswer) {
        self.shared.state().answer = Some(answer);
    }

    /// Connections that were made so far.
    pub fn connections(&self) -> usize {
        self.shared.state().connections
    }

    /// Requests so far, with those that were not taken.
    pub fn exports(&self) -> Vec<ReceivedExport> {
        self.shared.state().exports.clone()
    }

    /// Spans that it took so far.
    pub fn spans(&self) -> Vec<ReceivedSpan> {
        self.shared.state().spans.clone()
    }

    /// Waits until it took this many spans, and returns all of them.
    #[track_caller]
    pub fn wait_for_spans(&self, count: usize) -> Vec<ReceivedSpan> {
        self.wait(&format!("{count} spans"), |state| state.spans.len() >= count);
        self.spans()
    }

    /// Waits until it received this many requests.
    #[track_caller]
    pub fn wait_for_exports(&self, count: usize) -> Vec<ReceivedExport> {
        self.wait(&format!("{count} requests"), |state| state.exports.len() >= count);
        self.exports()
    }

    #[track_caller]
    fn wait(&self, what: &str, is_done: impl Fn(&State) -> bool) {
        let until = Instant::now() + TIMEOUT;
        let mut state = self.shared.state();
        while !is_done(&state) {
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "no {what} arrived in time: {:#?}", state.spans);
            state = self.shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for CollectorStub {
    fn drop(&mut self) {
        self.shared.is_stopping.store(true, Ordering::SeqCst);
        // Wakes the listener.
        let _ = TcpStream::connect(self.address);
        if let Some(listener) = self.listener.take() {
            let _ = listener.join();
        }
    }
}

/// Reads one request and answers it.
fn serve(shared: &Shared, mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_read_timeout(Some(READ_TIMEOUT))?;
    if shared.state().answer == Some(CollectorAnswer::Close) {
        return Ok(());
    }
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut headers = Vec::new();
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 || line.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':') {
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
    }
    let length = headers.iter().find(|(name, _)| name == "content-length").and_then(|(_, text)| text.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body)?;
    let answer = {
        let mut state = shared.state();
        let answer = state.answer.clone().unwrap_or(CollectorAnswer::Accept);
        if matches!(answer, CollectorAnswer::Accept | CollectorAnswer::AcceptPartly(..)) {
            state.spans.extend(span::decode(&body));
        }
        state.exports.push(ReceivedExport { path, headers, body });
        answer
    };
    let (status, after, body) = match answer {
        CollectorAnswer::Close => return Ok(()),
        CollectorAnswer::Accept => (200, None, Vec::new()),
        CollectorAnswer::AcceptPartly(rejected, reason) => (200, None, span::partial_success(rejected, &reason)),
        CollectorAnswer::Status(status, after) => (status, after, Vec::new()),
    };
    let after = after.map_or_else(String::new, |seconds| format!("retry-after: {seconds}\r\n"));
    let head = format!(
        "HTTP/1.1 {status} Status\r\ncontent-type: application/x-protobuf\r\n{after}content-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(&[head.as_bytes(), &body].concat())?;
    // After the answer, so that a test that saw the request does not stop the client before it has the answer.
    shared.changed.notify_all();
    Ok(())
}
