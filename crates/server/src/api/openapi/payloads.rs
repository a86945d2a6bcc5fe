//! OpenAPI specification of what a lease can guard inside the grantor: queues, small state and cached keys.

use leasehold_wire::Code;
use leasehold_wire::json::{
    AbortBody, CacheActorBody, CacheBody, DeliveriesBody, DoneBody, ExtendBody, ExtendedBody, FillBody, GetOrFillBody,
    IntentBody, ItemBody, NackBody, NackedBody, QueueBody, ReadLeaseBody, ReceiptBody, ReceiveBody, SendBody, SentBody,
    StateBody,
};
use serde_json::json;

use super::operation::{LIMIT, MIN_POSITION, NAME, OperationSpec};
use super::{Document, NUMBER, TOKEN};

/// Problems of every command.
const COMMAND: [Code; 10] = [
    Code::NotFound,
    Code::NotCurrent,
    Code::StaleToken,
    Code::Conflict,
    Code::RequestTooOld,
    Code::LeaseLost,
    Code::TokenInvalid,
    Code::WrongCluster,
    Code::RolledBack,
    Code::StorageFull,
];

pub fn describe(document: &mut Document) {
    describe_queues(document);
    describe_cache(document);
    let entry = json!({
        "key": "checkpoint", "value_base64": "MTIw", "value": "120", "revision": "4", "token_number": NUMBER
    });
    let state = OperationSpec::new("state", "getState", "Read the small state that holders of a resource wrote")
        .description("The state of a slot above 0 is that of the name followed by `#` and the slot number.")
        .path("name", NAME, "jobs/settle")
        .text_parameter("key", "Only this key", "checkpoint")
        .text_parameter("after", "Only keys after this one, the last of the previous page", "")
        .number_parameter("limit", LIMIT, 100)
        .number_parameter("min_position", MIN_POSITION, 0)
        .responds::<StateBody>("Stored values, by key", json!({ "entries": [entry] }))
        .problems(&[])
        .served_by_standby();
    document.get("/v1/state/{name}", state);
}

fn describe_queues(document: &mut Document) {
    let command = |id: &str, summary: &str| {
        OperationSpec::new("queues", id, summary)
            .path("name", "Name of the queue", "mail/out")
            .command_headers()
            .problems(&COMMAND)
    };
    let done = |spec: OperationSpec| spec.responds::<DoneBody>("Done and durable", json!({ "done": true }));
    let send = command("sendMessage", "Add a message to a queue")
        .body::<SendBody>(true, json!({ "body": "invoice 7", "delay": "5s", "max_attempts": 3 }))
        .responds::<SentBody>("Added and durable", json!({ "item": "12" }));
    document.post("/v1/queues/{name}:send", send);
    let delivery = json!({
        "item": "12", "receipt": NUMBER, "attempt": 1, "body_base64": "aW52b2ljZSA3", "body": "invoice 7",
        "remaining_ms": 30_000, "token": TOKEN, "secret": "00112233445566778899aabbccddeeff"
    });
    let receive = command("receiveMessages", "Receive messages, each with its own receipt and fencing token")
        .description(
            "With `wait` the response arrives when a message does or the wait ends (long polling); it takes no idempotency key. \
             Without `wait` the key is `<session>:<sequence>`; one that the client makes is refused. A message that is not acknowledged, \
             or whose reply is lost, returns to the queue after its visibility timeout.",
        )
        .body::<ReceiveBody>(true, json!({ "holder": "worker-1", "visibility": "30s", "limit": 10, "wait": "1ms" }))
        .responds::<DeliveriesBody>("Messages, oldest first", json!({ "deliveries": [delivery] }))
        .problems(&[Code::Quarantined, Code::TokenExhausted]);
    document.post("/v1/queues/{name}:receive", receive);
    let receipt = json!({ "item": "12", "receipt": NUMBER });
    let ack = command("ackMessage", "Acknowledge a delivery: the message is done")
        .lease_secret_header()
        .body::<ReceiptBody>(true, receipt);
    document.post("/v1/queues/{name}:ack", done(ack));
    let nack = command("nackMessage", "Return a message undone")
        .lease_secret_header()
        .body::<NackBody>(true, json!({ "item": "12", "receipt": NUMBER, "delay": "5s" }))
        .responds::<NackedBody>("Returned, or a dead letter", json!({ "dead": false }));
    document.post("/v1/queues/{name}:nack", nack);
    let extend = command("extendMessage", "Extend the visibility timeout of a delivery")
        .lease_secret_header()
        .body::<ExtendBody>(true, json!({ "item": "12", "receipt": NUMBER, "visibility": "60s" }))
        .responds::<ExtendedBody>("Extended", json!({ "remaining_ms": 60_000 }));
    document.post("/v1/queues/{name}:extend", extend);
    let redrive = command("redriveMessage", "Make a dead letter deliverable again")
        .body::<ItemBody>(true, json!({ "item": "12" }));
    document.post("/v1/queues/{name}:redrive", done(redrive));
    let drop = command("dropMessage", "Delete a dead letter").body::<ItemBody>(true, json!({ "item": "12" }));
    document.post("/v1/queues/{name}:drop", done(drop));
    let letter = json!({
        "item": "9", "body_base64": "aW52b2ljZSA0", "body": "invoice 4", "attempts": 5, "reason": "ttl"
    });
    let show = OperationSpec::new("queues", "showQueue", "Get the counters of a queue and its dead letters")
        .path("name", "Name of the queue", "mail/out")
        .text_parameter("after", "Only dead letters with a higher id, the last of the previous page", "0")
        .number_parameter("limit", LIMIT, 100)
        .number_parameter("min_position", MIN_POSITION, 0)
        .responds::<QueueBody>(
            "The queue",
            json!({
                "queue": "mail/out", "ready": 3, "delayed": 1, "in_flight": 2, "dead": 1, "next_ms": 0,
                "dead_letters": [letter]
            }),
        )
        .problems(&[])
        .served_by_standby();
    document.get("/v1/queues/{name}", show);
}

