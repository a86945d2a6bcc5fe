//! A deposed server answers no query, even before it knows: a target re-armed from an old counter would admit a zombie (E1, F7).

use leasehold_server::driver::StopReason;
use leasehold_server::journal::memory::Memory;
use leasehold_server::server::{ServerConfig, start};
use leasehold_wire::v1;

use crate::transports::{acquire, connect, with_timeout};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deposed_server_does_not_report_its_counter() {
    let journal = Memory::default();
    let config = || ServerConfig { listen: ([127, 0, 0, 1], 0).into(), ..ServerConfig::default() };
    let old = start(journal.clone(), config()).await.expect("a server starts on a free port");
    let mut deposed = connect(old.address).await;
    deposed.acquire(acquire("before", "w")).await.expect("the resource is free");
    let before = deposed.status(v1::StatusRequest {}).await.expect("the leader responds").into_inner();
    let new = start(journal, config()).await.expect("another server takes over the journal");
    let mut leader = connect(new.address).await;
    let grant = leader.acquire(acquire("after", "w")).await.expect("the resource is free").into_inner();
    let late = with_timeout(deposed.status(v1::StatusRequest {})).await;
    assert!(late.is_err(), "the deposed server reported an old counter: {late:?}");
    let after = leader.status(v1::StatusRequest {}).await.expect("the leader responds").into_inner();
    assert!(after.counter >= grant.token_number && grant.token_number > before.counter, "{after:?}");
    assert_eq!(with_timeout(old.stop()).await, StopReason::Fenced);
    new.stop().await;
}
