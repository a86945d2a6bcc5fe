//! The command line with a JetStream target: a fence for each subject, and a list of marks for the stream.

use leasehold_core::name::Name;
use leasehold_fence::nats::Fence;

use crate::nats_server::NatsServer;
use crate::remote_targets::check_target;
use crate::support::Server;
use crate::{RESOURCE, cluster};

#[tokio::test(flavor = "multi_thread")]
async fn a_jetstream_target_is_armed_probed_lost_rearmed_and_listed_by_its_address() {
    let (server, store) = (Server::start(), NatsServer::start().await);
    let (jetstream, stream) = (store.jetstream().await, store.stream_name());
    let (whole, subject) = (format!("nats://{}/{stream}", store.at()), "writes.settled");
    let name = Name::parse(RESOURCE).expect("a name");
    let log = Fence::open(&jetstream, &stream, subject, cluster(&server), name, 0).await.expect("it is there");
    let claim = async |token: &str| log.claim(token).await;
    let url = format!("{whole}/{subject}");
    let remove = async || {
        assert_eq!(server.json(&["fence", "marks", &whole]), server.json(&["fence", "marks", &url]));
        let unnamed = server.run(&["fence", "lost", &whole]);
        assert!(unnamed.exit != 0 && unnamed.err.contains("STREAM/SUBJECT"), "{unnamed:?}");
        store.stream().await.purge().await.expect("it can be purged");
    };
    check_target(&server, &url, claim, remove).await;
    let nowhere = server.run(&["fence", "marks", &format!("nats://{}", store.at())]);
    assert!(nowhere.exit != 0 && nowhere.err.contains("has no stream"), "{nowhere:?}");
}
