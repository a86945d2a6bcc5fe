//! A TCP proxy that can disconnect clients, switch to another server, or drop all replies.

#![allow(dead_code, reason = "each test file uses what it needs")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch::{Receiver, Sender, channel};

/// What the proxy does with bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
struct LinkState {
    /// Connections of earlier epochs are closed.
    epoch: usize,
    /// Replies of the server are dropped.
    drop_replies: bool,
}

pub struct FlakyProxy {
    pub address: String,
    state: Sender<LinkState>,
    upstream: Arc<Mutex<String>>,
    connection_count: Arc<AtomicUsize>,
    dropped_bytes: Arc<AtomicUsize>,
}

impl FlakyProxy {
    pub async fn to(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("the listener is bound").to_string();
        let (state, receiver) = channel(LinkState { epoch: 0, drop_replies: false });
        let (connection_count, dropped_bytes) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let upstream = Arc::new(Mutex::new(server.to_owned()));
        let (connections, dropped, target) = (connection_count.clone(), dropped_bytes.clone(), upstream.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = target.lock().expect("no holder of the lock panics").clone();
                if let Ok(server) = TcpStream::connect(server).await {
                    connections.fetch_add(1, Ordering::AcqRel);
                    tokio::spawn(forward(client, server, receiver.clone(), dropped.clone()));
                }
            }
        });
        Self { address, state, upstream, connection_count, dropped_bytes }
    }

    /// Sends new connections to a server at another address.
    pub fn set_upstream(&self, address: &str) {
        address.clone_into(&mut self.upstream.lock().expect("no holder of the lock panics"));
    }

    /// Closes every connection; clients can reconnect.
    pub fn disconnect_all(&self) {
        self.state.send_modify(|state| state.epoch += 1);
    }

    /// Drops all replies of the server, or forwards them again. Forwarding again closes the existing connections.
    pub fn drop_replies(&self, enabled: bool) {
        self.state.send_modify(|state| {
            state.drop_replies = enabled;
            state.epoch += usize::from(!enabled);
        });
    }

    /// Number of connections that were opened.
    pub fn connection_count(&self) -> usize {
        self.connection_count.load(Ordering::Acquire)
    }

    /// Number of dropped bytes.
    pub fn dropped_bytes(&self) -> usize {
        self.dropped_bytes.load(Ordering::Acquire)
    }
}

async fn forward(client: TcpStream, server: TcpStream, mut state: Receiver<LinkState>, dropped: Arc<AtomicUsize>) {
    let epoch = state.borrow().epoch;
    let current = state.clone();
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let replies = async {
        let mut bytes = vec![0; 1 << 16];
        while let Ok(read @ 1..) = from_server.read(&mut bytes).await {
            if current.borrow().drop_replies {
                dropped.fetch_add(read, Ordering::AcqRel);
            } else if to_client.write_all(&bytes[..read]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        _ = copy(&mut from_client, &mut to_server) => {}
        () = replies => {}
        _ = state.wait_for(|state| state.epoch != epoch) => {}
    }
}
