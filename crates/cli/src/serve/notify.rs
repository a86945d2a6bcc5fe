//! Tells the service manager that started this process how far it is, if one did: `sd_notify` without the library.

use std::env;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;

use rustix::time::{ClockId, clock_gettime};

/// It serves.
pub fn ready(status: &str) {
    tell(&format!("READY=1\nSTATUS={status}"));
}

/// It reads its settings again. [`ready`] follows.
pub fn reloading() {
    let now = clock_gettime(ClockId::Monotonic);
    tell(&format!("RELOADING=1\nMONOTONIC_USEC={}", now.tv_sec * 1_000_000 + now.tv_nsec / 1_000));
}

/// It was asked to stop.
pub fn stopping() {
    tell("STOPPING=1");
}

/// Service does not depend on being heard: a manager that is gone is logged and forgotten.
fn tell(state: &str) {
    if let Err(error) = send(state) {
        tracing::warn!("the service manager was not told: {error}");
    }
}

fn send(state: &str) -> io::Result<()> {
    let Some(name) = env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
        return Ok(());
    };
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(Path::new(&name))?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
}
