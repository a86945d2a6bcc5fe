//! The command line with a JetStream target: a fence for each subject, and a list of marks for the stream.

use leasehold_fence::nats::Fence;

use crate::nats_server::NatsServer;
use crate::remote_targets::check_target;
use crate::support::Server;
use crate::{RESOURCE, fence_id};

#[tokio::test(flavor = "multi_thread")]
async fn a_jetstream_target_is_armed_probed_lost_rearmed_and_listed_by_its_address() {
    let (server, store) = (Server::start(), NatsServer::start().await);
    let (jetstream, stream) = (store.jetstream().await, store.stream_name());
    let (whole, subject) = (format!("nats://{}/{stream}", store.at()), "writes.settled");
    let log = Fence::open(&jetstream, &stream, subject, &fence_id(&server)).await.expect("it is there");
    let claim = async |token: &str| log.claim(token).await;
    let url = format!("{whole}/{subject}");
    let remove = async || {
        assert_eq!(server.json(&["fence", "marks", &whole]), server.json(&["fence", "marks", &url]));
        let unnamed = server.run(&["fence", "lost", &whole]);
        assert!(unnamed.exit != 0 && unnamed.err.contains("STREAM/SUBJECT"), "{unnamed:?}");
        store.stream().await.purge().await.expect("it can be purged");
    };
    check_target(&server, &url, claim, remove).await;
    // Its mark was purged with the stream.
    server.run(&["fence", "lost", &url, "--resource", RESOURCE]).fails(1, "leasehold: NOT_FOUND");
    let unnamed = server.run(&["fence", "rearm", &whole, "--resource", RESOURCE]);
    assert!(unnamed.exit != 0 && unnamed.err.contains("STREAM/SUBJECT"), "{unnamed:?}");
    server.run(&["fence", "rearm", &url, "--resource", RESOURCE]).ok();
    assert_eq!(server.json(&["fence", "marks", &url])[0]["state"], "armed");
    let nowhere = server.run(&["fence", "marks", &format!("nats://{}", store.at())]);
    assert!(nowhere.exit != 0 && nowhere.err.contains("has no stream"), "{nowhere:?}");
}
