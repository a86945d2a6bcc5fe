//! Event loop of the worker's thread: feeds jobs, incoming batches and time to the state machine, and sends its batches.

use std::pin::Pin;
use std::sync::Arc;

use futures::FutureExt;
use leasehold_core::time::Instant;

use super::job_queue::JobQueue;
use super::worker_state::WorkerState;
use crate::clock::HolderClock;
use crate::failover::Candidates;
use crate::session_stream::{IncomingBatch, SessionReceiver, SessionSender};
use crate::{Address, Error, OpenedSession};

/// How soon a full connection is tried again, in milliseconds.
const FULL_RETRY: u64 = 5;

/// A connection attempt: the time before it was sent, and its result.
type Connecting = Pin<Box<dyn Future<Output = (Instant, ConnectResult)> + Send>>;

/// Result of a connection attempt.
type ConnectResult = Result<(OpenedSession, SessionSender, SessionReceiver), Error>;

/// A connected stream.
type Stream = (SessionSender, SessionReceiver);

/// Runs until the worker is finished.
pub(super) async fn run(mut state: WorkerState, clock: HolderClock, jobs: Arc<JobQueue>) {
    // A silent stream is used until another one is connected: a server that is only busy receives and answers every renewal.
    let mut stream: Option<Stream> = None;
    let mut connecting: Option<Connecting> = None;
    let mut probes = Probes::default();
    let mut batch = Vec::new();
    let _exit = StopOnExit { jobs: &jobs, clock: &clock };
    while !state.finished {
        let now = clock.now();
        let closed = jobs.drain(&mut batch);
        batch.drain(..).for_each(|job| state.handle_job(now, job));
        if closed && state.closing.is_none() {
            state.close(now, None);
        }
        state.tick(now);
        if !state.connected {
            stream = None;
        }
        if state.needs_new_stream(now) {
            if let Some(silent) = stream.as_ref().and_then(|(_, receiver)| receiver.server()) {
                state.servers.mark_suspect(silent);
            }
            if state.may_connect(now) {
                if connecting.is_none() && state.servers.has_healthy_server() {
                    connecting = Some(connect(&state, &clock, Candidates::Healthy(state.hello_timeout())));
                }
                probes.start(&state, &clock);
            }
        }
        let mut full = false;
        if let Some((sender, _)) = &stream {
            while sender.has_capacity() {
                // The clock was read before, so that every deadline counts from before the send.
                let Some(batch) = state.flush(now) else { break };
                if sender.send(batch).await.is_err() {
                    break;
                }
            }
            full = !sender.has_capacity();
        }
        // Without a healthy server the probes are the connection attempts.
        let in_progress = connecting.is_some() || !(probes.0.is_empty() || state.servers.has_healthy_server());
        let due = state.next_due(in_progress);
        let due = if full { due.min(now.plus_millis(FULL_RETRY)) } else { due };
        let wake_reason = tokio::select! {
            biased;
            never = clock.note_idle() => match never {},
            incoming = receive(&mut stream), if stream.is_some() => WakeReason::Incoming(incoming),
            (sent, result) = connected(&mut connecting), if connecting.is_some() => {
                connecting = None;
                WakeReason::Connected(sent, result)
            }
            (sent, result) = probes.next(), if !probes.0.is_empty() => WakeReason::Connected(sent, result),
            () = jobs.arrived.notified() => WakeReason::Job,
            () = clock.sleep_until(due) => WakeReason::Due,
        };
        clock.wait_while_paused().await;
        match wake_reason {
            WakeReason::Incoming(Ok(incoming)) => state.handle_incoming(clock.now(), incoming),
            WakeReason::Incoming(Err(error)) => {
                tracing::debug!(%error, "session stream failed");
                stream = None;
                state.stream_lost(clock.now());
            }
            WakeReason::Connected(sent, result) => {
                if result.is_ok() {
                    drain_incoming(&mut state, &clock, &mut stream);
                }
                if let Some(connected) = handle_connect(&mut state, clock.now(), sent, result) {
                    (stream, connecting, probes) = (Some(connected), None, Probes::default());
                }
            }
            WakeReason::Job | WakeReason::Due => {}
        }
    }
}

