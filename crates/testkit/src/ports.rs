//! Addresses for servers that a test starts, and restarts at the same address.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};

/// Returns a loopback address that only this process uses, each time another. Its port is below the ephemeral ports, so that it
/// stays free while a server restarts.
pub fn unused_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(20_000);
    let [_, a, b, c] = std::process::id().to_be_bytes();
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 64 | (a & 63), b, c)), NEXT.fetch_add(1, Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_call_returns_another_address_on_which_a_server_can_listen() {
        let (first, second) = (unused_address(), unused_address());
        assert_ne!(first, second);
        for address in [first, second] {
            std::net::TcpListener::bind(address).expect("the address is free");
        }
    }
}
