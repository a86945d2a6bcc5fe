//! A link on which every reply takes a fixed time longer. Requests are not delayed.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use super::runtime::runtime;

/// A relay to a server. It ends when it is dropped.
#[derive(Debug)]
pub struct SlowLink {
    /// Address of the relay.
    pub address: SocketAddr,
    accepting: JoinHandle<()>,
}

impl SlowLink {
    /// Starts a relay whose replies arrive `delay` later.
    pub fn start(upstream: &str, delay: Duration) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let _in_runtime = runtime().enter();
        let (listener, upstream) = (TcpListener::from_std(listener)?, upstream.to_owned());
        let accepting = runtime().spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let upstream = upstream.clone();
                // Both ends notice a broken connection.
                tokio::spawn(async move { relay(client, &upstream, delay).await });
            }
        });
        Ok(Self { address, accepting })
    }
}

impl Drop for SlowLink {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn relay(client: TcpStream, upstream: &str, delay: Duration) -> io::Result<()> {
    let server = TcpStream::connect(upstream).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let (sender, mut delayed) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    let requests = async {
        copy(&mut from_client, &mut to_server).await?;
        to_server.shutdown().await
    };
    let replies = async {
        let mut buffer = vec![0; 1 << 16];
        loop {
            let length = from_server.read(&mut buffer).await?;
            let chunk = (Instant::now() + delay, buffer[..length].to_vec());
            if sender.send(chunk).is_err() || length == 0 {
                return Ok(());
            }
        }
    };
    let deliveries = async {
        while let Some((due, bytes)) = delayed.recv().await {
            sleep_until(due).await;
            if bytes.is_empty() {
                break;
            }
            to_client.write_all(&bytes).await?;
        }
        to_client.shutdown().await
    };
    let (requests, replies, deliveries): (io::Result<()>, io::Result<()>, io::Result<()>) =
        tokio::join!(requests, replies, deliveries);
    requests.and(replies).and(deliveries)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn a_reply_arrives_later_and_a_request_does_not() {
        let server = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let delay = Duration::from_millis(300);
        let link = SlowLink::start(&server.local_addr().expect("bound").to_string(), delay).expect("started");
        let mut client = std::net::TcpStream::connect(link.address).expect("it listens");
        let (mut accepted, _) = server.accept().expect("the link connects");
        client.write_all(b"request").expect("sent");
        let mut bytes = [0; 7];
        accepted.read_exact(&mut bytes).expect("the request arrives");
        let began = std::time::Instant::now();
        accepted.write_all(b"reply").expect("sent");
        client.read_exact(&mut bytes[..5]).expect("the reply arrives");
        assert!(&bytes[..5] == b"reply" && began.elapsed() >= delay);
    }
}
