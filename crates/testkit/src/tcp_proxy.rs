//! A TCP proxy that injects faults between a client and its server: it holds or drops bytes in either direction, closes
//! connections, and switches to another server.
//!
//! All proxies of a process run on one runtime of their own, so that tests can control them with or without a runtime.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::runtime::Runtime;
use tokio::sync::watch::{self, Receiver, Sender};

use crate::process::TIMEOUT;

/// Bytes that a connection holds in one direction before the proxy stops reading.
const MAX_HELD: usize = 1 << 16;

/// Server of a proxy.
#[derive(Clone, Debug)]
pub enum ProxyUpstream {
    /// None: connections are closed immediately.
    Nowhere,
    /// A TCP address.
    Address(String),
    /// A Unix socket.
    Socket(PathBuf),
}

impl From<SocketAddr> for ProxyUpstream {
    fn from(address: SocketAddr) -> Self {
        Self::Address(address.to_string())
    }
}

impl From<&str> for ProxyUpstream {
    fn from(address: &str) -> Self {
        Self::Address(address.to_owned())
    }
}

impl From<&String> for ProxyUpstream {
    fn from(address: &String) -> Self {
        Self::Address(address.clone())
    }
}

/// What a proxy does with the bytes of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Forward them.
    Pass,
    /// Keep them until they pass again; they arrive late, as after a partition.
    Hold,
    /// Lose them, without an error for either end. A connection that lost bytes is useless: it is closed when bytes pass again.
    Drop,
}

/// What a proxy does, for all of its connections.
#[derive(Clone, Debug)]
struct ProxyState {
    upstream: ProxyUpstream,
    /// Connections of earlier epochs are closed.
    epoch: u64,
    requests: Flow,
    replies: Flow,
}

/// What has happened at a proxy.
#[derive(Debug)]
struct ProxyTraffic {
    connections: AtomicUsize,
    dropped_bytes: AtomicUsize,
    /// All requests that were ever held.
    held_requests: Sender<Vec<u8>>,
}

/// A function that changes replies in place.
type Rewrite = Arc<dyn Fn(&mut [u8]) + Send + Sync>;

/// A TCP proxy. Its connections are closed when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct TcpProxy {
    address: SocketAddr,
    state: Arc<Sender<ProxyState>>,
    traffic: Arc<ProxyTraffic>,
}

impl TcpProxy {
    /// Starts a proxy on a free port of 127.0.0.1.
    pub fn start(upstream: impl Into<ProxyUpstream>) -> Self {
        Self::listen(Ipv4Addr::LOCALHOST.into(), upstream).expect("a free port")
    }

    /// Starts a proxy on a free port of `ip`.
    pub fn listen(ip: IpAddr, upstream: impl Into<ProxyUpstream>) -> io::Result<Self> {
        Self::open(ip, upstream.into(), Arc::new(|_| {}))
    }

    /// Starts a proxy on 127.0.0.1 that changes all replies in place.
    pub fn rewriting(upstream: impl Into<ProxyUpstream>, rewrite: impl Fn(&mut [u8]) + Send + Sync + 'static) -> Self {
        Self::open(Ipv4Addr::LOCALHOST.into(), upstream.into(), Arc::new(rewrite)).expect("a free port")
    }

