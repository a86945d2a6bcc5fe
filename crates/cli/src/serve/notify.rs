//! Notifications to the service manager (`sd_notify`), without libsystemd.

use std::env;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;

use rustix::time::{ClockId, clock_gettime};

/// The server is ready.
pub fn ready(status: &str) {
    notify(&format!("READY=1\nSTATUS={status}"));
}

/// The server reloads its settings. [`ready`] follows.
pub fn reloading() {
    let now = clock_gettime(ClockId::Monotonic);
    notify(&format!("RELOADING=1\nMONOTONIC_USEC={}", now.tv_sec * 1_000_000 + now.tv_nsec / 1_000));
}

/// The server shuts down.
pub fn stopping() {
    notify("STOPPING=1");
}

/// Sends a notification. A failure is only logged: the server does not depend on its service manager.
fn notify(state: &str) {
    if let Err(error) = send(state) {
        tracing::warn!("cannot notify the service manager: {error}");
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
