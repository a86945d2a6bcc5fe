//! Limits and timeouts of connections.

use std::time::Duration;

/// Limits and timeouts of connections.
#[derive(Clone, Copy, Debug)]
pub struct TransportLimits {
    /// Connections that may be open at the same time.
    pub connections: usize,
    /// Requests per second of one connection; unlimited if there is none.
    pub request_rate: Option<u32>,
    /// Requests per second of one peer address, over all its connections; unlimited if there is none.
    pub address_request_rate: Option<u32>,
    /// Time for the head of a request.
    pub header_timeout: Duration,
    /// Time for the next request on an HTTP/1 connection; if there is none, it follows from the longest ttl of the cluster.
    pub idle_timeout: Option<Duration>,
    /// Time for the body of a request, or for the first message of a stream.
    pub body_timeout: Duration,
    /// Time for a peer to read what it is sent.
    pub write_timeout: Duration,
}

impl Default for TransportLimits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            request_rate: None,
            address_request_rate: None,
            header_timeout: Duration::from_secs(10),
            idle_timeout: None,
            body_timeout: Duration::from_secs(20),
            write_timeout: Duration::from_secs(30),
        }
    }
}

/// Concurrent streams of one HTTP/2 connection.
pub const MAX_STREAMS: u32 = 128;
/// Bytes of unfinished request bodies of all connections together, beyond the allowance of each.
pub const BODY_BYTES: usize = 64 << 20;
/// Bytes of unfinished request bodies that each connection may have in any case, so that one that sends only small requests does
/// not depend on the others.
pub(super) const CONNECTION_BODY_BYTES: usize = 64 << 10;
/// Bytes of all requests of one reflection stream: about 90 requests, more than a generic client sends. Anyone may send them, and
/// each is answered with a whole file (A16); opening a stream counts in the rate limit.
pub(super) const MAX_REFLECTION_BYTES: usize = 4 << 10;
/// Bytes that an HTTP/2 peer may send on one stream before they are read.
pub(super) const STREAM_WINDOW: u32 = 128 << 10;
/// Bytes that an HTTP/2 peer may send on all streams before they are read.
pub(super) const CONNECTION_WINDOW: u32 = 256 << 10;
/// Bytes of a response that are buffered for an HTTP/2 peer that does not read.
pub(super) const SEND_BUFFER: usize = 64 << 10;
/// Shortest time for the next request on an HTTP/1 connection.
const MIN_IDLE_TIMEOUT: Duration = Duration::from_secs(60);

impl TransportLimits {
    /// Time for the next request on an HTTP/1 connection. A holder renews after a third of its ttl, so its connection is still open
    /// then, whatever its ttl.
    pub fn idle_timeout(&self, max_ttl_ms: u64) -> Duration {
        self.idle_timeout.unwrap_or_else(|| Duration::from_millis(max_ttl_ms / 2).max(MIN_IDLE_TIMEOUT))
    }
}

/// Bytes of a request's head.
pub(super) const MAX_HEAD_BYTES: usize = 16 << 10;
