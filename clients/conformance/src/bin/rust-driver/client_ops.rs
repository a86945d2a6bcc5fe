//! Ops on clients: connect, close, and many leases at a time.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use leasehold::{BearerTokenFile, Client, TlsOptions};
use serde_json::{Value, json};

use crate::broken::{DriverFault, MainLoopHook, ReplyDeadlines};
use crate::driver_state::{ConnectedClient, DriverState};
use crate::op_error::OpError;
use crate::request::OpRequest;

/// Default session ttl of the client.
const SESSION_TTL: Duration = Duration::from_secs(30);
/// Acquire requests of `hold_many` at a time.
const CONCURRENCY: usize = 64;

pub fn connect(state: &DriverState, request: &OpRequest) -> Result<Value, OpError> {
    let name = request.text("client")?.to_owned();
    let servers = request.get("servers").and_then(Value::as_array).ok_or_else(|| OpError::driver("no servers"))?;
    let servers: Vec<_> = servers.iter().filter_map(Value::as_str).collect();
    let mut builder = Client::builder(&servers.join(","))?;
    let ttl = request.millis_opt("session_ttl_ms").unwrap_or(SESSION_TTL);
    builder = builder.session_ttl(ttl);
    if let Some(holder) = request.text_opt("holder") {
        builder = builder.holder(holder);
    }
    if let Some(timeout) = request.millis_opt("request_timeout_ms") {
        builder = builder.request_timeout(timeout);
    }
    if let Some(tls) = request.get("tls") {
        let path = |name: &str| tls.get(name).and_then(Value::as_str);
        let ca = path("ca").ok_or_else(|| OpError::driver("tls without ca"))?;
        builder = builder.tls(match (path("cert"), path("key")) {
            (Some(cert), Some(key)) => TlsOptions::new(ca, cert, key),
            _ => TlsOptions::without_certificate(ca),
        });
    }
    if let Some(file) = request.text_opt("bearer_file") {
        builder = builder.bearer_file(BearerTokenFile::new(file));
    }
    let mut reply_deadlines = None;
    match state.broken.get() {
        Some(DriverFault::RenewalOnMainLoop) => {
            builder = builder.metrics(Arc::new(MainLoopHook(tokio::runtime::Handle::current())));
        }
        Some(DriverFault::DeadlineFromReply) => {
            let deadlines = Arc::new(ReplyDeadlines::new(ttl));
            builder = builder.metrics(deadlines.clone());
            reply_deadlines = Some(deadlines);
        }
        Some(DriverFault::NoToken) | None => {}
    }
    let connected = ConnectedClient { client: builder.build(), many: RefCell::default(), reply_deadlines };
    state.clients.borrow_mut().insert(name, Rc::new(connected));
    Ok(json!({}))
}

pub async fn close(state: &DriverState, request: &OpRequest) -> Result<Value, OpError> {
    state.client(request)?.client.close().await?;
    Ok(json!({}))
}

pub fn session(state: &DriverState, request: &OpRequest) -> Result<Value, OpError> {
    let session = state.client(request)?.client.session().borrow().as_ref().map(|resume| resume.session.to_string());
    Ok(json!({ "session": session }))
}

pub async fn hold_many(state: &DriverState, request: &OpRequest) -> Result<Value, OpError> {
    let connected = state.client(request)?;
    let (prefix, count) = (request.text("prefix")?, request.u64("count")?);
    let acquires = stream::iter(0..count).map(|at| {
        let lock = connected.client.lock(format!("{prefix}/{at}"));
        async move { lock.acquire().await.map_err(leasehold::Error::from) }
    });
    let guards: Vec<_> = acquires.buffer_unordered(CONCURRENCY).try_collect().await?;
    let held = guards.len();
    connected.many.borrow_mut().extend(guards);
    Ok(json!({ "held": held }))
}

pub fn held_count(state: &DriverState, request: &OpRequest) -> Result<Value, OpError> {
    let connected = state.client(request)?;
    let held = connected.many.borrow().iter().filter(|guard| guard.is_held()).count();
    Ok(json!({ "held": held }))
}

pub async fn get(state: &DriverState, request: &OpRequest) -> Result<Value, OpError> {
    let (client, key) = (state.client(request)?, request.text("key")?);
    let values = client.client.state_of(request.text("resource")?).await?;
    Ok(match values.into_iter().find(|value| value.key == key) {
        None => json!({ "value": null }),
        Some(value) => json!({
            "value": String::from_utf8_lossy(&value.bytes),
            "revision": value.revision.to_string(),
            "token_number": value.token_number.to_string(),
        }),
    })
}