    fn open(ip: IpAddr, upstream: ProxyUpstream, rewrite: Rewrite) -> io::Result<Self> {
        static RUNTIME: OnceLock<Runtime> = OnceLock::new();
        let runtime = RUNTIME.get_or_init(|| {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            builder.worker_threads(2).thread_name("tcp-proxy").enable_all().build().expect("a runtime")
        });
        let listener = std::net::TcpListener::bind((ip, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let _in_runtime = runtime.enter();
        let listener = TcpListener::from_std(listener)?;
        let state = ProxyState { upstream, epoch: 0, requests: Flow::Pass, replies: Flow::Pass };
        let (state, receiver) = watch::channel(state);
        let traffic = Arc::new(ProxyTraffic {
            connections: AtomicUsize::new(0),
            dropped_bytes: AtomicUsize::new(0),
            held_requests: watch::channel(Vec::new()).0,
        });
        runtime.spawn(accept(listener, receiver, traffic.clone(), rewrite));
        Ok(Self { address, state: Arc::new(state), traffic })
    }

    /// Address on which the proxy listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends new connections to another server.
    pub fn set_upstream(&self, upstream: impl Into<ProxyUpstream>) {
        let upstream = upstream.into();
        self.state.send_modify(|state| state.upstream = upstream);
    }

    /// Closes every connection. Clients can reconnect.
    pub fn disconnect_all(&self) {
        self.state.send_modify(|state| state.epoch += 1);
    }

    /// Sets what happens to the bytes of each direction, on existing and new connections.
    pub fn set_flow(&self, requests: Flow, replies: Flow) {
        self.state.send_modify(|state| {
            let lost = |old: Flow, new: Flow| old == Flow::Drop && new == Flow::Pass;
            state.epoch += u64::from(lost(state.requests, requests) || lost(state.replies, replies));
            (state.requests, state.replies) = (requests, replies);
        });
    }

    /// Sets what happens to the bytes of both directions.
    pub fn set_both(&self, flow: Flow) {
        self.set_flow(flow, flow);
    }

    /// Number of connections that reached a server.
    pub fn connection_count(&self) -> usize {
        self.traffic.connections.load(Ordering::Acquire)
    }

    /// Number of dropped bytes.
    pub fn dropped_bytes(&self) -> usize {
        self.traffic.dropped_bytes.load(Ordering::Acquire)
    }

    /// Waits until the proxy has held requests that contain `bytes`. Panics after [`TIMEOUT`].
    pub async fn wait_until_held(&self, bytes: &[u8]) {
        let mut held = self.traffic.held_requests.subscribe();
        let holds = held.wait_for(|held| held.windows(bytes.len()).any(|window| window == bytes));
        tokio::time::timeout(TIMEOUT, holds).await.expect("the bytes arrive in time").expect("the proxy lives");
    }
}

async fn accept(listener: TcpListener, mut state: Receiver<ProxyState>, traffic: Arc<ProxyTraffic>, rewrite: Rewrite) {
    loop {
        let client = tokio::select! {
            accepted = listener.accept() => accepted,
            changed = state.changed() => match changed {
                Ok(()) => continue,
                // The proxy was dropped.
                Err(_) => return,
            },
        };
        match client {
            Ok((client, _)) => {
                tokio::spawn(serve(client, state.clone(), traffic.clone(), rewrite.clone()));
            }
            // The client has gone already, or there are too many open files.
            Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    }
}

/// Serves one connection until either end closes it, or the proxy does.
async fn serve(client: TcpStream, state: Receiver<ProxyState>, traffic: Arc<ProxyTraffic>, rewrite: Rewrite) {
    let (upstream, epoch) = {
        let state = state.borrow();
        (state.upstream.clone(), state.epoch)
    };
    let mut ended = state.clone();
    let ended = async move {
        // Also true when the proxy was dropped.
        let _ = ended.wait_for(|state| state.epoch != epoch).await;
    };
    tokio::select! {
        () = ended => {}
        // Broken connections are intended; both ends notice.
        _ = connect(client, upstream, state, &traffic, &rewrite) => {}
    }
}

async fn connect(
    client: TcpStream,
    upstream: ProxyUpstream,
    state: Receiver<ProxyState>,
    traffic: &ProxyTraffic,
    rewrite: &Rewrite,
) -> io::Result<()> {
    client.set_nodelay(true)?;
    match upstream {
        ProxyUpstream::Nowhere => Ok(()),
        ProxyUpstream::Address(address) => {
            let server = TcpStream::connect(address).await?;
            server.set_nodelay(true)?;
            relay(client, server, state, traffic, rewrite).await
        }
        ProxyUpstream::Socket(path) => relay(client, UnixStream::connect(path).await?, state, traffic, rewrite).await,
    }
}

async fn relay(
    client: TcpStream,
    server: impl AsyncRead + AsyncWrite,
    state: Receiver<ProxyState>,
    traffic: &ProxyTraffic,
    rewrite: &Rewrite,
) -> io::Result<()> {
    traffic.connections.fetch_add(1, Ordering::AcqRel);
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = split(server);
    let held_requests = |bytes: &[u8]| traffic.held_requests.send_modify(|held| held.extend_from_slice(bytes));
    let requests = Direction { flow: |state| state.requests, rewrite: &|_| {}, held: &held_requests, traffic };
    let replies = Direction { flow: |state| state.replies, rewrite: rewrite.as_ref(), held: &|_| {}, traffic };
    tokio::select! {
        done = requests.copy(from_client, to_server, state.clone()) => done,
        done = replies.copy(from_server, to_client, state) => done,
    }
}

/// One direction of a connection.
struct Direction<'a> {
    flow: fn(&ProxyState) -> Flow,
    rewrite: &'a (dyn Fn(&mut [u8]) + Send + Sync),
    /// Called with the bytes that are held.
    held: &'a (dyn Fn(&[u8]) + Send + Sync),
    traffic: &'a ProxyTraffic,
}

impl Direction<'_> {
    async fn copy(
        &self,
        mut from: impl AsyncRead + Unpin,
        mut to: impl AsyncWrite + Unpin,
        mut state: Receiver<ProxyState>,
    ) -> io::Result<()> {
        let current = state.clone();
        let mut buffer = vec![0; 1 << 16];
        let mut pending: Vec<u8> = Vec::new();
        let mut open = true;
        while open || !pending.is_empty() {
            tokio::select! {
                // Reading continues while bytes are held: the protocol may send an acknowledgment before the bytes that a test
                // waits for.
                length = from.read(&mut buffer), if open && pending.len() < MAX_HELD => {
                    let bytes = &mut buffer[..length?];
                    open = !bytes.is_empty();
                    (self.rewrite)(bytes);
                    let flow = (self.flow)(&current.borrow());
                    match flow {
                        Flow::Pass if pending.is_empty() => to.write_all(bytes).await?,
                        Flow::Pass => pending.extend_from_slice(bytes),
                        Flow::Hold => {
                            pending.extend_from_slice(bytes);
                            (self.held)(bytes);
                        }
                        Flow::Drop => self.drop_bytes(bytes),
                    }
                }
                flow = self.released(&mut state), if !pending.is_empty() => {
                    match flow {
                        Some(Flow::Drop) => self.drop_bytes(&pending),
                        Some(_) => to.write_all(&pending).await?,
                        // The proxy was dropped.
                        None => return Ok(()),
                    }
                    pending.clear();
                }
            }
        }
        to.shutdown().await
    }

    /// Waits until bytes are not held, and returns what happens to them.
    async fn released(&self, state: &mut Receiver<ProxyState>) -> Option<Flow> {
        let state = state.wait_for(|state| (self.flow)(state) != Flow::Hold).await.ok()?;
        Some((self.flow)(&state))
    }

    fn drop_bytes(&self, bytes: &[u8]) {
        self.traffic.dropped_bytes.fetch_add(bytes.len(), Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests;
