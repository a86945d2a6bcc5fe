//! A server that is killed does not forget who reads: a write waits for them all the same.

use std::convert::Infallible;
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use leasehold::Client;
use leasehold::recipes::cache::Cache;

use crate::support::{PATIENCE, Server};
use crate::way::Way;
use crate::{TTL, client_at, soon};

fn open(client: &Client) -> Cache<u64> {
    client.cache().ttl(5 * TTL).patience(PATIENCE).open().expect("the timing is possible")
}

async fn get(cache: &Cache<u64>, source: &AtomicU64) -> u64 {
    let load = || ready(Ok::<_, Infallible>(source.load(Ordering::SeqCst)));
    *cache.get("page", load).await.unwrap_or_else(|never| match never {})
}

#[tokio::test]
async fn a_write_waits_for_copies_that_were_granted_before_the_server_was_killed() {
    let server = Server::start();
    let way = Way::to(&server.address).await;
    let (reading, writing) = (client_at(&way.address, "reader"), client_at(&way.address, "writer"));
    let (reader, writer) = (open(&reading), open(&writing));
    let source = Arc::new(AtomicU64::new(1));
    assert_eq!(get(&reader, &source).await, 1);
    let server = server.again();
    way.leads_to(&server.address);
    assert!(reader.peek("page").is_some(), "the copy outlives the server");
    let (copies, target) = (reader.clone(), source.clone());
    let written = soon(writer.write("page", PATIENCE, |intent| async move {
        assert_eq!(copies.peek("page"), None, "a copy was there while its key was written");
        target.store(2, Ordering::SeqCst);
        intent.number.get()
    }));
    let written = written.await.expect("the reader is waited for no longer than its time");
    assert_eq!(written.version, Ok(written.done), "a version is the number of its write");
    assert_eq!(get(&reader, &source).await, 2);
    assert!(reader.peek("page").is_some());
}
