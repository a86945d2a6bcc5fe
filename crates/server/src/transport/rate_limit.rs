//! Token-bucket limit on the requests per second of one connection, and the middleware that applies it.
//!
//! Operations that keep or end a lease are exempt: no holder loses a lease because it sent too many other requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use leasehold_wire::v1::request::Operation;
use leasehold_wire::{Code, v1};

use super::grpc_requests::{SERVICE_PATH, SESSION_PATH, is_grpc, problem_response};
use crate::metrics::REQUEST_RATE;

/// An operation that is never rate limited, with its unary gRPC method and its HTTP verb if it has them.
struct ExemptOperation {
    matches: fn(&Operation) -> bool,
    grpc_method: Option<&'static str>,
    http_verb: Option<&'static str>,
}

const EXEMPT_OPERATIONS: [ExemptOperation; 6] = [
    ExemptOperation {
        matches: |operation| matches!(operation, Operation::Renew(_)),
        grpc_method: Some("Renew"),
        http_verb: Some(":renew"),
    },
    ExemptOperation {
        matches: |operation| matches!(operation, Operation::RenewSession(_)),
        grpc_method: Some("RenewSession"),
        http_verb: Some(":renew"),
    },
    ExemptOperation {
        matches: |operation| matches!(operation, Operation::Release(_)),
        grpc_method: Some("Release"),
        http_verb: Some(":release"),
    },
    ExemptOperation {
        matches: |operation| matches!(operation, Operation::FinishDrain(_)),
        grpc_method: Some("FinishDrain"),
        http_verb: Some(":drained"),
    },
    ExemptOperation {
        matches: |operation| matches!(operation, Operation::Cancel(_)),
        grpc_method: None,
        http_verb: None,
    },
    ExemptOperation {
        matches: |operation| matches!(operation, Operation::Progress(_)),
        grpc_method: None,
        http_verb: None,
    },
];

/// Paths that are never rate limited. A session stream counts the requests inside of it.
const EXEMPT_PATHS: [&str; 4] = [SESSION_PATH, "/healthz", "/readyz", "/metrics"];

/// Whether an operation of a session stream is exempt from the limit.
pub fn is_exempt(operation: &Operation) -> bool {
    EXEMPT_OPERATIONS.iter().any(|exempt| (exempt.matches)(operation))
}

fn is_exempt_path(path: &str) -> bool {
    let method = path.strip_prefix(SERVICE_PATH);
    EXEMPT_PATHS.contains(&path)
        || EXEMPT_OPERATIONS.iter().any(|exempt| {
            method.is_some_and(|method| exempt.grpc_method == Some(method))
                || exempt.http_verb.is_some_and(|verb| path.ends_with(verb))
        })
}

/// Passes a request on unless its connection exceeds the limit.
pub async fn limit_rate(request: Request, next: Next) -> Response {
    if is_exempt_path(request.uri().path()) {
        return next.run(request).await;
    }
    match request.extensions().get::<Arc<ConnectionRate>>().map_or(Ok(()), |rate| rate.check()) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem_response(*problem, is_grpc(request.headers())),
    }
}

/// The limit that all connections share; it can be changed while they are open.
#[derive(Debug)]
pub struct RateLimit {
    /// Requests per second; zero is unlimited.
    limit: AtomicU32,
    started: Instant,
}

/// Token bucket of one connection. Its burst is one second's worth of requests.
#[derive(Debug)]
pub struct ConnectionRate {
    rate_limit: Arc<RateLimit>,
    /// The time at which the bucket is full again, in nanoseconds since the limit was created.
    full_at: AtomicU64,
}

const SECOND: u64 = 1_000_000_000;

impl RateLimit {
    /// At most `limit` requests per second of each connection; unlimited if there is none.
    pub fn new(limit: Option<u32>) -> Arc<Self> {
        Arc::new(Self { limit: AtomicU32::new(limit.unwrap_or(0)), started: Instant::now() })
    }

