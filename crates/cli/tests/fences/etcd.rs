//! The command line with an etcd target, under a key prefix.

use leasehold_fence::etcd::Fence;

use crate::etcd_server::EtcdServer;
use crate::fence_id;
use crate::remote_targets::check_target;
use crate::support::Server;

#[tokio::test(flavor = "multi_thread")]
async fn an_etcd_target_is_armed_probed_lost_rearmed_and_listed_by_its_address() {
    let (server, store) = (Server::start(), EtcdServer::start().await);
    let at = store.at().replace("http://", "");
    // The first member is unreachable, so the next one is used.
    let url = format!("etcd://{},{at}/app/marks/", leasehold_testkit::ports::unused_address());
    let fence = Fence::new(store.channel(), &fence_id(&server));
    let fence = fence.with_prefix("app/marks/");
    let claim = async |token: &str| fence.claim(token).await;
    let remove = async || {
        store.ctl(&["del", "app/marks/", "--prefix"]).await;
    };
    check_target(&server, &url, claim, remove).await;
    let user = server.run(&["fence", "marks", &format!("etcd://root:hunter2@{at}")]);
    assert!(user.exit != 0 && user.err.contains("without a user") && !user.err.contains("hunter2"), "{user:?}");
}
