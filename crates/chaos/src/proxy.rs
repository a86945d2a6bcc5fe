//! A TCP proxy whose bytes can be delayed, in one or both directions, or whose connections can be broken. Delayed bytes arrive
//! late, as after a partition.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::runtime::Handle;
use tokio::sync::watch::{Receiver, Sender, channel};

/// Destination of a link.
#[derive(Clone, Debug)]
pub enum ProxyUpstream {
    /// None: connections are closed immediately.
    Nowhere,
    /// A TCP address.
    Address(String),
    /// A Unix socket.
    Socket(PathBuf),
}

/// What a link does with bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkState {
    /// Connections of an earlier epoch are broken.
    epoch: u64,
    /// Whether bytes from the client pass.
    pub forward: bool,
    /// Whether bytes to the client pass.
    pub reverse: bool,
}

/// A link with injectable faults.
#[derive(Clone, Debug)]
pub struct FaultyLink {
    /// Address on which it listens.
    pub address: SocketAddr,
    state: Arc<Sender<LinkState>>,
    upstream: Arc<Mutex<ProxyUpstream>>,
}

impl FaultyLink {
    /// Opens a link on a free port of `from`.
    pub fn open(on: &Handle, from: IpAddr, upstream: ProxyUpstream) -> io::Result<Self> {
        let listener = on.block_on(TcpListener::bind((from, 0)))?;
        let address = listener.local_addr()?;
        let (state, watching) = channel(LinkState { epoch: 0, forward: true, reverse: true });
        let upstream = Arc::new(Mutex::new(upstream));
        let current_upstream = upstream.clone();
        on.spawn(async move {
            while let Ok((from, _)) = listener.accept().await {
                let (to, watching) = (
                    current_upstream.lock().expect("no thread panics while it holds the lock").clone(),
                    watching.clone(),
                );
                // Broken connections are intended; the client notices.
                tokio::spawn(async move {
                    match to {
                        ProxyUpstream::Nowhere => Ok(()),
                        ProxyUpstream::Address(to) => relay(from, TcpStream::connect(to).await?, watching).await,
                        ProxyUpstream::Socket(to) => relay(from, UnixStream::connect(to).await?, watching).await,
                    }
                });
            }
        });
        Ok(Self { address, state: Arc::new(state), upstream })
    }

    /// Changes the destination and breaks existing connections.
    pub fn set_upstream(&self, upstream: ProxyUpstream) {
        *self.upstream.lock().expect("no thread panics while it holds the lock") = upstream;
        self.break_connections();
    }

    /// Breaks every connection; new ones can be made.
    pub fn break_connections(&self) {
        self.state.send_modify(|state| state.epoch += 1);
    }

    /// Passes or delays bytes in each direction.
    pub fn set_passing(&self, forward: bool, reverse: bool) {
        self.state.send_modify(|state| (state.forward, state.reverse) = (forward, reverse));
    }
}

async fn relay(
    from: TcpStream,
    to: impl AsyncRead + AsyncWrite + Send + 'static,
    state: Receiver<LinkState>,
) -> io::Result<()> {
    from.set_nodelay(true)?;
    let epoch = state.borrow().epoch;
    let (from_client, to_client) = from.into_split();
    let (from_server, to_server) = split(to);
    let mut broken = state.clone();
    tokio::select! {
        done = copy(from_client, to_server, state.clone(), |state| state.forward) => done,
        done = copy(from_server, to_client, state, |state| state.reverse) => done,
        _ = broken.wait_for(|state| state.epoch != epoch) => Ok(()),
    }
}

async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut state: Receiver<LinkState>,
    passes: impl Fn(&LinkState) -> bool,
) -> io::Result<()> {
    let mut bytes = vec![0; 1 << 16];
    loop {
        let length = from.read(&mut bytes).await?;
        if length == 0 {
            return Ok(());
        }
        // The sender is dropped only when the run has ended.
        if state.wait_for(|state| passes(state)).await.is_err() {
            return Ok(());
        }
        to.write_all(&bytes[..length]).await?;
    }
}
