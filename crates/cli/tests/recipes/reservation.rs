//! The reservation recipe: no unit is sold twice, and expired reservations cannot be confirmed.

use std::time::Duration;

use leasehold::Code;
use leasehold::recipes::reservation::ReservationStatus;
use leasehold_testkit::tcp_proxy::TcpProxy;

use crate::support::Server;
use crate::{client, client_at, until, within_timeout};

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn concurrent_buyers_cannot_exceed_the_capacity() {
    let server = Server::start();
    let observer = client(&server, "observer");
    observer.set_capacity("hall/1", 7).await.expect("the capacity is valid");
    let all = (0..20).map(|at| {
        let buyer = client(&server, &format!("buyer-{at}"));
        async move {
            let held = buyer.reserve("hall/1", 1 + at % 2).ttl(MINUTE).acquire().await?;
            if at % 3 == 0 { held.cancel().await.map(|()| 0) } else { held.confirm().await.map(|()| 1 + at % 2) }
        }
    });
    let ended = within_timeout(futures::future::join_all(all)).await;
    let full = [Some(Code::Busy), Some(Code::ResourceExhausted)];
    assert!(ended.iter().flat_map(|ended| ended.as_ref().err()).all(|error| full.contains(&error.code())), "{ended:?}");
    let sold: u32 = ended.iter().flatten().sum();
    let hall = observer.show("hall/1").await.expect("the resource exists");
    assert_eq!(
        (u64::from(sold), hall.used),
        (hall.confirmed, 0),
        "confirmed units match the replies, and no unit leaks"
    );
    assert!(sold <= 7);
}

#[tokio::test]
async fn an_expired_reservation_cannot_be_confirmed_by_another_process() {
    let server = Server::start();
    let proxy = TcpProxy::start(&server.address);
    let address = proxy.address().to_string();
    let (ann, bob) = (client_at(&address, "ann"), client_at(&address, "bob"));
    bob.set_capacity("hall/1", 2).await.expect("the capacity is valid");
    let short = ann.reserve("hall/1", 2).ttl(Duration::from_millis(200)).acquire().await.expect("two units are free");
    let taken = bob.reservation("hall/1", &short.token()).expect("a valid token");
    until(async || bob.show("hall/1").await.is_ok_and(|hall| hall.used == 0)).await;
    let error = taken.confirm().await.expect_err("the reservation expired");
    assert_eq!(error.end_reason().map(|reason| reason.word()), Some("ttl"));
    // An open reservation survives a server crash and the process that placed it.
    let long = ann.reserve("hall/1", 2).ttl(MINUTE).acquire().await.expect("the units are free again");
    let token = long.token();
    ann.close().await.expect("the session closes");
    let server = server.crash_and_restart();
    proxy.set_upstream(&server.address);
    let taken = bob.reservation("hall/1", &token).expect("a valid token");
    assert!(matches!(taken.status().await, Ok(ReservationStatus::Open(_))));
    taken.resize(1).await.expect("the reservation is open");
    assert!(taken.veto(MINUTE).await.expect("the reservation is open") > Duration::ZERO);
    taken.confirm().await.expect("the reservation is open");
    assert_eq!(taken.status().await.expect("the server responds"), ReservationStatus::Settled);
    let hall = bob.show("hall/1").await.expect("the resource exists");
    assert_eq!((hall.used, hall.confirmed), (0, 1));
}
