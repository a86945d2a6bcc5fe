//! Open pages learn of changes without costing a turn, and end with the rights of their readers.

use crate::http_client::free_port_config;
use crate::scene::{Scene, ok, page};
use crate::transport_clients::{HttpConnection, with_timeout};
use leasehold_server::journal::memory::Memory;
use leasehold_server::server::start;
use serde_json::json;

/// Reads a stream until it contains a text, or until it ends.
async fn read_until(stream: &mut HttpConnection, text: &str) -> bool {
    let (mut seen, mut buffer) = (String::new(), [0; 4096]);
    loop {
        match with_timeout(stream.read(&mut buffer)).await {
            Ok(0) | Err(_) => return false,
            Ok(length) => seen.push_str(&String::from_utf8_lossy(&buffer[..length])),
        }
        if seen.contains(text) {
            return true;
        }
        // The connection stays open after the last chunk.
        if seen.ends_with("\r\n0\r\n\r\n") || seen == "0\r\n\r\n" {
            return false;
        }
    }
}

async fn open_stream(scene: &mut Scene, principal: &str) -> HttpConnection {
    let mut stream = scene.server.http_as(principal).await;
    stream.send(b"GET /ui/changes HTTP/1.1\r\nhost: localhost\r\n\r\n").await.expect("the server reads");
    let (status, text) = stream.response().await.expect("a response");
    assert_eq!(status, 200, "{text}");
    stream
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_refreshes_open_pages_with_nothing_but_a_position() {
    let mut scene = Scene::start(&[("uid:1", "observer", "jobs")]).await;
    let mut stream = open_stream(&mut scene, "uid:1").await;
    ok(&mut scene.admin, "POST /v1/leases/disks/d2:acquire", json!({ "holder": "w", "ttl": "60s" })).await;
    assert!(read_until(&mut stream, "event: refresh\ndata: ").await);
    assert!(!scene.server.handle.api().watchers.any(), "no turn prepares events for an open page");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_ends_when_its_reader_loses_the_last_grant() {
    let mut scene = Scene::start(&[("uid:1", "observer", "jobs")]).await;
    let mut stream = open_stream(&mut scene, "uid:1").await;
    scene.server.reload(&[]);
    assert!(!read_until(&mut stream, "no such text").await, "the stream ends");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_samples_itself_for_charts() {
    let mut scene = Scene::start(&[]).await;
    let samples = || scene.server.handle.api().dashboard.samples.changes(10).len();
    // The second sample follows the first after the interval.
    while samples() == 0 {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let overview = page(&mut scene.admin, "/").await;
    assert!(overview.contains("Leases and waiters") && overview.contains("Latency, mean"), "{overview}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_that_was_observed_is_a_tick_of_the_timeline() {
    let server = start(Memory::default(), free_port_config()).await.expect("a server starts on a free port");
    let mut http = HttpConnection::connect(server.address).await;
    let granted = ok(&mut http, "POST /v1/leases/a:acquire", json!({ "holder": "w", "ttl": "60s" })).await;
    let ticks = |page: String| page.matches("class=\"tl-renewal\"").count();
    page(&mut http, "/ui/resource/a").await;
    // Two renewals in a moment are one tick.
    tokio::time::sleep(std::time::Duration::from_millis(600)).await;
    let before = ticks(page(&mut http, "/ui/resource/a").await);
    let token = format!("Lease-Token: {}\r\n", granted["token"].as_str().expect("a text"));
    let (status, text) = http.request("POST /v1/leases/a:renew", &token, "{}").await;
    assert_eq!(status, 200, "{text}");
    assert_eq!(ticks(page(&mut http, "/ui/resource/a").await), before + 1);
    assert_eq!(ticks(page(&mut http, "/ui/resource/a").await), before + 1, "one renewal is one tick");
    server.stop().await;
}