/// Completes waiting callers with an error however the thread ends.
struct StopOnExit<'a> {
    jobs: &'a JobQueue,
    clock: &'a HolderClock,
}

impl Drop for StopOnExit<'_> {
    fn drop(&mut self) {
        self.jobs.stop();
        self.clock.worker_stopped();
    }
}

enum WakeReason {
    Incoming(Result<IncomingBatch, Error>),
    Connected(Instant, ConnectResult),
    Job,
    Due,
}

async fn receive(stream: &mut Option<Stream>) -> Result<IncomingBatch, Error> {
    match stream {
        Some((_, receiver)) => receiver.recv().await,
        None => std::future::pending().await,
    }
}

async fn connected(connecting: &mut Option<Connecting>) -> (Instant, ConnectResult) {
    match connecting {
        Some(connecting) => connecting.await,
        None => std::future::pending().await,
    }
}

/// Handles what a silent stream has received, before another stream replaces it.
fn drain_incoming(state: &mut WorkerState, clock: &HolderClock, stream: &mut Option<Stream>) {
    if let Some((_, receiver)) = stream {
        while let Some(Ok(incoming)) = receiver.recv().now_or_never() {
            state.handle_incoming(clock.now(), incoming);
        }
    }
}

/// Connection attempts to suspect servers, in parallel: each of them may only be slow.
#[derive(Default)]
struct Probes(Vec<(Address, Connecting)>);

impl Probes {
    fn start(&mut self, state: &WorkerState, clock: &HolderClock) {
        for suspect in state.servers.suspects() {
            if self.0.iter().all(|(probed, _)| *probed != suspect) {
                let candidates = Candidates::Suspect(suspect.clone(), state.probe_timeout());
                self.0.push((suspect, connect(state, clock, candidates)));
            }
        }
    }

    /// Waits for the first probe that ends.
    async fn next(&mut self) -> (Instant, ConnectResult) {
        let all = self.0.iter_mut().map(|(_, probe)| probe);
        let (result, index, _) = futures::future::select_all(all).await;
        drop(self.0.swap_remove(index));
        result
    }
}

/// Opens a session on a new stream, or resumes the session.
fn connect(state: &WorkerState, clock: &HolderClock, candidates: Candidates) -> Connecting {
    let clock = clock.clone();
    let (servers, holder, resume) = (state.servers.clone(), state.settings.holder.clone(), state.session_resume());
    let ttl_ms = state.settings.timing.ttl_ms();
    Box::pin(async move {
        let sent = clock.now();
        (sent, servers.open_stream(candidates, &holder, ttl_ms, resume.as_ref()).await)
    })
}

fn handle_connect(state: &mut WorkerState, now: Instant, sent: Instant, result: ConnectResult) -> Option<Stream> {
    match result {
        Ok((opened, sender, receiver)) => match state.stream_connected(now, sent, &opened) {
            Ok(()) => return Some((sender, receiver)),
            Err(error) => {
                tracing::warn!(%error, "session not usable");
                state.schedule_reconnect(now);
            }
        },
        Err(error) => {
            tracing::debug!(%error, "connection attempt failed");
            state.metrics.emit(|hook| hook.connect_failed(&error));
            let denied = error.code() == Some(crate::Code::PermissionDenied);
            if state.session.is_some() && (denied || error.is_session_ended()) {
                state.session_ended(now);
            } else if error.is_permanent() && state.session_is_over(now) {
                tracing::warn!(%error, "session refused");
                state.session_refused(now, &error);
            } else {
                state.connect_error = Some(error);
                state.schedule_reconnect(now);
            }
        }
    }
    None
}
