//! The session worker: one thread per client with one session on one stream. It renews all leases, so that a blocked async
//! runtime of the program loses none of them.

mod acquire;
mod actor_names;
mod caller_sleeps;
mod compensated_reply;
mod config;
mod deadline_start;
mod event_loop;
mod jitter;
mod job_queue;
mod job_result;
mod lease_calls;
mod lease_shared;
mod lease_table;
mod lease_timers;
mod multi_acquire;
mod owned_lease;
mod reply_channel;
mod request_outcome;
mod request_table;
mod session_calls;
mod session_entry;
mod session_lifecycle;
#[cfg(test)]
mod tests;
mod worker_state;

pub(crate) use compensated_reply::{CompensateOnDrop, SessionListener, SessionReply};
pub(crate) use config::SessionConfig;
pub(crate) use job_queue::{AcquireSpec, Job, LeaseCall};
pub(crate) use job_result::Response;
pub(crate) use lease_shared::{LeaseShared, LocalLeaseView, SessionDeadline};
pub(crate) use owned_lease::OwnedLease;
pub(crate) use request_outcome::PendingCall;
pub use request_outcome::{PendingOutcome, RequestError};

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use leasehold_core::command::Command;
use leasehold_core::holder::{ClockDrift, Timing};
use leasehold_core::name::HolderName;
use leasehold_core::time::Instant;
use leasehold_wire::v1::request::Operation as Message;
use tokio::sync::watch;

use crate::Error;
use crate::clock::HolderClock;
use crate::metrics_hook::MetricsSink;
use crate::server_pool::ServerPool;
use crate::session_stream::SessionResume;
use crate::transport::Transport;
use jitter::Jitter;
use job_queue::{JobQueue, ReplySlot};
use reply_channel::{client_closed, reply_channel};
use worker_state::{WorkerSettings, WorkerState};

/// How often a deadline is checked that can move closer without an event, in milliseconds: the end of the session moves it.
const CHECK_EVERY: u64 = 250;

/// Handle of clients and guards to the worker. When the last one is dropped, the session is closed and the thread ends.
pub(crate) struct WorkerHandle {
    jobs: Arc<JobQueue>,
    pub(crate) clock: HolderClock,
    pub(crate) clock_drift: ClockDrift,
    /// Holder name of the session.
    pub(crate) holder: String,
}

