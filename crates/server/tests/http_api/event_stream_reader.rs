//! A reader of server-sent events over a connection of its own.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::transport_clients::with_timeout;

/// One event.
#[derive(Debug)]
pub struct ReceivedEvent {
    pub id: Option<u64>,
    pub name: String,
    pub data: Value,
}

/// A response whose body is a stream of events.
pub struct EventStreamReader {
    connection: BufReader<TcpStream>,
    /// Decoded from chunks and not read yet.
    text: String,
}

impl EventStreamReader {
    /// Sends the request; returns the status and the body instead if it is refused.
    pub async fn connect(address: SocketAddr, path: &str, headers: &str) -> Result<Self, (u16, String)> {
        let mut connection = BufReader::new(TcpStream::connect(address).await.expect("the server listens"));
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n");
        connection.write_all(request.as_bytes()).await.expect("the server reads");
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            with_timeout(connection.read_line(&mut head)).await.expect("the server responds");
        }
        let status: u16 = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
        if status != 200 {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
            let mut body = vec![0; length.expect("a problem has a length")];
            connection.read_exact(&mut body).await.expect("the body arrives");
            return Err((status, String::from_utf8(body).expect("a problem is UTF-8")));
        }
        assert!(head.contains("content-type: text/event-stream"), "{head}");
        Ok(Self { connection, text: String::new() })
    }

    /// The next event; `None` once the server has ended the stream. Comments are skipped.
    pub async fn next(&mut self) -> Option<ReceivedEvent> {
        loop {
            let block = self.block().await?;
            let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name).map(str::trim));
            let Some(name) = field("event:") else { continue };
            let data = serde_json::from_str(field("data:").unwrap_or("null")).expect("the data is JSON");
            return Some(ReceivedEvent {
                id: field("id:").and_then(|id| id.parse().ok()),
                name: name.to_owned(),
                data,
            });
        }
    }

    /// The next event or comment, without the empty line at its end.
    pub async fn block(&mut self) -> Option<String> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let (block, rest) = (block.to_owned(), rest.to_owned());
                self.text = rest;
                return Some(block);
            }
            let mut size = String::new();
            let read = with_timeout(self.connection.read_line(&mut size)).await;
            if read.unwrap_or(0) == 0 {
                return None;
            }
            let size = usize::from_str_radix(size.trim(), 16).expect("the size of a chunk");
            let mut chunk = vec![0; size + "\r\n".len()];
            self.connection.read_exact(&mut chunk).await.ok()?;
            if size == 0 {
                return None;
            }
            self.text.push_str(std::str::from_utf8(&chunk[..size]).expect("events are UTF-8"));
        }
    }
}
