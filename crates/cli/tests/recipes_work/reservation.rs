//! Reservations over real connections: nothing is sold twice, and nothing that is over is sold.

use std::time::Duration;

use leasehold::Code;
use leasehold::recipes::reservation::Outcome;

use crate::support::Server;
use crate::way::Way;
use crate::{client, client_at, soon, until};

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn many_who_want_the_last_seats_get_no_more_than_there_are() {
    let server = Server::start();
    let looking = client(&server, "looking");
    looking.set_capacity("hall/1", 7).await.expect("it can be sized");
    let all = (0..20).map(|at| {
        let buyer = client(&server, &format!("buyer-{at}"));
        async move {
            let held = buyer.reserve("hall/1", 1 + at % 2).keep_for(MINUTE).hold().await?;
            if at % 3 == 0 { held.cancel().await.map(|()| 0) } else { held.confirm().await.map(|()| 1 + at % 2) }
        }
    });
    let ended = soon(futures::future::join_all(all)).await;
    let full = [Some(Code::Busy), Some(Code::ResourceExhausted)];
    assert!(ended.iter().flat_map(|ended| ended.as_ref().err()).all(|error| full.contains(&error.code())), "{ended:?}");
    let sold: u32 = ended.iter().flatten().sum();
    let hall = looking.show("hall/1").await.expect("it is there");
    assert_eq!((u64::from(sold), hall.used), (hall.confirmed, 0), "what was sold is what was told, and nothing leaks");
    assert!(sold <= 7);
}

#[tokio::test]
async fn an_expired_hold_is_not_confirmed_also_by_a_process_that_took_it_over() {
    let server = Server::start();
    let way = Way::to(&server.address).await;
    let (ann, desk) = (client_at(&way.address, "ann"), client_at(&way.address, "desk"));
    desk.set_capacity("hall/1", 2).await.expect("it can be sized");
    let short = ann.reserve("hall/1", 2).keep_for(Duration::from_millis(200)).hold().await.expect("there are two");
    let taken = desk.reservation("hall/1", &short.token()).expect("a token's text");
    until(async || desk.show("hall/1").await.is_ok_and(|hall| hall.used == 0)).await;
    let error = taken.confirm().await.expect_err("its time is over");
    assert_eq!(error.lost().map(|reason| reason.word()), Some("ttl"));
    // A hold that stands survives the server, and the process that placed it.
    let long = ann.reserve("hall/1", 2).keep_for(MINUTE).hold().await.expect("they came back");
    let token = long.token();
    ann.close().await.expect("nothing hangs on its session");
    let server = server.again();
    way.leads_to(&server.address);
    let taken = desk.reservation("hall/1", &token).expect("a token's text");
    assert!(matches!(taken.outcome().await, Ok(Outcome::Open(_))));
    taken.resize(1).await.expect("it stands");
    assert!(taken.veto(MINUTE).await.expect("it stands") > Duration::ZERO);
    taken.confirm().await.expect("it stands");
    assert_eq!(taken.outcome().await.expect("the server answers"), Outcome::Settled);
    let hall = desk.show("hall/1").await.expect("it is there");
    assert_eq!((hall.used, hall.confirmed), (0, 1));
}
