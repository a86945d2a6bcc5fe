//! A gate on the way to a server: it passes what is sent, or holds it back until it is released.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy, split};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;

/// Where a gate leads.
#[derive(Clone)]
pub enum Upstream {
    Address(SocketAddr),
    Socket(PathBuf),
}

pub struct Gate {
    at: SocketAddr,
    shut: watch::Sender<bool>,
    held: Arc<Mutex<Vec<u8>>>,
}

impl Gate {
    pub async fn open(upstream: Upstream) -> Self {
        let listener = TcpListener::bind(crate::daemon::address()).await.expect("an address");
        let at = listener.local_addr().expect("it is bound");
        let (shut, is_shut) = watch::channel(false);
        let held = Arc::new(Mutex::new(Vec::new()));
        let kept = held.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (upstream, is_shut, kept) = (upstream.clone(), is_shut.clone(), kept.clone());
                tokio::spawn(async move {
                    match upstream {
                        Upstream::Address(at) => pass(client, TcpStream::connect(at).await?, is_shut, kept).await,
                        Upstream::Socket(at) => pass(client, UnixStream::connect(at).await?, is_shut, kept).await,
                    }
                });
            }
        });
        Self { at, shut, held }
    }

    pub fn at(&self) -> String {
        self.at.to_string()
    }

    /// From now on nothing more reaches the server.
    pub fn hold(&self) {
        self.shut.send_replace(true);
    }

    pub fn release(&self) {
        self.shut.send_replace(false);
    }

    /// Waits until these bytes stand before the gate.
    pub async fn holds(&self, what: &str) {
        let until = Instant::now() + Duration::from_secs(120);
        while !self.held.lock().expect("nobody panicked").windows(what.len()).any(|seen| seen == what.as_bytes()) {
            assert!(Instant::now() < until, "nothing was sent");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

async fn pass(
    client: TcpStream,
    server: impl AsyncRead + AsyncWrite + Send + 'static,
    mut is_shut: watch::Receiver<bool>,
    held: Arc<Mutex<Vec<u8>>>,
) -> std::io::Result<()> {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = split(server);
    tokio::spawn(async move { copy(&mut from_server, &mut to_client).await });
    let mut bytes = vec![0; 1 << 16];
    // What this connection sent while the gate was shut. It is read on meanwhile: a protocol may say something of its own
    // (an acknowledgement, a ping) before what the test waits for.
    let mut waiting = Vec::new();
    loop {
        tokio::select! {
            opened = async { is_shut.wait_for(|shut| !shut).await.is_ok() }, if !waiting.is_empty() => {
                // Who opened the gate and is gone has no use for what stands before it.
                if !opened {
                    return Ok(());
                }
                to_server.write_all(&waiting).await?;
                waiting.clear();
            }
            length = from_client.read(&mut bytes) => {
                let sent = &bytes[..length?];
                if sent.is_empty() {
                    return to_server.shutdown().await;
                }
                if *is_shut.borrow() || !waiting.is_empty() {
                    waiting.extend(sent);
                    held.lock().expect("nobody panicked").extend(sent);
                } else {
                    to_server.write_all(sent).await?;
                }
            }
        }
    }
}
