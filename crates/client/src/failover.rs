//! Routing and retries of unary calls: the server that answered last, then the others, then the leader they name.

use std::collections::VecDeque;
use std::error::Error as _;
use std::future::Future;
use std::time::Duration;

use leasehold_core::time::DurationText;
use leasehold_wire::headers::{
    ALONE, IDEMPOTENCY_KEY, LEASE_SECRET, POSITION, SESSION_SECRET, STANDBY, TOKEN_SEEN, TOKEN_SEEN_RESOURCE,
    TRACEPARENT, percent_encode,
};
use leasehold_wire::{Code, problem_from_status};
use tonic::metadata::MetadataValue;
use tonic::{ConnectError, Request, Response, Status};

use crate::server_pool::{GrpcClient, ServerPool};
use crate::{Address, Error};

/// Header with the bearer token.
const AUTHORIZATION: &str = "authorization";
/// How often a request follows a hint to the leader.
const MAX_HINTS: u32 = 3;
/// Timeout of a request to a suspect server.
const SUSPECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Whether a request may be sent twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetrySafety {
    /// It changes nothing.
    ReadOnly,
    /// It changes something, and executing it twice is harmless.
    Idempotent,
    /// Executing it twice changes something twice.
    NotIdempotent,
}

/// Servers to try for a stream. A paused server accepts connections and does not answer, and a busy one looks the same: so the
/// healthy servers are tried while suspect ones are still waited for.
#[derive(Clone, Debug)]
pub(crate) enum Candidates {
    /// All servers, with the timeout of a request.
    All,
    /// All servers that are not suspect, each with this timeout.
    Healthy(Duration),
    /// One suspect server, with this timeout.
    Suspect(Address, Duration),
}

/// Outcome of one attempt.
enum AttemptOutcome<A> {
    Answered(Result<A, Error>),
    /// Another server is the leader.
    NotLeader(Error),
    /// The request was not sent.
    NotSent(String),
    /// The request may have arrived.
    NoReply(String),
}

impl ServerPool {
    /// Sends a request until the leader has answered. `wait` is the wait time in the request itself.
    pub(crate) async fn call<M, A, S, W>(
        &self,
        safety: RetrySafety,
        wait: Duration,
        message: M,
        send: S,
    ) -> Result<A, Error>
    where
        M: Clone,
        S: Fn(GrpcClient, Request<M>) -> W,
        W: Future<Output = Result<Response<A>, Status>>,
    {
        let safety = if self.idempotency_key.is_some() && safety == RetrySafety::NotIdempotent {
            RetrySafety::Idempotent
        } else {
            safety
        };
        let timeout = |at: &Address| self.call_timeout(at, safety, wait);
        self.try_servers(self.in_order(), safety, timeout, message, send).await.map(|(_, answer)| answer)
    }

    /// Sends a hello until a server has accepted it. Returns the server and its answer.
    pub(crate) async fn send_hello<M, A, S, W>(
        &self,
        candidates: Candidates,
        hello: M,
        send: S,
    ) -> Result<(Address, A), Error>
    where
        M: Clone,
        S: Fn(GrpcClient, Request<M>) -> W,
        W: Future<Output = Result<Response<A>, Status>>,
    {
        let (queue, max) = match candidates {
            Candidates::All => (self.in_order(), None),
            Candidates::Healthy(max) => {
                (self.in_order().into_iter().filter(|at| !self.is_suspect(at)).collect(), Some(max))
            }
            Candidates::Suspect(at, max) => ([at].into(), Some(max)),
        };
        let safety = RetrySafety::Idempotent;
        let timeout = |at: &Address| max.unwrap_or_else(|| self.call_timeout(at, safety, Duration::ZERO));
        self.try_servers(queue, safety, timeout, hello, send).await
    }

    /// Tries one server after the other, and the leader they name. Returns the server that answered.
    async fn try_servers<M, A, S, W>(
        &self,
        mut queue: VecDeque<Address>,
        safety: RetrySafety,
        timeout: impl Fn(&Address) -> Duration,
        message: M,
        send: S,
    ) -> Result<(Address, A), Error>
    where
        M: Clone,
        S: Fn(GrpcClient, Request<M>) -> W,
        W: Future<Output = Result<Response<A>, Status>>,
    {
        let mut hints = MAX_HINTS;
        let mut unanswered_before = false;
        let mut not_leader = None;
        let mut failures = Vec::new();
        while let Some(at) = queue.pop_front() {
            let mut request = self.with_metadata(message.clone());
            if let Some(file) = self.bearer(&at)? {
                match file.header() {
                    Ok(value) => drop(request.metadata_mut().insert(AUTHORIZATION, value)),
                    // The file may be about to be replaced.
                    Err(reason) => {
                        failures.push(format!("bearer_file: {reason}"));
                        break;
                    }
                }
            }
            let sent = send(self.grpc_client(&at)?, request);
            match self.attempt(&at, safety, timeout(&at), sent).await {
                AttemptOutcome::Answered(answer) => {
                    self.set_last_server(&at);
                    return answer.map(|answer| (at, answer));
                }
                AttemptOutcome::NotLeader(error) => {
                    let hint = error.leader().and_then(|leader| Address::parse(leader).ok());
                    let hint = hint.filter(|leader| self.may_follow(leader));
                    // The hint may name a paused leader until the others have noticed. It is tried last anyway.
                    if let Some(leader) = hint.filter(|leader| hints > 0 && !self.is_suspect(leader)) {
                        hints -= 1;
                        queue.retain(|other| *other != leader);
                        queue.push_front(leader);
                    }
                    not_leader = Some(error);
                }
                AttemptOutcome::NotSent(reason) => failures.push(format!("{at}: {reason}")),
                AttemptOutcome::NoReply(reason) => {
                    if safety == RetrySafety::NotIdempotent {
                        return Err(self.outcome_unknown(&format!("{at}: {reason}")));
                    }
                    failures.push(format!("{at}: {reason}"));
                    // Retries once if there is no other server: it may just have restarted. A silent one has not.
                    if !unanswered_before && queue.is_empty() && !self.is_suspect(&at) {
                        queue.push_back(at);
                    }
                    unanswered_before = true;
                }
            }
        }
        let failures = failures.join(", ");
        Err(match not_leader {
            _ if unanswered_before && safety == RetrySafety::Idempotent => self.outcome_unknown(&failures),
            Some(error) => error,
            None => Error::unavailable(format!("no server answered ({failures})")),
        })
    }

