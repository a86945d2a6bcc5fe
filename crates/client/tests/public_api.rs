//! The public API is complete: everything that programs name comes from `leasehold`, never from `leasehold-core`.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use leasehold::admin::{Charter, HandoffTerms, Revoke};
use leasehold::blocking;
use leasehold::types::{
    Acquire, AcquireOptions, Cluster, EndReason, Handoff, Instant, LeaseId, LeaseSelector, Number, SessionId,
};
use leasehold::{
    AuditFilter, Client, ClientBuilder, ClockDrift, Code, Error, FencingToken, HandoffMode, HandoffOptions, HeldLease,
    LeaseHandle, MetricsHook,
};

struct NoMetrics;

impl MetricsHook for NoMetrics {}

fn builder() -> Result<ClientBuilder, Error> {
    let builder = Client::builder("lease-1:7421,lease-2:7421")?;
    Ok(builder
        .holder("settlement-7")
        .session_ttl(Duration::from_secs(10))
        .connect_timeout(Duration::from_secs(1))
        .request_timeout(Duration::from_secs(5))
        .rejoin_timeout(Duration::from_secs(60))
        .clock_drift(ClockDrift::default())
        .metrics(Arc::new(NoMetrics)))
}

#[test]
fn clients_are_built_without_connecting() {
    let client = builder().expect("the endpoints are valid").build();
    assert_eq!((client.last_position(), client.highest_token()), (None, None));
    let blocking = blocking::Client::builder("lease-1:7421").expect("the endpoint is valid");
    blocking.holder("settlement-7").session_ttl(Duration::from_secs(10)).build().close().expect("nothing is open");
    let error = Client::new("lease-1").expect_err("an endpoint needs a port");
    assert_eq!(error.code(), Some(Code::Config));
}

/// Unary calls and administration. Only compiled: they need a server.
async fn administer(client: &Client) -> Result<(), Error> {
    let options = AcquireOptions { wait_ms: 1_000, ..AcquireOptions::DEFAULT };
    let granted = client.acquire(&Acquire { options, ..Acquire::exclusive("jobs/settle", "worker-1", 10_000) }).await?;
    let held = HeldLease::new("jobs/settle", granted.token()).holder("worker-1");
    client.renew(&held, None, None).await?;
    let selector = LeaseSelector::Resource("jobs/settle");
    let handoff = Handoff { selector, number: None, to: None, mode: Some(HandoffMode::Gap), drain_ms: None };
    client.handoff(&handoff, Some(granted.token())).await?;
    client.revoke(&Revoke { selector, reason: EndReason::Operator, comment: "test", grace_ms: 0 }).await?;
    client.set_charter("jobs", &Charter::default(), "test").await?;
    let _terms: Option<HandoffTerms> = None;
    let cluster: Cluster = client.cluster_id().await?;
    client.report_fences(cluster, &[]).await?;
    let mut resources = client.list("jobs");
    while let Some(page) = resources.next().await {
        drop(page?);
    }
    let mut audit = client.audit(AuditFilter::new().resource("jobs/settle").oldest_first());
    while let Some(page) = audit.next().await {
        drop(page?);
    }
    let mut watch = client.watch("jobs").await?;
    watch.next().await.transpose()?;
    let session: Option<SessionId> = client.session().borrow().as_ref().map(|resume| resume.session);
    client.close_session(session.unwrap_or(client.open_session("worker-1", 10_000).await?.id())).await
}

/// Calls under a lease. Only compiled: they need a server.
async fn work(handle: &LeaseHandle) -> Result<(), Error> {
    let (_id, _token, _number): (LeaseId, FencingToken, Number) =
        (handle.lease_id(), handle.token(), handle.token_number());
    let _draining: Option<Instant> = handle.draining();
    handle.handoff(HandoffOptions::new().mode(HandoffMode::Overlap).drain(Duration::from_secs(5))).await?;
    let _claim = handle.wait_claimable().await?;
    Ok(())
}

#[test]
fn calls_that_need_a_server_are_futures_of_one_thread_or_many() {
    fn assert_send<T: Send>(_future: &T) {}
    let client = builder().expect("the endpoints are valid").build();
    assert_send(&administer(&client));
    let _work: fn(&'static LeaseHandle) -> _ = |handle| assert_send(&work(handle));
}

#[cfg(feature = "testing")]
mod test_kit {
    use super::*;
    use leasehold::blocking::block_on;
    use leasehold::testing::TestServer;
    use leasehold::{GuardState, Loss};

    #[test]
    fn the_test_server_is_operated_with_types_of_this_crate() {
        let server = TestServer::new();
        let client = server.client("worker-1");
        let charter = Charter { ttl_max_ms: Some(20_000), ..Charter::default() };
        server.set_charter("jobs", charter).expect("the charter is valid");
        let guard = block_on(client.lock("jobs/settle").ttl(Duration::from_secs(10)).acquire()).expect("it is free");
        assert_eq!(server.show("jobs/settle").map(|view| view.leases.len()), Some(1));
        server.revoke("jobs/settle").expect("it is held");
        assert_eq!(guard.state(), GuardState::Lost(Loss::Ended(EndReason::Operator)));
        let granted = block_on(client.acquire(&Acquire::exclusive("jobs/pay", "worker-1", 10_000)));
        let token = granted.expect("it is free").token();
        assert_eq!(token.parsed().cluster, block_on(client.cluster_id()).expect("the server answers"));
        block_on(client.release(&HeldLease::new("jobs/pay", token))).expect("it is held");
    }

    #[cfg(feature = "report")]
    #[test]
    fn a_reporter_is_made_with_types_of_this_crate() {
        use leasehold::report::{FenceMode, Reporter};

        let server = TestServer::new();
        let client = server.client("worker-1");
        let reporter = Reporter::new(&client, server.cluster_id()).expect("the worker starts");
        reporter.target("ledger", FenceMode::Forced).expect("the name is valid");
        assert_eq!(reporter.missed(), 0);
    }
}
