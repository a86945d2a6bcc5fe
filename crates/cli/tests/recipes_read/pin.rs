//! What a collector may delete is on record: a crash changes neither pins nor floor.

use leasehold::Code;

use crate::client_at;
use crate::support::Server;
use crate::way::Way;

#[tokio::test]
async fn pins_and_floor_survive_a_server_that_is_killed() {
    let server = Server::start();
    let way = Way::to(&server.address).await;
    let (reader, collector) = (client_at(&way.address, "reader"), client_at(&way.address, "collector"));
    let pinned = reader.pin("log").at(40).await.expect("nothing was collected");
    assert_eq!(collector.collect("log", 30).await.expect("anybody may ask"), 30);
    let server = server.again();
    way.leads_to(&server.address);
    assert_eq!(collector.collect("log", 100).await.expect("anybody may ask"), 40);
    let gone = reader.pin("log").at(29).await.expect_err("it may have been deleted");
    assert_eq!(gone.code(), Some(Code::Conflict));
    pinned.release().await.expect("it is held");
    assert_eq!(collector.collect("log", 100).await.expect("anybody may ask"), 100);
}
