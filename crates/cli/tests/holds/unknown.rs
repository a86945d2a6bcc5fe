//! What may have happened is neither success nor failure, and can be found out.

use std::time::Duration;

use leasehold::{Failure, Options};

use crate::servers::Server;
use crate::way::Way;
use crate::{client_at, crowd, until};

fn impatient(way: &Way) -> leasehold::Client {
    let request = Duration::from_millis(500);
    client_at(&way.address, Options { holder: Some("w1".into()), request, ..Options::default() })
}

#[tokio::test]
async fn a_write_whose_answer_was_lost_is_resolved_and_has_happened_once() {
    let server = Server::start();
    let way = Way::to(&server.address).await;
    let client = impatient(&way);
    let guard = client.lock("a").acquire().await.expect("it is free");
    assert_eq!(guard.put("at", b"1").await.expect("it is current"), 1);
    way.deafen(true);
    let Err(Failure::Unknown(open)) = guard.put("at", b"2").await else { panic!("nobody heard the answer") };
    assert!(open.request_id().contains(':'), "{open:?}");
    assert!(way.swallowed() > 0);
    way.deafen(false);
    let mut outcome = open.resolve().await;
    // On a busy machine the way back may take longer than this client is patient.
    while let Err(Failure::Unknown(open)) = outcome {
        outcome = open.resolve().await;
    }
    assert_eq!(outcome.expect("it had happened"), 2);
    guard.store("at", Some(b"3"), Some(2)).await.map_err(Failure::into_error).expect("once");
}

#[tokio::test]
async fn a_grant_whose_answer_was_lost_is_resolved_to_a_guard() {
    let server = Server::start();
    let way = Way::to(&server.address).await;
    let client = impatient(&way);
    let looking = crate::client(&server, "looks");
    let first = client.lock("b").acquire().await.expect("it is free");
    way.deafen(true);
    let Err(Failure::Unknown(open)) = client.lock("a").acquire().await else { panic!("nobody heard the answer") };
    until(async || crowd(&looking, "a").await.0 == 1).await;
    way.deafen(false);
    let mut outcome = open.resolve().await;
    while let Err(Failure::Unknown(open)) = outcome {
        outcome = open.resolve().await;
    }
    let guard = outcome.expect("it was granted");
    assert!(guard.token_number() > first.token_number());
    assert_eq!(crowd(&looking, "a").await, (1, 0), "once");
    guard.release().await.expect("it is ours");
}

#[tokio::test]
async fn a_grant_whose_answer_was_lost_and_that_nobody_resolves_is_given_back() {
    let server = Server::start();
    let way = Way::to(&server.address).await;
    let client = impatient(&way);
    let looking = crate::client(&server, "looks");
    let _other = client.lock("b").acquire().await.expect("it is free");
    way.deafen(true);
    let Err(Failure::Unknown(open)) = client.lock("a").acquire().await else { panic!("nobody heard") };
    until(async || crowd(&looking, "a").await.0 == 1).await;
    drop(open);
    way.deafen(false);
    until(async || crowd(&looking, "a").await == (0, 0)).await;
}
