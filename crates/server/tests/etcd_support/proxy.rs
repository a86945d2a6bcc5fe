//! A way to etcd that can be cut, muted or held up, as networks do.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// What becomes of bytes on their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Way {
    /// They arrive.
    Open = 0,
    /// What is asked arrives, and the answers are lost.
    Mute = 1,
    /// What is asked waits here until the way is open again.
    Held = 2,
}

/// A port that leads to another.
pub struct Proxy {
    pub port: u16,
    way: Arc<AtomicU8>,
}

impl Proxy {
    pub fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let own = listener.local_addr().expect("an address").port();
        let way = Arc::new(AtomicU8::new(Way::Open as u8));
        let taken = way.clone();
        std::thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let Ok(far) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                let (asks, answers) = (taken.clone(), taken.clone());
                let ends = || (near.try_clone().expect("a handle"), far.try_clone().expect("a handle"));
                let ((from, to), (back_to, back_from)) = (ends(), ends());
                std::thread::spawn(move || carry(from, to, &asks, Way::Held));
                std::thread::spawn(move || carry(back_from, back_to, &answers, Way::Mute));
            }
        });
        Self { port: own, way }
    }

    pub fn set(&self, way: Way) {
        self.way.store(way as u8, Ordering::SeqCst);
    }
}

/// Carries bytes one way. Where they are held, they wait; where they are muted, they are lost.
fn carry(mut from: TcpStream, mut to: TcpStream, way: &AtomicU8, stopped_by: Way) {
    let mut bytes = [0; 16 << 10];
    while let Ok(got) = from.read(&mut bytes) {
        if got == 0 {
            break;
        }
        while stopped_by == Way::Held && way.load(Ordering::SeqCst) == Way::Held as u8 {
            std::thread::sleep(Duration::from_millis(5));
        }
        let lost = stopped_by == Way::Mute && way.load(Ordering::SeqCst) == Way::Mute as u8;
        if !lost && to.write_all(&bytes[..got]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
