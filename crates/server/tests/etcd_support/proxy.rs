//! A way to etcd that can be cut, muted or held up, as networks do.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What becomes of bytes on their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Way {
    /// They arrive.
    Open = 0,
    /// What is asked arrives, and the answers are lost.
    Mute = 1,
    /// Everything waits here until the way is open again, and arrives then.
    Held = 2,
    /// Everything is lost, both ways, and nobody is told.
    Hole = 3,
}

/// A port that leads to another.
pub struct Proxy {
    pub port: u16,
    way: Arc<AtomicU8>,
    /// Both ends of every connection: what lost bytes can only be broken when the way is open again.
    ends: Arc<Mutex<Vec<TcpStream>>>,
}

impl Proxy {
    pub fn to(port: u16) -> Self {
        Self::telling(port, |_| {})
    }

    /// One that changes the answers in place.
    pub fn telling(port: u16, change: impl Fn(&mut [u8]) + Clone + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let own = listener.local_addr().expect("an address").port();
        let (way, ends) = (Arc::new(AtomicU8::new(Way::Open as u8)), Arc::new(Mutex::new(Vec::new())));
        let (taken, kept) = (way.clone(), ends.clone());
        std::thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let Ok(far) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                let (asks, answers) = (taken.clone(), taken.clone());
                let both = || (near.try_clone().expect("a handle"), far.try_clone().expect("a handle"));
                let ((from, to), (back_to, back_from), (one, other)) = (both(), both(), both());
                let change = change.clone();
                kept.lock().unwrap_or_else(PoisonError::into_inner).extend([one, other]);
                std::thread::spawn(move || carry(from, to, &asks, &[Way::Hole], |_| {}));
                std::thread::spawn(move || carry(back_from, back_to, &answers, &[Way::Mute, Way::Hole], change));
            }
        });
        Self { port: own, way, ends }
    }

    /// From now on bytes fare so. A stream that lost some is worth nothing: it is broken when the way is open again.
    pub fn set(&self, way: Way) {
        let before = self.way.swap(way as u8, Ordering::SeqCst);
        if way == Way::Open && [Way::Mute as u8, Way::Hole as u8].contains(&before) {
            for end in self.ends.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
                // One that is closed already is fine.
                let _ = end.shutdown(Shutdown::Both);
            }
        }
    }
}

/// Carries bytes one way. Where requests are held, everything waits, both ways: the connection stands still.
fn carry(mut from: TcpStream, mut to: TcpStream, way: &AtomicU8, lost_by: &[Way], change: impl Fn(&mut [u8])) {
    let mut bytes = [0; 16 << 10];
    while let Ok(got @ 1..) = from.read(&mut bytes) {
        while way.load(Ordering::SeqCst) == Way::Held as u8 {
            std::thread::sleep(Duration::from_millis(5));
        }
        change(&mut bytes[..got]);
        let now = way.load(Ordering::SeqCst);
        let lost = lost_by.iter().any(|way| *way as u8 == now);
        if !lost && to.write_all(&bytes[..got]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
