//! The Rust blocks of `docs/how-to/recipes/` and `docs/how-to/test-your-code.md`, run against a server.
//! `crates/cli/tests/pages.rs` compares them with the pages.

use std::error::Error;
use std::time::{Duration, SystemTime};

use futures::TryStreamExt;
use leasehold::recipes::cache::Cache;
use leasehold::recipes::credential::{
    CredentialIssuer, CredentialRequest, CredentialVerifier, SigningKey, SigningKeys,
};
use leasehold::recipes::delivery::SendOptions;
use leasehold::recipes::shard::Shard;
use leasehold::testing::TestServer;
use leasehold::{Client, FencingToken, GuardState, LeaseHandle};

use crate::client;
use crate::support::Server;

type TestResult = Result<(), Box<dyn Error>>;

#[tokio::test]
async fn lock() -> TestResult {
    let server = Server::start();
    let client = client(&server, "page");
    assert!(lock_page(&client).await?);
    // The guards of the page are dropped, which releases their leases.
    crate::until(async || client.lock("jobs/settle").try_acquire().await.is_ok_and(|guard| guard.is_some())).await;
    Ok(())
}

async fn lock_page(client: &Client) -> Result<bool, Box<dyn Error>> {
    let settle = async |lease: LeaseHandle| lease.token().to_string();
    let transfer = async |leases: Vec<LeaseHandle>| leases.len();
    let minute = Duration::from_secs(60);
    client.lock("jobs/settle").wait(minute).run(&settle).await?;
    let reader = client.lock("books/1").shared().acquire().await?;
    let slot = client.lock("gpu/pool").slots(4).wait(minute).acquire().await?;
    client.lock("accounts/a").also("accounts/b").wait(minute).run_all(&transfer).await?;
    let Some(guard) = client.lock("jobs/settle").try_acquire().await? else { return Ok(false) };
    assert!(reader.token_number() < slot.token_number() && slot.token_number() < guard.token_number());
    Ok(true)
}

#[tokio::test]
async fn leader() -> TestResult {
    let server = Server::start();
    let client = client(&server, "page");
    let sigterm = || std::future::pending::<()>();
    let lead = async |lease: LeaseHandle| lease.token_number();
    let election = client.election("jobs/leader").ttl(Duration::from_secs(10)).metadata("10.0.0.7:443");
    election.lead(sigterm(), &lead).await?; // campaigns again after a loss, until the signal
    let other = client.election("jobs/leader").metadata("10.0.0.8:443").campaign().await?;
    let mut seen = None;
    let mut leaders = client.election("jobs/leader").observe().await?;
    while let Some(leader) = leaders.try_next().await? {
        println!("{leader:?}");
        seen = leader;
        if seen.is_some() {
            break;
        }
    }
    assert_eq!(seen.map(|leader| leader.metadata), Some("10.0.0.8:443".to_owned()));
    other.resign().await?;
    Ok(())
}

#[tokio::test]
async fn shard() -> TestResult {
    let server = Server::start();
    let client = client(&server, "page");
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let stop = std::sync::Mutex::new(Some(stop));
    let process = async |next: u64| {
        if next == 3 {
            stop.lock().expect("no holder of the lock panicked").take().map(|stop| stop.send(()));
        }
    };
    let process = &process;
    let sigterm = || async { drop(stopped.await) };
    let shards = client.shards("orders", 64).ttl(Duration::from_secs(10));
    let work = async |shard: Shard| {
        let found = shard.resume().await?; // the newest checkpoint, after the predecessor is done
        let mut next = found.map_or(0, |found| u64::from_be_bytes(found.bytes[..].try_into().unwrap_or_default()));
        while shard.draining().is_none() {
            process(next).await; // with shard.token() at every target
            next += 1;
            shard.checkpoint(&next.to_be_bytes()).await?;
        }
        Ok::<(), leasehold::Error>(())
    };
    shards.run(sigterm(), async |shard| work(shard).await.expect("the server responds")).await?;
    Ok(())
}