fn describe_cache(document: &mut Document) {
    let command = |id: &str, summary: &str| {
        OperationSpec::new("cache", id, summary)
            .path("key", "The cached key", "users/7")
            .command_headers()
            .lease_secret_header()
            .problems(&COMMAND)
            .problems(&[Code::Busy, Code::Quarantined, Code::TokenExhausted])
    };
    let secret = "00112233445566778899aabbccddeeff";
    let read = json!({ "outcome": "read", "version": "3", "lease": NUMBER, "remaining_ms": 30_000, "secret": secret });
    let actor = json!({ "holder": "web-1", "ttl": "30s" });
    let responds = |spec: OperationSpec, about: &str, example| spec.responds::<CacheBody>(about, example);
    let spec =
        command("readCached", "Acquire a read lease on a cached copy").body::<CacheActorBody>(true, actor.clone());
    document.post("/v1/cache/{key}:read", responds(spec, "The copy may be used", read.clone()));
    let spec = command("renewCached", "Renew a read lease").body::<ReadLeaseBody>(true, json!({ "lease": NUMBER }));
    document.post("/v1/cache/{key}:renew", responds(spec, "The copy may be used", read.clone()));
    let spec = command("invalidatedCached", "Confirm that a copy was dropped")
        .body::<ReadLeaseBody>(true, json!({ "lease": NUMBER }));
    let dropped = json!({ "outcome": "dropped" });
    document.post("/v1/cache/{key}:invalidated", responds(spec, "The read lease has ended", dropped));
    let spec = command("intendWrite", "Announce a write; readers are notified to drop their copies")
        .body::<CacheActorBody>(true, actor);
    let intended =
        json!({ "outcome": "intended", "intent": NUMBER, "waiting_for": 2, "until_ms": 4_711, "secret": secret });
    document.post("/v1/cache/{key}:intend", responds(spec, "The write is announced", intended));
    let spec = command("commitWrite", "Complete a write: the copy has a new version")
        .body::<IntentBody>(true, json!({ "intent": NUMBER }));
    let committed = json!({ "outcome": "committed", "version": "4" });
    document.post("/v1/cache/{key}:commit", responds(spec, "The write is visible", committed));
    let spec = command("abortWrite", "End an intent or a task to fill without a result")
        .body::<AbortBody>(true, json!({ "number": NUMBER }));
    document.post("/v1/cache/{key}:abort", responds(spec, "It has ended", json!({ "outcome": "aborted" })));
    let spec = command("getOrFill", "Acquire a read lease on a filled copy, or the task to fill it")
        .body::<GetOrFillBody>(true, json!({ "holder": "web-1", "ttl": "30s", "missing_version": "3" }));
    let fill = json!({ "outcome": "fill", "fill": NUMBER, "remaining_ms": 30_000, "secret": secret });
    document.post("/v1/cache/{key}:get_or_fill", responds(spec, "`read`, `fill` or `wait`", fill));
    let spec =
        command("filledCached", "Report that a copy is filled").body::<FillBody>(true, json!({ "fill": NUMBER }));
    let filled = json!({ "outcome": "filled", "version": "4" });
    document.post("/v1/cache/{key}:filled", responds(spec, "The copy can be read", filled));
}