impl WorkerHandle {
    /// Starts the thread. It connects when there is something to send.
    pub(crate) fn start(
        servers: &ServerPool,
        config: &SessionConfig,
        metrics: MetricsSink,
        session: watch::Sender<Option<SessionResume>>,
    ) -> Result<Arc<Self>, Error> {
        let ttl_ms = u64::try_from(config.ttl.as_millis()).unwrap_or(u64::MAX);
        let clock_drift = config.clock_drift;
        let timing = Timing::new(ttl_ms, clock_drift).map_err(|wrong| Error::invalid("session_ttl", wrong))?;
        let holder = config.holder_name();
        HolderName::parse(&holder)?;
        let request_timeout_ms = u64::try_from(servers.timeouts().request.as_millis()).unwrap_or(u64::MAX);
        let trace = config.trace;
        let settings =
            WorkerSettings { holder: holder.clone(), timing, request_timeout_ms, clock_drift, trace, session };
        // Own connections, so that none depends on the caller's runtime. No call outlasts the session.
        let mut own = servers.with_own_connections(Duration::from_millis(ttl_ms / 4));
        own.trace = trace;
        let (clock, jitter) = match servers.transport() {
            Transport::Network => (HolderClock::Boot, Jitter::from_os()),
            #[cfg(any(test, feature = "testing"))]
            Transport::Memory(link) => {
                link.clock().worker_started();
                (HolderClock::Manual(link.clock()), Jitter::seeded(link.seed()))
            }
        };
        let state = WorkerState::new(settings, own, metrics, jitter);
        let jobs = Arc::new(JobQueue::new());
        let (queue, worker_clock) = (jobs.clone(), clock.clone());
        let failed = |error: std::io::Error| Error::unavailable(format!("cannot start the session worker: {error}"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let work = move || runtime.block_on(event_loop::run(state, worker_clock, queue));
        std::thread::Builder::new().name("leasehold".into()).spawn(work).map_err(failed)?;
        Ok(Arc::new(Self { jobs, clock, clock_drift, holder }))
    }

    pub(crate) fn submit(&self, job: Job) {
        self.jobs.push(job);
    }

    /// Submits a request. Waits only for a permit.
    pub(crate) async fn call<T>(
        self: &Arc<Self>,
        job: impl FnOnce(ReplySlot, Weak<Self>) -> Job,
        decode: fn(Response) -> Result<T, Error>,
    ) -> Result<PendingCall<T>, Error> {
        let permit = self.jobs.permits.clone().acquire_owned().await.map_err(|_| client_closed())?;
        let (reply, receiver) = reply_channel();
        let key = self.jobs.next_key();
        self.submit(job(ReplySlot { key, reply, _permit: permit }, Arc::downgrade(self)));
        Ok(PendingCall::new(self.clone(), key, receiver, decode))
    }

    /// Calls the grantor in this client's session. Dropping the reply returns what it grants.
    pub(crate) async fn session_call(
        self: &Arc<Self>,
        command: &Command<'_>,
    ) -> Result<SessionReply, RequestError<SessionReply>> {
        self.session_call_with(command, |response| match response {
            Response::Session(reply) => Ok(*reply),
            Response::Answer(_) | Response::Leases(_) => Err(Error::invalid_reply("an answer to another request")),
        })
        .await
    }

    /// Calls the grantor in this client's session, with a decoder for the reply.
    pub(crate) async fn session_call_with<T>(
        self: &Arc<Self>,
        command: &Command<'_>,
        decode: fn(Response) -> Result<T, Error>,
    ) -> Result<T, RequestError<T>> {
        let message = Box::new(encode(command)?);
        self.call(|slot, worker| Job::SessionCall { slot, message, worker }, decode).await?.outcome().await
    }

    /// Sends a command in this client's session without waiting for its reply.
    pub(crate) fn send_command(&self, command: &Command<'_>) {
        if let Ok(message) = encode(command) {
            self.send_detached(message);
        }
    }

    fn send_detached(&self, message: Message) {
        self.submit(Job::SendDetached(Box::new(message)));
    }

    /// Delivers session events to the listener while it lives.
    pub(crate) fn add_listener(&self, listener: Weak<dyn SessionListener>) {
        self.submit(Job::Listen(listener));
    }

    /// Releases a lease. The request is never canceled.
    pub(crate) fn release(self: &Arc<Self>, lease: Arc<LeaseShared>) -> PendingCall<()> {
        let (reply, receiver) = reply_channel();
        let key = self.jobs.next_key();
        self.submit(Job::Release { key, lease, reply: Some(reply) });
        PendingCall::uncancellable(self.clone(), key, receiver)
    }

    fn release_detached(&self, lease: Arc<LeaseShared>) {
        self.submit(Job::Release { key: 0, lease, reply: None });
    }

    /// Sleeps until this time of the clock that leases are measured with. Ends early only if the worker stops.
    pub(crate) async fn sleep_until(self: &Arc<Self>, until: Instant) {
        let (reply, receiver) = reply_channel();
        self.submit(Job::Sleep { until, reply });
        // A worker that stops wakes every sleeper; their next call returns an error.
        let _ = PendingCall::uncancellable(self.clone(), 0, receiver).outcome().await;
    }

    pub(crate) async fn sleep_ms(self: &Arc<Self>, ms: u64) {
        self.sleep_until(self.clock.now().plus_millis(ms)).await;
    }

    /// Waits until a deadline has passed, which may move meanwhile. It reads the clock on every poll: nothing else that woke this
    /// task may run before the check. A stopped worker moves no deadline, so the wait then ends, too.
    pub(crate) async fn wait_deadline(self: &Arc<Self>, deadline: impl Fn() -> Instant) {
        let has_passed = || self.clock.now() >= deadline() || self.check_running().is_err();
        while !has_passed() {
            let check_at = self.clock.now().plus_millis(CHECK_EVERY);
            let mut sleep = pin!(self.sleep_until(deadline().min(check_at)));
            poll_fn(|context| {
                let slept = sleep.as_mut().poll(context);
                if has_passed() { Poll::Ready(()) } else { slept }
            })
            .await;
        }
    }

    /// Returns an error after the worker has stopped.
    pub(crate) fn check_running(&self) -> Result<(), Error> {
        if self.jobs.is_stopped() { Err(client_closed()) } else { Ok(()) }
    }

    /// Closes the session and stops the worker.
    pub(crate) async fn close(self: Arc<Self>) -> Result<(), Error> {
        let (reply, receiver) = reply_channel();
        self.submit(Job::Close(reply));
        match PendingCall::uncancellable(self, 0, receiver).outcome().await {
            Ok(()) => Ok(()),
            // The worker has stopped all the same.
            Err(_) => Err(Error::indeterminate(
                "no server confirmed that the session is closed; its leases expire by their ttl",
                None,
            )),
        }
    }
}

fn encode(command: &Command<'_>) -> Result<Message, Error> {
    leasehold_wire::encode_command(command).ok_or_else(|| Error::invalid_reply("not a stream request"))
}

impl Drop for WorkerHandle {
    fn drop(&mut self) {
        self.jobs.close();
    }
}

impl fmt::Debug for WorkerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerHandle").finish_non_exhaustive()
    }
}