#[tokio::test]
async fn delivery() -> TestResult {
    let server = Server::start();
    let client = client(&server, "page");
    let pay = async |body: &[u8], _token: FencingToken| body == b"pay 5";
    let queue = client.queue("mail").visibility(Duration::from_secs(30));
    queue.send_with(b"pay 5", SendOptions::new().max_attempts(3)).await?;
    let message = queue.recv().await?;
    let done = message.run(pay(message.body(), message.token())).await?; // extended for as long as it takes
    if done {
        message.ack().await?;
    } else {
        message.nack(Duration::from_secs(5)).await?;
    }
    assert!(queue.receive(1).await?.is_empty(), "it was acknowledged");
    Ok(())
}

#[tokio::test]
async fn reservation() -> TestResult {
    let server = Server::start();
    let client = client(&server, "page");
    let held = client.reserve("hall/1", 1).ttl(Duration::from_secs(300)).acquire().await?;
    let token = held.token().to_string(); // store it with the order: any process can continue with it
    client.reservation("hall/1", &token)?.confirm().await?;
    Ok(())
}

#[tokio::test]
async fn discovery() -> TestResult {
    let server = Server::start();
    let client = client(&server, "page");
    let registration = client.service("services/billing", "i-7").details("10.0.0.7:443").register().await?;
    let mut billing = client.discover("services/billing").await?;
    assert_eq!(billing.instances().count(), 1);
    registration.deregister().await?;
    while let Some(change) = billing.try_next().await? {
        println!("{change:?}");
        if billing.instances().count() == 0 {
            break;
        }
    }
    Ok(())
}

#[tokio::test]
async fn cache() -> TestResult {
    let server = Server::start();
    let client = client(&server, "page");
    let load = async |name: &str| Ok::<_, leasehold::Error>(format!("page {name}"));
    let store = async |name: &str, page: &str, number: u64| format!("{name}: {page} under {number}");
    let cache: Cache<String> = client.cache().ttl(Duration::from_secs(30)).build()?;
    let page = cache.get("pages/home", || load("home")).await?;
    let wait = Duration::from_secs(60);
    let write = cache.write("pages/home", wait, |intent| store("home", &page, intent.number.get())).await?;
    assert!(write.output.starts_with("home: page home under "), "{}", write.output);
    Ok(())
}

#[tokio::test]
async fn pin() -> TestResult {
    let server = Server::start();
    let (client, collector) = (client(&server, "page"), client(&server, "collector"));
    let (version, newest) = (7, 107);
    let scan = async |version: u64| version;
    let pinned = client.pin("tables/orders").acquire(version).await?;
    pinned.run(|_lease| scan(version)).await?;
    let below = collector.collect("tables/orders", newest - 100).await?; // then delete below it
    assert_eq!(below, 7);
    Ok(())
}

#[tokio::test]
async fn credential() -> TestResult {
    let server = Server::start();
    let client = client(&server, "page");
    let guard = client.lock("issuers/example").acquire().await?;
    let held = client.lock("jobs/settle").acquire().await?;
    let (token, lifetime) = (held.token(), Duration::from_secs(3_600));
    let keys = SigningKeys::new(SigningKey::generate("k1")?);
    let issuer = CredentialIssuer::new("https://issuer.example", guard.handle().clone(), keys)?;
    let request = CredentialRequest::new("ledger", "worker", lifetime);
    let credential = issuer.issue_for_token(&client, "jobs/settle", &token, &request).await?;
    let mut verifier = CredentialVerifier::new("https://issuer.example", "ledger", &issuer.jwks())?;
    verifier.set_revocation_list(&issuer.revocation_list(SystemTime::now())?)?;
    let verified = verifier.verify(&credential, "jobs/settle")?;
    assert_eq!(verified.subject, "worker");
    Ok(())
}

#[tokio::test]
async fn test_your_code() -> TestResult {
    let server = TestServer::new();
    let client = server.client("worker-1");
    let guard = client.lock("jobs/settle").ttl(Duration::from_secs(5)).acquire().await?;
    server.partition(&client);
    server.advance(Duration::from_secs(5));
    assert_eq!(guard.state(), GuardState::Suspended);
    Ok(())
}
