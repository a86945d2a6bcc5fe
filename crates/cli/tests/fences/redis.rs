//! The command line with a Redis target.

use leasehold_fence::redis::Fence;
use leasehold_testkit::ports::unused_address;

use crate::fence_id;
use crate::redis_server::Redis;
use crate::remote_targets::check_target;
use crate::support::Server;

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_target_is_armed_probed_lost_rearmed_and_listed_by_its_address() {
    let (server, at) = (Server::start(), unused_address());
    // Leaked for the rest of the test.
    let settings: Vec<&'static str> =
        ["--bind", &at.ip().to_string(), "--port", &at.port().to_string()].map(|word| &*word.to_owned().leak()).into();
    let store = Redis::start(settings.leak()).await;
    let db = store.connect().await;
    let uninstall = async || {
        let mut delete = redis::cmd("FUNCTION");
        delete.arg("DELETE").arg("leasehold").query_async::<()>(&mut db.clone()).await.expect("it is installed");
    };
    uninstall().await;
    let fence = Fence::new(&fence_id(&server));
    let claim = async |token: &str| fence.claim(&mut db.clone(), token).await;
    check_target(&server, &format!("redis://{at}"), claim, uninstall).await;
}
