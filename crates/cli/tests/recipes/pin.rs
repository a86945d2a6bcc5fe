//! The pin recipe: pins and the collection floor survive a server crash.

use leasehold::Code;
use leasehold_testkit::tcp_proxy::TcpProxy;

use crate::client_at;
use crate::support::Server;

#[tokio::test]
async fn pins_and_the_floor_survive_a_server_crash() {
    let server = Server::start();
    let proxy = TcpProxy::start(&server.address);
    let address = proxy.address().to_string();
    let (reader, collector) = (client_at(&address, "reader"), client_at(&address, "collector"));
    let pinned = reader.pin("log").acquire(40).await.expect("nothing was collected");
    assert_eq!(collector.collect("log", 30).await.expect("the call succeeds"), 30);
    let server = server.crash_and_restart();
    proxy.set_upstream(&server.address);
    assert_eq!(collector.collect("log", 100).await.expect("the call succeeds"), 40);
    let gone = reader.pin("log").acquire(29).await.expect_err("the position may have been deleted");
    assert_eq!(gone.code(), Some(Code::Conflict));
    pinned.release().await.expect("the lease is held");
    assert_eq!(collector.collect("log", 100).await.expect("the call succeeds"), 100);
}
