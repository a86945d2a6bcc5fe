//! The cache recipe: after a server crash, a write still waits for granted copies.

use std::convert::Infallible;
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use leasehold::Client;
use leasehold::recipes::cache::Cache;
use leasehold_testkit::tcp_proxy::TcpProxy;

use crate::support::{Server, TEST_TIMEOUT};
use crate::{TTL, client_at, within_timeout};

fn open(client: &Client) -> Cache<u64> {
    client.cache().ttl(5 * TTL).timeout(TEST_TIMEOUT).build().expect("valid timing")
}

async fn get(cache: &Cache<u64>, source: &AtomicU64) -> u64 {
    let load = || ready(Ok::<_, Infallible>(source.load(Ordering::SeqCst)));
    *cache.get("page", load).await.unwrap_or_else(|never| match never {})
}

#[tokio::test]
async fn a_write_waits_for_copies_granted_before_a_server_crash() {
    let server = Server::start();
    let proxy = TcpProxy::start(&server.address);
    let address = proxy.address().to_string();
    let (reading, writing) = (client_at(&address, "reader"), client_at(&address, "writer"));
    let (reader, writer) = (open(&reading), open(&writing));
    let source = Arc::new(AtomicU64::new(1));
    assert_eq!(get(&reader, &source).await, 1);
    let server = server.crash_and_restart();
    proxy.set_upstream(&server.address);
    assert!(reader.peek("page").is_some(), "the copy outlives the server");
    let (copies, target) = (reader.clone(), source.clone());
    let written = within_timeout(writer.write("page", TEST_TIMEOUT, |intent| async move {
        assert_eq!(copies.peek("page"), None, "a copy existed while its key was written");
        target.store(2, Ordering::SeqCst);
        intent.number.get()
    }));
    let written = written.await.expect("the write waits at most for the ttl of the reader");
    assert_eq!(written.version, Ok(written.output), "the version is the number of the write");
    assert_eq!(get(&reader, &source).await, 2);
    assert!(reader.peek("page").is_some());
}
