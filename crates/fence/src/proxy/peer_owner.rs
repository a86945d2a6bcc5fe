//! The user at the other end of a loopback connection, from the kernel's table of sockets.

use std::net::{IpAddr, SocketAddr};

/// Whether a process of this user opened the connection from `peer` to `local`, both IPv4 addresses of this machine.
pub(super) fn is_own_user(peer: SocketAddr, local: SocketAddr) -> bool {
    let own = rustix::process::geteuid().as_raw();
    std::fs::read_to_string("/proc/net/tcp").is_ok_and(|table| owner(&table, peer, local) == Some(own))
}

/// The user id of the socket whose own address is `peer` and whose remote address is `local`.
fn owner(table: &str, peer: SocketAddr, local: SocketAddr) -> Option<u32> {
    let (peer, local) = (kernel_text(peer)?, kernel_text(local)?);
    table.lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let is_it = fields.next() == Some(peer.as_str()) && fields.next() == Some(local.as_str());
        // State, queues, timer and retransmissions come in between.
        is_it.then(|| fields.nth(4)?.parse().ok()).flatten()
    })
}

/// An IPv4 address as the table spells it: the bytes of the address in the order of this machine, in hexadecimal digits.
fn kernel_text(address: SocketAddr) -> Option<String> {
    match address.ip() {
        IpAddr::V4(ip) => Some(format!("{:08X}:{:04X}", u32::from_ne_bytes(ip.octets()), address.port())),
        IpAddr::V6(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_connection_of_this_process_is_one_of_this_user() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let local = listener.local_addr().expect("an address");
        let client = TcpStream::connect(local).expect("connected");
        let peer = client.local_addr().expect("an address");
        assert!(is_own_user(peer, local));
        assert!(!is_own_user(SocketAddr::from(([127, 0, 0, 1], 1)), local));
    }

    #[test]
    fn the_owner_is_read_from_the_row_of_both_addresses() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
                     0: 0100007F:1F90 0100007F:9C40 01 00000000:00000000 00:00000000 00000000  1000        0 1 1\n   \
                     1: 0100007F:9C40 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1001        0 2 1\n";
        let [peer, local] = [40_000, 8_080].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        assert_eq!((owner(table, peer, local), owner(table, local, peer)), (Some(1_001), Some(1_000)));
        assert_eq!(owner(table, peer, peer), None);
        assert_eq!(owner("garbage", peer, local), None);
    }
}
