//! A TCP proxy that forwards requests, or holds them until it is released.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy, split};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;

/// Address of the server.
#[derive(Clone)]
pub enum Upstream {
    Address(SocketAddr),
    Socket(PathBuf),
}

pub struct HoldingProxy {
    address: SocketAddr,
    holding: watch::Sender<bool>,
    held: Arc<Mutex<Vec<u8>>>,
}

impl HoldingProxy {
    pub async fn start(upstream: Upstream) -> Self {
        let listener = TcpListener::bind(crate::daemon::address()).await.expect("an address");
        let address = listener.local_addr().expect("it is bound");
        let (holding, is_holding) = watch::channel(false);
        let held = Arc::new(Mutex::new(Vec::new()));
        let held_bytes = held.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (upstream, is_holding, held_bytes) = (upstream.clone(), is_holding.clone(), held_bytes.clone());
                tokio::spawn(async move {
                    match upstream {
                        Upstream::Address(at) => {
                            forward(client, TcpStream::connect(at).await?, is_holding, held_bytes).await
                        }
                        Upstream::Socket(at) => {
                            forward(client, UnixStream::connect(at).await?, is_holding, held_bytes).await
                        }
                    }
                });
            }
        });
        Self { address, holding, held }
    }

    pub fn at(&self) -> String {
        self.address.to_string()
    }

    /// Holds all further bytes to the server.
    pub fn hold(&self) {
        self.holding.send_replace(true);
    }

    pub fn release(&self) {
        self.holding.send_replace(false);
    }

    /// Waits until the proxy holds these bytes.
    pub async fn wait_until_held(&self, bytes: &str) {
        let until = Instant::now() + Duration::from_secs(120);
        while !self.held.lock().expect("not poisoned").windows(bytes.len()).any(|window| window == bytes.as_bytes()) {
            assert!(Instant::now() < until, "the bytes did not arrive");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

async fn forward(
    client: TcpStream,
    server: impl AsyncRead + AsyncWrite + Send + 'static,
    mut is_holding: watch::Receiver<bool>,
    held: Arc<Mutex<Vec<u8>>>,
) -> std::io::Result<()> {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = split(server);
    tokio::spawn(async move { copy(&mut from_server, &mut to_client).await });
    let mut bytes = vec![0; 1 << 16];
    // Bytes that the client sent while the proxy holds. Reading continues meanwhile: the protocol may send an acknowledgment or a
    // ping before the bytes that the test waits for.
    let mut pending = Vec::new();
    loop {
        tokio::select! {
            opened = async { is_holding.wait_for(|holding| !holding).await.is_ok() }, if !pending.is_empty() => {
                // The proxy was dropped.
                if !opened {
                    return Ok(());
                }
                to_server.write_all(&pending).await?;
                pending.clear();
            }
            length = from_client.read(&mut bytes) => {
                let sent = &bytes[..length?];
                if sent.is_empty() {
                    return to_server.shutdown().await;
                }
                if *is_holding.borrow() || !pending.is_empty() {
                    pending.extend(sent);
                    held.lock().expect("not poisoned").extend(sent);
                } else {
                    to_server.write_all(sent).await?;
                }
            }
        }
    }
}
