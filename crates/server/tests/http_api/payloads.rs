//! Small state and cached keys over HTTP.

use serde_json::{Value, json};

use crate::api_client::{ApiClient, token};
use crate::event_stream_reader::EventStreamReader;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_state_is_read_by_key_and_in_pages() {
    let mut client = ApiClient::start().await;
    let lease = client.ok("POST /v1/leases/jobs/a:acquire", "", json!({ "holder": "w1", "ttl": "60s" })).await;
    for (key, field, value) in [("a", "value", "120"), ("b", "value_base64", "/wA="), ("c", "value", "")] {
        client.ok("POST /v1/leases/jobs/a:put", &token(&lease), json!({ "key": key, field: value })).await;
    }
    let all = client.ok("GET /v1/state/jobs/a", "", Value::Null).await;
    let entries = all["entries"].as_array().expect("a list");
    let keys: Vec<_> = entries.iter().map(|entry| entry["key"].clone()).collect();
    assert_eq!(keys, ["a", "b", "c"], "{all}");
    assert_eq!((&entries[0]["value"], &entries[0]["value_base64"]), (&json!("120"), &json!("MTIw")), "{all}");
    assert_eq!(entries[0]["token_number"], lease["token_number"], "{all}");
    assert!(entries[1].get("value").is_none() && entries[1]["value_base64"] == "/wA=", "not text: {all}");
    let one = client.ok("GET /v1/state/jobs/a?key=b", "", Value::Null).await;
    assert_eq!(one["entries"], json!([entries[1]]));
    assert_eq!(client.ok("GET /v1/state/jobs/a?key=x", "", Value::Null).await, json!({ "entries": [] }));
    let page = client.ok("GET /v1/state/jobs/a?after=a&limit=1", "", Value::Null).await;
    assert_eq!(page["entries"], json!([entries[1]]));
    client.server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_commits_after_the_readers_dropped_their_copies() {
    let mut client = ApiClient::start().await;
    let (reader, writer) = (client.open_session("r").await, client.open_session("w").await);
    let actor = |session: &str| json!({ "holder": "h", "session": session, "ttl": "60s" });
    let read = client.ok("POST /v1/cache/users/7:read", &reader.secret, actor(&reader.id)).await;
    assert_eq!(read["outcome"], "read", "{read}");
    let renewed = client.ok("POST /v1/cache/users/7:renew", &reader.secret, json!({ "lease": read["lease"] })).await;
    assert_eq!((&renewed["outcome"], &renewed["version"]), (&json!("read"), &read["version"]), "{renewed}");
    let path = |id: &str| format!("/v1/sessions/{id}/events");
    let address = client.server.address;
    let mut to_reader = EventStreamReader::connect(address, &path(&reader.id), &reader.secret).await.expect("accepted");
    let mut to_writer = EventStreamReader::connect(address, &path(&writer.id), &writer.secret).await.expect("accepted");
    let intent = client.ok("POST /v1/cache/users/7:intend", &writer.secret, actor(&writer.id)).await;
    assert_eq!((&intent["outcome"], &intent["waiting_for"]), (&json!("intended"), &json!(1)), "{intent}");
    let commit = json!({ "intent": intent["intent"] });
    client.refused("POST /v1/cache/users/7:commit", &writer.secret, commit.clone()).await;
    let invalidate = to_reader.next().await.expect("the stream is open");
    assert_eq!((invalidate.name.as_str(), &invalidate.data["resource"]), ("invalidate", &json!("users/7")));
    let dropped = json!({ "lease": invalidate.data["token_number"] });
    let dropped = client.ok("POST /v1/cache/users/7:invalidated", &reader.secret, dropped).await;
    assert_eq!(dropped, json!({ "outcome": "dropped" }));
    let clear = to_writer.next().await.expect("the stream is open");
    assert_eq!((clear.name.as_str(), &clear.data["token_number"]), ("clear", &intent["intent"]), "{clear:?}");
    let committed = client.ok("POST /v1/cache/users/7:commit", &writer.secret, commit).await;
    assert_eq!(committed["outcome"], "committed", "{committed}");
    assert_ne!(committed["version"], read["version"], "{committed}");
    client.server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_caller_fills_a_missing_copy_and_the_others_wait() {
    let mut client = ApiClient::start().await;
    let actor = json!({ "holder": "h", "ttl": "60s" });
    let get = "POST /v1/cache/page:get_or_fill";
    let task = client.ok(get, "", actor.clone()).await;
    assert_eq!(task["outcome"], "fill", "{task}");
    let other = client.ok(get, "", actor.clone()).await;
    assert!(other["outcome"] == "wait" && other["wait_ms"].as_u64() > Some(0), "{other}");
    let filled = client.ok("POST /v1/cache/page:filled", "", json!({ "fill": task["fill"] })).await;
    assert_eq!(filled["outcome"], "filled", "{filled}");
    let read = client.ok(get, "", actor.clone()).await;
    assert_eq!((&read["outcome"], &read["version"]), (&json!("read"), &filled["version"]), "{read}");
    let missing = json!({ "holder": "h", "ttl": "60s", "missing_version": read["version"] });
    let again = client.ok(get, "", missing).await;
    assert_eq!(again["outcome"], "fill", "the copy is gone from the cache: {again}");
    let aborted = client.ok("POST /v1/cache/page:abort", "", json!({ "number": again["fill"] })).await;
    assert_eq!(aborted, json!({ "outcome": "aborted" }));
    client.server.stop().await;
}
