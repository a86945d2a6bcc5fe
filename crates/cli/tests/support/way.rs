//! A way to a server that a test can cut, lead to another, or on which it can lose every answer.

#![allow(dead_code, reason = "each test file uses what it needs")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch::{Receiver, Sender, channel};

/// What becomes of bytes on the way.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Passage {
    /// Connections of an earlier life are broken.
    life: usize,
    /// What the server says is lost.
    deaf: bool,
}

pub struct Way {
    pub address: String,
    passage: Sender<Passage>,
    server: Arc<Mutex<String>>,
    made: Arc<AtomicUsize>,
    swallowed: Arc<AtomicUsize>,
}

impl Way {
    pub async fn to(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound").to_string();
        let (passage, watching) = channel(Passage { life: 0, deaf: false });
        let (made, swallowed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let server = Arc::new(Mutex::new(server.to_owned()));
        let (count, lost, target) = (made.clone(), swallowed.clone(), server.clone());
        tokio::spawn(async move {
            while let Ok((from, _)) = listener.accept().await {
                let to = target.lock().expect("nobody panics with it").clone();
                if let Ok(to) = TcpStream::connect(to).await {
                    count.fetch_add(1, Ordering::AcqRel);
                    tokio::spawn(carry(from, to, watching.clone(), lost.clone()));
                }
            }
        });
        Self { address, passage, server, made, swallowed }
    }

    /// From now on it leads to a server at another address.
    pub fn leads_to(&self, address: &str) {
        address.clone_into(&mut self.server.lock().expect("nobody panics with it"));
    }

    /// Breaks every connection; others can be made.
    pub fn cut(&self) {
        self.passage.send_modify(|passage| passage.life += 1);
    }

    /// Loses what the server says, or passes it on again; connections are broken when it is passed on again.
    pub fn deafen(&self, yes: bool) {
        self.passage.send_modify(|passage| {
            passage.deaf = yes;
            passage.life += usize::from(!yes);
        });
    }

    /// How many connections were made.
    pub fn made(&self) -> usize {
        self.made.load(Ordering::Acquire)
    }

    /// How many bytes were lost.
    pub fn swallowed(&self) -> usize {
        self.swallowed.load(Ordering::Acquire)
    }
}

async fn carry(from: TcpStream, to: TcpStream, mut passage: Receiver<Passage>, swallowed: Arc<AtomicUsize>) {
    let life = passage.borrow().life;
    let watching = passage.clone();
    let (mut from_client, mut to_client) = from.into_split();
    let (mut from_server, mut to_server) = to.into_split();
    let answers = async {
        let mut bytes = vec![0; 1 << 16];
        while let Ok(read @ 1..) = from_server.read(&mut bytes).await {
            if watching.borrow().deaf {
                swallowed.fetch_add(read, Ordering::AcqRel);
            } else if to_client.write_all(&bytes[..read]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        _ = copy(&mut from_client, &mut to_server) => {}
        () = answers => {}
        _ = passage.wait_for(|passage| passage.life != life) => {}
    }
}
