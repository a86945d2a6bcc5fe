//! Limits and timeouts of connections.

use std::time::Duration;

/// Limits and timeouts of connections.
#[derive(Clone, Copy, Debug)]
pub struct TransportLimits {
    /// Connections that may be open at the same time.
    pub connections: usize,
    /// Requests per second of one connection; unlimited if there is none.
    pub request_rate: Option<u32>,
    /// Time for the head of a request, and for the next head on a connection that is kept alive.
    pub header_timeout: Duration,
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
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(20),
            write_timeout: Duration::from_secs(30),
        }
    }
}

/// Concurrent streams of one HTTP/2 connection.
pub const MAX_STREAMS: u32 = 128;
/// Bytes of a request's head.
pub(super) const MAX_HEAD_BYTES: usize = 16 << 10;
