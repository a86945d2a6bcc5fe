//! A TCP proxy in front of etcd that can delay or drop bytes, as a faulty network does.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What the proxy does with bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum LinkMode {
    /// Forwards everything.
    Open = 0,
    /// Forwards requests and drops replies.
    DropReplies = 1,
    /// Holds everything back, and forwards it when the link is open again.
    Delay = 2,
    /// Drops everything in both directions, without closing the connections.
    DropAll = 3,
}

/// A listener that forwards to another port.
pub struct TcpProxy {
    pub port: u16,
    mode: Arc<AtomicU8>,
    /// Both sockets of every connection. A connection that lost bytes must be closed when the link opens again.
    sockets: Arc<Mutex<Vec<TcpStream>>>,
}

impl TcpProxy {
    /// A proxy that forwards unchanged.
    pub fn to(port: u16) -> Self {
        Self::rewriting(port, |_| {})
    }

    /// A proxy that changes replies in place.
    pub fn rewriting(port: u16, change: impl Fn(&mut [u8]) + Clone + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let own = listener.local_addr().expect("the listener is bound").port();
        let (mode, sockets) = (Arc::new(AtomicU8::new(LinkMode::Open as u8)), Arc::new(Mutex::new(Vec::new())));
        let (link, open_sockets) = (mode.clone(), sockets.clone());
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(upstream) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                let (request_link, reply_link) = (link.clone(), link.clone());
                let both = || (client.try_clone().expect("a socket"), upstream.try_clone().expect("a socket"));
                let ((from, to), (reply_to, reply_from), (first, second)) = (both(), both(), both());
                let change = change.clone();
                open_sockets.lock().unwrap_or_else(PoisonError::into_inner).extend([first, second]);
                std::thread::spawn(move || forward(from, to, &request_link, &[LinkMode::DropAll], |_| {}));
                std::thread::spawn(move || {
                    forward(reply_from, reply_to, &reply_link, &[LinkMode::DropReplies, LinkMode::DropAll], change)
                });
            }
        });
        Self { port: own, mode, sockets }
    }

    /// Changes the mode. When the link opens again, connections that may have lost bytes are closed.
    pub fn set(&self, mode: LinkMode) {
        let before = self.mode.swap(mode as u8, Ordering::SeqCst);
        if mode == LinkMode::Open && [LinkMode::DropReplies as u8, LinkMode::DropAll as u8].contains(&before) {
            for socket in self.sockets.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
                // It may be closed already.
                let _ = socket.shutdown(Shutdown::Both);
            }
        }
    }
}

/// Forwards bytes in one direction. A delay holds both directions.
fn forward(
    mut from: TcpStream,
    mut to: TcpStream,
    link: &AtomicU8,
    dropped_in: &[LinkMode],
    change: impl Fn(&mut [u8]),
) {
    let mut bytes = [0; 16 << 10];
    while let Ok(got @ 1..) = from.read(&mut bytes) {
        while link.load(Ordering::SeqCst) == LinkMode::Delay as u8 {
            std::thread::sleep(Duration::from_millis(5));
        }
        change(&mut bytes[..got]);
        let mode = link.load(Ordering::SeqCst);
        let dropped = dropped_in.iter().any(|dropping| *dropping as u8 == mode);
        if !dropped && to.write_all(&bytes[..got]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
