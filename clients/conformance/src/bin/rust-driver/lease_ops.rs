//! Ops on leases: acquire, state, work, progress, small state and handoff.

use std::future::Future;
use std::rc::Rc;
use std::time::{Duration, Instant};

use leasehold::types::{EndReason, TokenScope};
use leasehold::{Guard, GuardState, HandoffMode, HandoffOptions, Lock, Loss, PendingOutcome, RequestError};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::broken::DriverFault;
use crate::driver_state::{ConnectedClient, DriverLease, DriverState, UnknownOutcome};
use crate::fenced_request;
use crate::op_error::OpError;
use crate::queue_ops::indeterminate;
use crate::request::OpRequest;

/// How often a broken deadline is compared with the clock.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

pub async fn perform(state: &DriverState, request: &OpRequest) -> Result<Value, OpError> {
    match request.op.as_str() {
        "acquire" => return acquire(state, request).await,
        "acquire_all" => return acquire_all(state, request).await,
        "resolve" => return resolve(state, request).await,
        "fork_state" => return Err(OpError::unsupported("fork_state")),
        _ => {}
    }
    let lease = match state.lease(request) {
        Ok(lease) => lease,
        // An unknown op has no lease either.
        Err(_) if request.get("lease").is_none() => return Err(OpError::unsupported(&request.op)),
        Err(error) => return Err(error),
    };
    match request.op.as_str() {
        "release" | "finish_drain" => release(state, request, &lease).await,
        "token" => Ok(token(&lease)),
        "state" => Ok(state_json(lease_state(&lease))),
        "remaining" => Ok(json!({ "ms": millis(remaining(&lease)) })),
        "wait_state" => wait_state(request, &lease).await,
        "work" => Ok(work(&lease).await),
        "finish" => {
            lease.finish.notify_waiters();
            Ok(json!({}))
        }
        "progress" => {
            lease.handle.progress(request.u64("progress")?);
            Ok(json!({}))
        }
        "put" => put(state, request, &lease).await,
        "fenced_write" => {
            let token = lease.handle.token().to_string();
            let token = (state.broken.get() != Some(DriverFault::NoToken)).then_some(token);
            fenced_request::post(request.text("url")?, token, request.text_opt("body").unwrap_or_default()).await
        }
        "handoff" => handoff(state, request, &lease).await,
        "wait_draining" => wait_draining(request, &lease).await,
        "wait_claimable" => {
            let began = Instant::now();
            let _claim = within(request, "the predecessor is done", lease.handle.wait_claimable()).await??;
            Ok(json!({ "after_ms": millis(began.elapsed()) }))
        }
        op => Err(OpError::unsupported(op)),
    }
}

fn lock(client: &ConnectedClient, request: &OpRequest, resource: &str) -> Result<Lock, OpError> {
    let mut lock = client.client.lock(resource);
    if let Some(wait) = request.millis_opt("wait_ms") {
        lock = lock.wait(wait);
    }
    if let Some(ttl) = request.millis_opt("ttl_ms") {
        lock = lock.ttl(ttl);
    }
    if request.is_set("shared") {
        lock = lock.shared();
    }
    if let Some(slots) = request.u32_opt("slots")? {
        lock = lock.slots(slots);
    }
    if let Some(units) = request.u32_opt("units")? {
        lock = lock.units(units);
    }
    if let Some(priority) = request.u64_opt("priority") {
        lock = lock.priority(u8::try_from(priority).map_err(|_| OpError::driver("`priority` is too large"))?);
    }
    if let Some(every) = request.millis_opt("progress_ms") {
        lock = lock.require_progress(every);
    }
    if let Some(max) = request.millis_opt("max_hold_ms") {
        lock = lock.max_hold(max);
    }
    Ok(lock)
}

async fn acquire(state: &DriverState, request: &OpRequest) -> Result<Value, OpError> {
    let client = state.client(request)?;
    let (name, slots) = (request.text("lease")?, request.get("slots").is_some());
    match lock(&client, request, request.text("resource")?)?.acquire().await {
        Ok(guard) => Ok(granted(&state.insert_lease(name, &client, guard), slots)),
        Err(error) => Err(failure(state, request.id, error, |pending| {
            UnknownOutcome::Acquire(pending, name.to_owned(), client_name(request), slots)
        })),
    }
}

