//! The same in JetStream, where a subject has the fence and its stream tells the marks.

use leasehold_core::name::Name;
use leasehold_fence::nats::Log;

use crate::nats_server::Nats;
use crate::reached::is_tended;
use crate::support::Server;
use crate::{RESOURCE, cluster};

#[tokio::test(flavor = "multi_thread")]
async fn a_subject_of_jetstream_is_armed_proven_lost_re_armed_and_surveyed_by_its_address() {
    let (server, store) = (Server::start(), Nats::start().await);
    let (jetstream, stream) = (store.jetstream().await, store.stream_name());
    let (whole, subject) = (format!("nats://{}/{stream}", store.at()), "ghost.settled");
    let name = Name::parse(RESOURCE).expect("a name");
    let log = Log::open(&jetstream, &stream, subject, cluster(&server), name, 0).await.expect("it is there");
    let claim = async |token: &str| log.claim(token).await;
    let url = format!("{whole}/{subject}");
    let remove = async || {
        assert_eq!(server.json(&["fence", "marks", &whole]), server.json(&["fence", "marks", &url]));
        let unnamed = server.run(&["fence", "lost", &whole]);
        assert!(unnamed.exit != 0 && unnamed.err.contains("STREAM/SUBJECT"), "{unnamed:?}");
        store.stream().await.purge().await.expect("it can be purged");
    };
    is_tended(&server, &url, claim, remove).await;
    let nowhere = server.run(&["fence", "marks", &format!("nats://{}", store.at())]);
    assert!(nowhere.exit != 0 && nowhere.err.contains("names no stream"), "{nowhere:?}");
}
