//! Conformance driver of the Rust client: reads requests as JSON lines and calls the client.
//!
//! The user's side is one thread, so that the op `block` blocks all of it. Only standard input has a thread of its own.

#![forbid(unsafe_code)]

mod broken;
mod client_ops;
mod driver_state;
mod fenced_request;
mod lease_ops;
mod op_error;
mod queue_ops;
mod request;

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::rc::Rc;
use std::time::Duration;

use driver_state::DriverState;
use op_error::OpError;
use request::OpRequest;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::task::LocalSet;

/// Requests that have not replied yet, with the channel that cancels each.
type RunningRequests = Rc<RefCell<HashMap<u64, oneshot::Sender<()>>>>;

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (sender, lines) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
        // Like a crash: nothing is closed or released.
        std::process::exit(0);
    });
    LocalSet::new().block_on(&runtime, serve(lines));
}

async fn serve(mut lines: mpsc::UnboundedReceiver<String>) {
    let (state, running) = (Rc::new(DriverState::default()), RunningRequests::default());
    while let Some(line) = lines.recv().await {
        let request = match OpRequest::parse(&line) {
            Ok(request) => request,
            Err((id, error)) => {
                write_reply(id, Err(error));
                continue;
            }
        };
        match request.op.as_str() {
            "cancel" => {
                let canceled = request.u64("request").map(|id| {
                    let cancel = running.borrow_mut().remove(&id);
                    json!({ "canceled": cancel.is_some_and(|cancel| cancel.send(()).is_ok()) })
                });
                write_reply(request.id, canceled);
            }
            "block" => {
                let blocked = request.u64("ms").map(|ms| {
                    std::thread::sleep(Duration::from_millis(ms));
                    json!({})
                });
                write_reply(request.id, blocked);
            }
            "exit" => {
                write_reply(request.id, Ok(json!({})));
                std::process::exit(0);
            }
            _ => start(&state, &running, request),
        }
    }
}

/// Starts a request, which replies when it is done or canceled.
fn start(state: &Rc<DriverState>, running: &RunningRequests, request: OpRequest) {
    let (cancel, canceled) = oneshot::channel();
    running.borrow_mut().insert(request.id, cancel);
    let (state, running, id) = (state.clone(), running.clone(), request.id);
    tokio::task::spawn_local(async move {
        let canceled = async {
            // An error means that the request is no longer listed, which happens only after it has replied.
            match canceled.await {
                Ok(()) => (),
                Err(_) => std::future::pending().await,
            }
        };
        let result = tokio::select! {
            result = perform(&state, &request) => result,
            () = canceled => Err(OpError::canceled()),
        };
        running.borrow_mut().remove(&id);
        write_reply(id, result);
    });
}

async fn perform(state: &DriverState, request: &OpRequest) -> Result<Value, OpError> {
    match request.op.as_str() {
        "hello" => Ok(json!({
            "client": "rust",
            "version": env!("CARGO_PKG_VERSION"),
            "skips": { "fork": "a Rust program does not fork: its threads would be gone, and std offers no fork" },
        })),
        "break" => state.break_property(request),
        "advance_clock" => state.advance_clock(request),
        "connect" => client_ops::connect(state, request),
        "close" => client_ops::close(state, request).await,
        "session" => client_ops::session(state, request),
        "hold_many" => client_ops::hold_many(state, request).await,
        "held_count" => client_ops::held_count(state, request),
        "get" => client_ops::get(state, request).await,
        op if op.starts_with("queue_") => queue_ops::perform(state, request).await,
        _ => lease_ops::perform(state, request).await,
    }
}

fn write_reply(id: u64, result: Result<Value, OpError>) {
    let reply = match result {
        Ok(ok) => json!({ "id": id, "ok": ok }),
        Err(error) => json!({ "id": id, "error": error.into_json() }),
    };
    let mut out = std::io::stdout().lock();
    // Without a reader the runner has gone, and this process ends with its input.
    let _ = writeln!(out, "{reply}").and_then(|()| out.flush());
}
