//! An HTTP/2 client that sends any frame, valid or not.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::transport_clients::with_timeout;

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RESET: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GO_AWAY: u8 = 7;
pub const CONTINUATION: u8 = 9;
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;

/// A received frame.
#[derive(Debug)]
pub struct Frame {
    pub kind: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

/// A connection without a client library.
pub struct Http2Connection {
    stream: TcpStream,
    /// Settings that the server announced first.
    pub settings: Vec<u8>,
}

impl Http2Connection {
    /// Connects and exchanges settings.
    pub async fn connect(address: SocketAddr) -> Self {
        let mut stream = TcpStream::connect(address).await.expect("the server listens");
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.expect("the preface is sent");
        let mut this = Self { stream, settings: Vec::new() };
        this.send(SETTINGS, 0, 0, &[]).await.expect("empty settings are sent");
        let first = this.next().await.expect("the server sends its settings");
        assert_eq!(first.kind, SETTINGS);
        this.settings = first.payload;
        this
    }

    /// Sends one frame; fails if the server has closed the connection.
    pub async fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> std::io::Result<()> {
        let [_, a, b, c] = (payload.len() as u32).to_be_bytes();
        let head = [&[a, b, c, kind, flags][..], &stream.to_be_bytes()].concat();
        with_timeout(self.stream.write_all(&[&head, payload].concat())).await
    }

    /// The next frame; `None` if the connection is closed.
    pub async fn next(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        with_timeout(self.stream.read_exact(&mut head)).await.ok()?;
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        with_timeout(self.stream.read_exact(&mut payload)).await.ok()?;
        Some(Frame { kind: head[3], stream: u32::from_be_bytes([head[5], head[6], head[7], head[8]]), payload })
    }

    /// Reads until a frame of this kind; `None` if the connection is closed before.
    pub async fn next_of(&mut self, kind: u8) -> Option<Frame> {
        loop {
            let frame = self.next().await?;
            if frame.kind == kind {
                return Some(frame);
            }
        }
    }

    /// Waits until a ping is answered: all frames before it were processed.
    pub async fn ping(&mut self) -> bool {
        self.send(PING, 0, 0, &[7; 8]).await.is_ok() && self.next_of(PING).await.is_some()
    }
}

/// A header block of fields that are not compressed.
pub fn block(fields: &[(&str, &[u8])]) -> Vec<u8> {
    fn length(out: &mut Vec<u8>, bytes: usize) {
        let Some(mut rest) = bytes.checked_sub(127) else { return out.push(bytes as u8) };
        out.push(127);
        while rest >= 128 {
            out.push((rest % 128) as u8 | 128);
            rest /= 128;
        }
        out.push(rest as u8);
    }
    let mut out = Vec::new();
    for (name, value) in fields {
        out.push(0);
        length(&mut out, name.len());
        out.extend(name.as_bytes());
        length(&mut out, value.len());
        out.extend(*value);
    }
    out
}

/// The header block of a gRPC request, with further fields.
pub fn grpc_block(method: &str, fields: &[(&str, &[u8])]) -> Vec<u8> {
    let path = format!("/leasehold.v1.Leasehold/{method}");
    let own: [(&str, &[u8]); 6] = [
        (":method", b"POST"),
        (":scheme", b"http"),
        (":path", path.as_bytes()),
        (":authority", b"localhost"),
        ("content-type", b"application/grpc"),
        ("te", b"trailers"),
    ];
    block(&[&own[..], fields].concat())
}

/// A message with its prefix.
pub fn framed(message: &[u8]) -> Vec<u8> {
    [&[0][..], &(message.len() as u32).to_be_bytes(), message].concat()
}