    fn call_timeout(&self, at: &Address, safety: RetrySafety, wait: Duration) -> Duration {
        let timeout = self.timeouts().connect + self.timeouts().request + wait;
        // Only if there is another server to try, and a retry is harmless.
        let short = safety == RetrySafety::Idempotent && wait.is_zero() && self.has_healthy_server();
        if short && self.is_suspect(at) { timeout.min(SUSPECT_TIMEOUT) } else { timeout }
    }

    async fn attempt<A>(
        &self,
        at: &Address,
        safety: RetrySafety,
        timeout: Duration,
        sent: impl Future<Output = Result<Response<A>, Status>>,
    ) -> AttemptOutcome<A> {
        let Ok(answered) = tokio::time::timeout(timeout, sent).await else {
            self.mark_suspect(at);
            return AttemptOutcome::NoReply(format!(
                "no reply within {}",
                DurationText(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX))
            ));
        };
        self.clear_suspect(at);
        let status = match answered {
            Ok(response) => {
                let position = response.metadata().get(POSITION).and_then(|text| text.to_str().ok()?.parse().ok());
                if let Some(position) = position {
                    self.set_last_position(position);
                }
                return AttemptOutcome::Answered(Ok(response.into_inner()));
            }
            Err(status) => status,
        };
        if let Some(reason) = connect_failure(&status) {
            return AttemptOutcome::NotSent(reason);
        }
        let error = Error::from(problem_from_status(&status));
        match error.code() {
            Some(Code::NotLeader) => AttemptOutcome::NotLeader(error),
            // A server that shuts down sends details; a broken connection does not.
            Some(Code::Indeterminate) if safety != RetrySafety::NotIdempotent || status.details().is_empty() => {
                AttemptOutcome::NoReply(cause(&status))
            }
            _ => AttemptOutcome::Answered(Err(error)),
        }
    }

    fn outcome_unknown(&self, reason: &str) -> Error {
        let message = format!("no reply arrived; the request may have been executed ({reason})");
        Error::indeterminate(message, self.idempotency_key.map(|key| key.to_string()))
    }

    fn with_metadata<M>(&self, message: M) -> Request<M> {
        let mut request = Request::new(message);
        let mut insert = |name: &'static str, text: String| {
            if let Ok(mut value) = MetadataValue::try_from(text) {
                value.set_sensitive(name == SESSION_SECRET || name == LEASE_SECRET);
                request.metadata_mut().insert(name, value);
            }
        };
        if let Some(key) = self.idempotency_key {
            insert(IDEMPOTENCY_KEY, key.to_string());
        }
        if let Some(secret) = &self.session_secret {
            insert(SESSION_SECRET, secret.expose_hex());
        }
        if let Some(secret) = &self.lease_secret {
            insert(LEASE_SECRET, secret.expose_hex());
        }
        if let Some(reason) = &self.alone {
            insert(ALONE, percent_encode(reason));
        }
        if let Some(trace) = self.trace {
            insert(TRACEPARENT, trace.to_string());
        }
        if let Some(min_position) = self.standby {
            insert(STANDBY, min_position.to_string());
        }
        if let Some(highest) = self.highest_token() {
            insert(TOKEN_SEEN, highest.token.to_string());
            insert(TOKEN_SEEN_RESOURCE, percent_encode(&highest.resource));
        }
        request
    }
}

/// Why the connection failed, if it did: then nothing was sent.
fn connect_failure(status: &Status) -> Option<String> {
    let mut source = status.source();
    while let Some(error) = source {
        if error.is::<ConnectError>() {
            return Some(root_cause(error));
        }
        source = error.source();
    }
    None
}

fn cause(status: &Status) -> String {
    status.source().map_or_else(|| status.message().to_owned(), root_cause)
}

/// The last error of a chain of sources, which names the cause.
pub(crate) fn root_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut last = error;
    while let Some(next) = last.source() {
        last = next;
    }
    last.to_string()
}
