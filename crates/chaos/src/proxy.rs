//! A way on which bytes can be held back, in one direction or both, or cut: what is held back arrives late, as it does
//! behind a partition.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::runtime::Handle;
use tokio::sync::watch::{Receiver, Sender, channel};

/// Where a way leads.
#[derive(Clone, Debug)]
pub enum Upstream {
    /// Nowhere: connections are closed at once.
    Nowhere,
    /// An address.
    Address(String),
    /// A socket in a directory.
    Socket(PathBuf),
}

/// What becomes of bytes on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passage {
    /// Connections of an earlier life are broken.
    life: u64,
    /// What is asked passes.
    pub there: bool,
    /// What is answered passes.
    pub back: bool,
}

/// One way.
#[derive(Clone, Debug)]
pub struct Way {
    /// Where it begins.
    pub at: SocketAddr,
    passage: Arc<Sender<Passage>>,
    upstream: Arc<Mutex<Upstream>>,
}

impl Way {
    /// A way that begins at a free port of this address.
    pub fn open(on: &Handle, from: IpAddr, upstream: Upstream) -> io::Result<Self> {
        let listener = on.block_on(TcpListener::bind((from, 0)))?;
        let at = listener.local_addr()?;
        let (passage, watching) = channel(Passage { life: 0, there: true, back: true });
        let upstream = Arc::new(Mutex::new(upstream));
        let leads = upstream.clone();
        on.spawn(async move {
            while let Ok((from, _)) = listener.accept().await {
                let (to, watching) = (leads.lock().expect("nobody panics with it").clone(), watching.clone());
                // A connection that breaks is what is wanted here; who made it will notice.
                tokio::spawn(async move {
                    match to {
                        Upstream::Nowhere => Ok(()),
                        Upstream::Address(to) => carry(from, TcpStream::connect(to).await?, watching).await,
                        Upstream::Socket(to) => carry(from, UnixStream::connect(to).await?, watching).await,
                    }
                });
            }
        });
        Ok(Self { at, passage: Arc::new(passage), upstream })
    }

    /// From now on it leads there; connections that stand are broken.
    pub fn leads_to(&self, upstream: Upstream) {
        *self.upstream.lock().expect("nobody panics with it") = upstream;
        self.cut();
    }

    /// Breaks every connection; others can be made.
    pub fn cut(&self) {
        self.passage.send_modify(|passage| passage.life += 1);
    }

    /// Passes, or holds back, in each direction.
    pub fn pass(&self, there: bool, back: bool) {
        self.passage.send_modify(|passage| (passage.there, passage.back) = (there, back));
    }
}

async fn carry(
    from: TcpStream,
    to: impl AsyncRead + AsyncWrite + Send + 'static,
    passage: Receiver<Passage>,
) -> io::Result<()> {
    from.set_nodelay(true)?;
    let life = passage.borrow().life;
    let (from_client, to_client) = from.into_split();
    let (from_server, to_server) = split(to);
    let mut over = passage.clone();
    tokio::select! {
        done = copy(from_client, to_server, passage.clone(), |passage| passage.there) => done,
        done = copy(from_server, to_client, passage, |passage| passage.back) => done,
        _ = over.wait_for(|passage| passage.life != life) => Ok(()),
    }
}

async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut passage: Receiver<Passage>,
    passes: impl Fn(&Passage) -> bool,
) -> io::Result<()> {
    let mut bytes = vec![0; 1 << 16];
    loop {
        let length = from.read(&mut bytes).await?;
        if length == 0 {
            return Ok(());
        }
        // Whoever could open it and is gone has ended the run.
        if passage.wait_for(|passage| passes(passage)).await.is_err() {
            return Ok(());
        }
        to.write_all(&bytes[..length]).await?;
    }
}
