//! A server that was deposed and does not know it yet tells nobody what it sees: a target that is armed again from an old
//! counter lets a zombie in (E1, F7).

use leasehold_server::driver::StopReason;
use leasehold_server::journal::memory::Memory;
use leasehold_server::server::{ServerConfig, start};
use leasehold_wire::v1;

use crate::transports::{acquire, connect, within};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_counter_of_a_server_that_was_deposed_is_told_to_nobody() {
    let journal = Memory::default();
    let settings = || ServerConfig { listen: ([127, 0, 0, 1], 0).into(), ..ServerConfig::default() };
    let old = start(journal.clone(), settings()).await.expect("a server on a free port starts");
    let mut asked = connect(old.address).await;
    asked.acquire(acquire("before", "w")).await.expect("it is free");
    let told = asked.status(v1::StatusRequest {}).await.expect("it leads").into_inner();
    let new = start(journal, settings()).await.expect("another takes the journal");
    let mut leader = connect(new.address).await;
    let grant = leader.acquire(acquire("after", "w")).await.expect("it is free").into_inner();
    let late = within(asked.status(v1::StatusRequest {})).await;
    assert!(late.is_err(), "it told an old counter: {late:?}");
    let now = leader.status(v1::StatusRequest {}).await.expect("it leads").into_inner();
    assert!(now.counter >= grant.token_number && grant.token_number > told.counter, "{now:?}");
    assert_eq!(within(old.stop()).await, StopReason::Fenced);
    new.stop().await;
}
