//! Journals in a real etcd cluster of a test, and its users.

#![allow(dead_code, reason = "each test file uses its own part")]

use leasehold_server::journal::etcd::{EtcdEndpoints, EtcdLocation};
use leasehold_testkit::etcd::EtcdCluster;

/// The client endpoints, without TLS or login.
pub fn endpoints(etcd: &EtcdCluster) -> EtcdEndpoints {
    EtcdEndpoints { endpoints: etcd.endpoints(), ..EtcdEndpoints::default() }
}

/// A journal under a prefix, for a server with its own data directory. The leader lease outlives any pause of this machine.
pub fn etcd_location(etcd: &EtcdCluster, prefix: &str, server: &str) -> EtcdLocation {
    let data = etcd.dir().join(server);
    let location =
        EtcdLocation::new(endpoints(etcd), prefix, "127.0.0.1:7421", &data).expect("the data directory is usable");
    location.with_lease(600)
}
