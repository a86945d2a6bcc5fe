//! Notifications to the service manager (`sd_notify`), without libsystemd.

use std::env;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::time::MissedTickBehavior;

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

/// Notifies the watchdog of the service manager, if it has one, while the runtime executes tasks. A process that stops doing so
/// is ended and started again. A journal that waits, for space or for etcd, does not concern the watchdog: a restart would not
/// help.
pub fn start_watchdog() {
    if let Some(interval) = watchdog_interval(env::var("WATCHDOG_USEC").ok(), env::var("WATCHDOG_PID").ok()) {
        tokio::spawn(async move {
            let mut tick = tokio::time::interval(interval);
            tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                tick.tick().await;
                notify("WATCHDOG=1");
            }
        });
    }
}

/// Half of the limit in `usec`, if it applies to this process.
fn watchdog_interval(usec: Option<String>, pid: Option<String>) -> Option<Duration> {
    let limit: u64 = usec?.parse().ok().filter(|limit| *limit > 0)?;
    let is_own = pid.is_none_or(|pid| pid == std::process::id().to_string());
    is_own.then(|| Duration::from_micros(limit.div_ceil(2)))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watchdog_is_notified_twice_per_limit_and_only_for_the_own_process() {
        let interval =
            |usec: &str, pid: Option<u32>| watchdog_interval(Some(usec.to_owned()), pid.map(|pid| pid.to_string()));
        let own = std::process::id();
        assert_eq!(interval("30000000", None), Some(Duration::from_secs(15)));
        assert_eq!(interval("30000000", Some(own)), Some(Duration::from_secs(15)));
        assert_eq!(interval("30000000", Some(own + 1)), None, "the watchdog of another process");
        assert_eq!((interval("0", None), interval("", None), interval("30s", None)), (None, None, None));
        assert_eq!(watchdog_interval(None, None), None);
    }
}
