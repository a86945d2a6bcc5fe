//! The same in etcd, below a prefix of the application's own.

use leasehold_core::name::Name;
use leasehold_fence::etcd::Fence;

use crate::etcd_server::Etcd;
use crate::reached::is_tended;
use crate::support::Server;
use crate::{RESOURCE, cluster};

#[tokio::test(flavor = "multi_thread")]
async fn etcd_is_armed_proven_lost_re_armed_and_surveyed_by_its_address() {
    let (server, store) = (Server::start(), Etcd::start().await);
    let at = store.at().replace("http://", "");
    // A member that nobody is at comes first: the next one is asked.
    let url = format!("etcd://{},{at}/app/marks/", crate::daemon::address());
    let fence = Fence::new(store.channel(), cluster(&server), Name::parse(RESOURCE).expect("a name"), 0);
    let fence = fence.under("app/marks/");
    let claim = async |token: &str| fence.claim(token).await;
    let remove = async || {
        store.ctl(&["del", "app/marks/", "--prefix"]).await;
    };
    is_tended(&server, &url, claim, remove).await;
    let user = server.run(&["fence", "marks", &format!("etcd://root:hunter2@{at}")]);
    assert!(user.exit != 0 && user.err.contains("without a user") && !user.err.contains("hunter2"), "{user:?}");
}