    /// Changes the limit, also of open connections.
    pub fn set(&self, limit: Option<u32>) {
        self.limit.store(limit.unwrap_or(0), Ordering::Relaxed);
    }

    /// The bucket of a new connection.
    pub fn connection(self: &Arc<Self>) -> Arc<ConnectionRate> {
        Arc::new(ConnectionRate { rate_limit: self.clone(), full_at: AtomicU64::new(0) })
    }
}

impl ConnectionRate {
    /// Takes one request from the bucket, or fails if it is empty.
    pub fn check(&self) -> Result<(), Box<v1::Problem>> {
        let limit = self.rate_limit.limit.load(Ordering::Relaxed);
        if limit == 0 {
            return Ok(());
        }
        self.check_at(u64::try_from(self.rate_limit.started.elapsed().as_nanos()).unwrap_or(u64::MAX), limit)
    }

    fn check_at(&self, now: u64, limit: u32) -> Result<(), Box<v1::Problem>> {
        let interval = SECOND.div_ceil(limit.into());
        let taken = self.full_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |full_at| {
            let full_at = full_at.max(now) + interval;
            (full_at - now <= SECOND.max(interval)).then_some(full_at)
        });
        taken.map(drop).map_err(|full_at| {
            let wait = (full_at + interval - now).saturating_sub(SECOND);
            Box::new(rate_exceeded(limit, wait))
        })
    }
}

fn rate_exceeded(limit: u32, wait: u64) -> v1::Problem {
    let message =
        format!("more than {limit} requests per second on this connection; renewals and releases are not counted");
    v1::Problem {
        next_step: "Send fewer requests, or spread them over more connections.".into(),
        limit: REQUEST_RATE.into(),
        max: Some(limit.into()),
        got: Some(u64::from(limit) + 1),
        retry_after_ms: Some(wait.div_ceil(1_000_000).max(1)),
        ..v1::Problem::of(Code::ResourceExhausted, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_burst_is_one_second_and_then_requests_pass_one_by_one() {
        let rate = RateLimit::new(Some(4)).connection();
        let at = |ms: u64| rate.check_at(ms * 1_000_000, 4);
        for _ in 0..4 {
            assert_eq!(at(5_000), Ok(()));
        }
        let rejected = at(5_000).expect_err("the fifth request of a second");
        assert_eq!((rejected.limit.as_str(), rejected.max, rejected.got), (REQUEST_RATE, Some(4), Some(5)));
        assert_eq!(rejected.retry_after_ms, Some(250));
        assert_eq!(at(5_249).map_err(|rejected| rejected.retry_after_ms), Err(Some(1)), "rejections are not counted");
        assert_eq!(at(5_250), Ok(()));
        assert!(at(5_250).is_err());
        for _ in 0..4 {
            assert_eq!(at(60_000), Ok(()), "the burst is at most one second");
        }
        assert!(at(60_000).is_err());
    }

    #[test]
    fn each_connection_has_its_own_bucket_and_without_a_limit_every_request_passes() {
        let limit = RateLimit::new(Some(1));
        let (one, other) = (limit.connection(), limit.connection());
        assert_eq!(one.check(), Ok(()));
        assert_eq!(other.check(), Ok(()));
        limit.set(None);
        for _ in 0..100 {
            assert_eq!(one.check(), Ok(()));
        }
    }

    #[test]
    fn renewals_and_releases_are_exempt_over_every_transport() {
        for path in
            ["/leasehold.v1.Leasehold/Renew", "/v1/leases/jobs/settle:release", "/v1/sessions/1.0:renew", "/metrics"]
        {
            assert!(is_exempt_path(path), "{path}");
        }
        for path in ["/leasehold.v1.Leasehold/Acquire", "/leasehold.v1.Leasehold/Cancel", "/v1/leases/jobs:acquire"] {
            assert!(!is_exempt_path(path), "{path}");
        }
        assert!(is_exempt(&Operation::Renew(v1::Renew::default())));
        assert!(!is_exempt(&Operation::Acquire(v1::Acquire::default())));
    }
}
