//! Indeterminate outcomes: a lost reply is neither success nor failure, and can be resolved.

use std::time::Duration;

use leasehold::RequestError;
use leasehold_testkit::tcp_proxy::{Flow, TcpProxy};

use crate::servers::Server;
use crate::{builder, holders_and_waiters, until};

fn client_with_short_timeout(proxy: &TcpProxy) -> leasehold::Client {
    builder(&proxy.address().to_string()).holder("w1").request_timeout(Duration::from_millis(500)).build()
}

#[tokio::test]
async fn a_write_with_a_lost_reply_is_resolved_and_applied_once() {
    let server = Server::start();
    let proxy = TcpProxy::start(&server.address);
    let client = client_with_short_timeout(&proxy);
    let guard = client.lock("a").acquire().await.expect("the resource is free");
    assert_eq!(guard.put("at", b"1").await.expect("the lease is current"), 1);
    proxy.set_flow(Flow::Pass, Flow::Drop);
    let Err(RequestError::Indeterminate(open)) = guard.put("at", b"2").await else { panic!("the reply was not lost") };
    assert!(open.request_id().contains(':'), "{open:?}");
    assert!(proxy.dropped_bytes() > 0);
    proxy.set_both(Flow::Pass);
    let mut outcome = open.resolve().await;
    // On a busy machine the reply may take longer than the timeout of this client.
    while let Err(RequestError::Indeterminate(open)) = outcome {
        outcome = open.resolve().await;
    }
    assert_eq!(outcome.expect("the write was applied"), 2);
    guard.put_if("at", Some(b"3"), Some(2)).await.map_err(RequestError::into_error).expect("once");
}

#[tokio::test]
async fn a_grant_with_a_lost_reply_is_resolved_to_a_guard() {
    let server = Server::start();
    let proxy = TcpProxy::start(&server.address);
    let client = client_with_short_timeout(&proxy);
    let observer = crate::client(&server, "observer");
    let first = client.lock("b").acquire().await.expect("the resource is free");
    proxy.set_flow(Flow::Pass, Flow::Drop);
    let Err(RequestError::Indeterminate(open)) = client.lock("a").acquire().await else {
        panic!("the reply was not lost")
    };
    until(async || holders_and_waiters(&observer, "a").await.0 == 1).await;
    proxy.set_both(Flow::Pass);
    let mut outcome = open.resolve().await;
    while let Err(RequestError::Indeterminate(open)) = outcome {
        outcome = open.resolve().await;
    }
    let guard = outcome.expect("it was granted");
    assert!(guard.token_number() > first.token_number());
    assert_eq!(holders_and_waiters(&observer, "a").await, (1, 0), "once");
    guard.release().await.expect("the lease is held");
}

#[tokio::test]
async fn an_unresolved_grant_with_a_lost_reply_is_released() {
    let server = Server::start();
    let proxy = TcpProxy::start(&server.address);
    let client = client_with_short_timeout(&proxy);
    let observer = crate::client(&server, "observer");
    let _other = client.lock("b").acquire().await.expect("the resource is free");
    proxy.set_flow(Flow::Pass, Flow::Drop);
    let Err(RequestError::Indeterminate(open)) = client.lock("a").acquire().await else {
        panic!("the reply was not lost")
    };
    until(async || holders_and_waiters(&observer, "a").await.0 == 1).await;
    drop(open);
    proxy.set_both(Flow::Pass);
    until(async || holders_and_waiters(&observer, "a").await == (0, 0)).await;
}
