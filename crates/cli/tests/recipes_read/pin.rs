//! What a collector may delete is on record: a crash changes neither pins nor floor.

use leasehold::Code;

use crate::client;
use crate::support::Server;

#[tokio::test]
async fn pins_and_floor_survive_a_server_that_is_killed() {
    let server = Server::start();
    let (reader, collector) = (client(&server, "reader"), client(&server, "collector"));
    let pinned = reader.pin("log").at(40).await.expect("nothing was collected");
    assert_eq!(collector.collect("log", 30).await.expect("anybody may ask"), 30);
    let _server = server.again_there();
    assert_eq!(collector.collect("log", 100).await.expect("anybody may ask"), 40);
    let gone = reader.pin("log").at(29).await.expect_err("it may have been deleted");
    assert_eq!(gone.code(), Some(Code::Conflict));
    pinned.release().await.expect("it is held");
    assert_eq!(collector.collect("log", 100).await.expect("anybody may ask"), 100);
}