async fn acquire_all(state: &DriverState, request: &OpRequest) -> Result<Value, OpError> {
    let client = state.client(request)?;
    let texts = |name: &str, member: Option<&str>| -> Vec<String> {
        let list = request.get(name).and_then(Value::as_array).into_iter().flatten();
        list.filter_map(|entry| member.map_or(Some(entry), |member| entry.get(member))?.as_str().map(str::to_owned))
            .collect()
    };
    let (names, resources) = (texts("leases", None), texts("resources", Some("resource")));
    let (Some(first), true) = (resources.first(), names.len() == resources.len()) else {
        return Err(OpError::driver("`leases` and `resources` differ in length"));
    };
    let mut lock = lock(&client, request, first)?;
    // The Rust client acquires several resources with the same access.
    if request.get("resources").and_then(|all| all.get(0)?.get("shared")?.as_bool()) == Some(true) {
        lock = lock.shared();
    }
    let lock = resources[1..].iter().fold(lock, |lock, resource| lock.also(resource));
    match lock.acquire_all().await {
        Ok(guards) => Ok(all_granted(state, &client, &names, guards)),
        Err(error) => Err(failure(state, request.id, error, |pending| {
            UnknownOutcome::AcquireAll(pending, client_name(request), names)
        })),
    }
}

fn client_name(request: &OpRequest) -> String {
    request.text_opt("client").unwrap_or_default().to_owned()
}

fn all_granted(state: &DriverState, client: &ConnectedClient, names: &[String], guards: Vec<Guard>) -> Value {
    let grants = names.iter().zip(guards).map(|(name, guard)| granted(&state.insert_lease(name, client, guard), false));
    json!({ "grants": grants.collect::<Vec<_>>() })
}

fn granted(lease: &DriverLease, slots: bool) -> Value {
    let mut reply = token(lease);
    if let (true, TokenScope::Slot(slot)) = (slots, lease.handle.token().parsed().scope) {
        reply["slot"] = json!(slot);
    }
    reply
}

/// Converts an error, and keeps an unknown outcome for `resolve`.
fn failure<T>(
    state: &DriverState,
    id: u64,
    error: RequestError<T>,
    keep: impl FnOnce(PendingOutcome<T>) -> UnknownOutcome,
) -> OpError {
    match error {
        RequestError::Rejected(error) => error.into(),
        RequestError::Indeterminate(pending) => {
            let error = indeterminate(pending.request_id());
            state.unknown.borrow_mut().insert(id, keep(pending));
            error.into()
        }
    }
}

async fn resolve(state: &DriverState, request: &OpRequest) -> Result<Value, OpError> {
    let id = request.u64("request")?;
    let unknown = state.unknown.borrow_mut().remove(&id);
    let client = |name: &str| {
        let found = state.clients.borrow().get(name).cloned();
        found.ok_or_else(|| OpError::driver(format!("no client {name}")))
    };
    match unknown.ok_or_else(|| OpError::driver(format!("request {id} has no unknown outcome")))? {
        UnknownOutcome::Acquire(pending, name, owner, slots) => match pending.resolve().await {
            Ok(guard) => Ok(granted(&state.insert_lease(&name, &*client(&owner)?, guard), slots)),
            Err(error) => {
                Err(failure(state, id, error, |pending| UnknownOutcome::Acquire(pending, name, owner, slots)))
            }
        },
        UnknownOutcome::AcquireAll(pending, owner, names) => match pending.resolve().await {
            Ok(guards) => Ok(all_granted(state, &*client(&owner)?, &names, guards)),
            Err(error) => Err(failure(state, id, error, |pending| UnknownOutcome::AcquireAll(pending, owner, names))),
        },
        UnknownOutcome::Put(pending) => {
            let revision = pending.resolve().await.map_err(|error| failure(state, id, error, UnknownOutcome::Put))?;
            Ok(json!({ "revision": revision.to_string() }))
        }
        UnknownOutcome::Send(pending) => {
            let item = pending.resolve().await.map_err(|error| failure(state, id, error, UnknownOutcome::Send))?;
            Ok(json!({ "item": item.to_string() }))
        }
        UnknownOutcome::Unit(pending) => {
            pending.resolve().await.map_err(|error| failure(state, id, error, UnknownOutcome::Unit))?;
            Ok(json!({}))
        }
    }
}

async fn release(state: &DriverState, request: &OpRequest, lease: &DriverLease) -> Result<Value, OpError> {
    let guard = lease.guard.borrow_mut().take();
    // Releasing consumes the guard, so that a program cannot release twice.
    if let Some(guard) = guard {
        guard.release().await.map_err(|error| failure(state, request.id, error, UnknownOutcome::Unit))?;
    }
    Ok(json!({}))
}

fn token(lease: &DriverLease) -> Value {
    let token = lease.handle.token();
    json!({ "token": token.as_str(), "token_number": token.number().to_string() })
}

/// The state of a lease. One whose guard was released is lost, whatever its last deadline is.
fn lease_state(lease: &DriverLease) -> GuardState {
    let state = match (lease.handle.state(), &lease.reply_deadlines) {
        (GuardState::Held | GuardState::Suspended, Some(deadlines)) if deadlines.remaining().is_zero() => {
            GuardState::Suspended
        }
        (GuardState::Suspended, Some(_)) => GuardState::Held,
        (state, _) => state,
    };
    match state {
        GuardState::Lost(loss) => GuardState::Lost(loss),
        _ if lease.guard.borrow().is_none() => GuardState::Lost(Loss::Ended(EndReason::Released)),
        state => state,
    }
}

fn state_json(state: GuardState) -> Value {
    match state {
        GuardState::Held => json!({ "state": "held" }),
        GuardState::Suspended => json!({ "state": "suspended" }),
        GuardState::Lost(Loss::Ended(reason)) => {
            json!({ "state": "lost", "lost_state": reason.outcome(), "reason": reason.word() })
        }
        GuardState::Lost(Loss::NotCurrent) => json!({ "state": "lost", "lost_state": "not_current", "reason": null }),
    }
}

fn remaining(lease: &DriverLease) -> Duration {
    lease.reply_deadlines.as_ref().map_or_else(|| lease.handle.remaining(), |deadlines| deadlines.remaining())
}

async fn wait_state(request: &OpRequest, lease: &DriverLease) -> Result<Value, OpError> {
    let wanted = request.text("state")?.to_owned();
    let is_reached = |state: GuardState| match wanted.as_str() {
        "held" => state == GuardState::Held,
        "suspended" => state == GuardState::Suspended,
        "lost" => matches!(state, GuardState::Lost(_)),
        _ => state != GuardState::Held,
    };
    let reached = async {
        loop {
            let state = lease_state(lease);
            if is_reached(state) {
                return state;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    within(request, &wanted, reached).await.map(state_json)
}

/// Work that waits to be stopped by the lease, or finished by the runner.
async fn work(lease: &DriverLease) -> Value {
    let began = Instant::now();
    let stopped = async {
        match &lease.reply_deadlines {
            None => {
                lease.handle.wait_stopped().await;
            }
            Some(deadlines) => {
                while !deadlines.remaining().is_zero() && !matches!(lease.handle.state(), GuardState::Lost(_)) {
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
            }
        }
    };
    let was_stopped = tokio::select! {
        biased;
        () = stopped => true,
        () = lease.finish.notified() => false,
    };
    json!({ "stopped": was_stopped, "after_ms": millis(began.elapsed()) })
}

async fn put(state: &DriverState, request: &OpRequest, lease: &DriverLease) -> Result<Value, OpError> {
    let value = request.text_opt("value").map(str::as_bytes);
    let put = lease.handle.put_if(request.text("key")?, value, request.u64_opt("expected_revision"));
    let revision = put.await.map_err(|error| failure(state, request.id, error, UnknownOutcome::Put))?;
    Ok(json!({ "revision": revision.to_string() }))
}

async fn handoff(state: &DriverState, request: &OpRequest, lease: &DriverLease) -> Result<Value, OpError> {
    let mut options = HandoffOptions::new();
    if let Some(to) = request.text_opt("to") {
        options = options.to(to);
    }
    match request.text_opt("mode") {
        Some("gap") => options = options.mode(HandoffMode::Gap),
        Some("overlap") => options = options.mode(HandoffMode::Overlap),
        Some(other) => return Err(OpError::driver(format!("no mode {other}"))),
        None => {}
    }
    if let Some(drain) = request.millis_opt("drain_ms") {
        options = options.drain(drain);
    }
    lease.handle.handoff(options).await.map_err(|error| failure(state, request.id, error, UnknownOutcome::Unit))?;
    Ok(json!({}))
}

async fn wait_draining(request: &OpRequest, lease: &Rc<DriverLease>) -> Result<Value, OpError> {
    within(request, "a drain", lease.handle.draining_started()).await?;
    match lease.handle.state() {
        GuardState::Lost(loss) => Err(loss.into()),
        _ => Ok(json!({ "drain_ms": millis(lease.handle.remaining()) })),
    }
}

async fn within<T>(request: &OpRequest, wanted: &str, future: impl Future<Output = T>) -> Result<T, OpError> {
    match request.millis_opt("timeout_ms") {
        None => Ok(future.await),
        Some(limit) => timeout(limit, future).await.map_err(|_| OpError::timeout(wanted)),
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
