//! Token-bucket limits on the requests per second of one connection, one peer address and one identity, and the middleware that
//! applies them.
//!
//! Operations that keep or end a lease are exempt: no holder loses a lease because it sent too many other requests.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use axum::extract::Request;
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;
use leasehold_wire::v1::request::Operation;
use leasehold_wire::{Code, v1};

use super::grpc_detection::{HEALTH_CHECK_PATH, SERVICE_PATH, SESSION_PATH, is_grpc, problem_response};
use super::identity_traffic::{IdentityTraffic, TrafficLimiter};
use super::peer_network::network_of;
use super::token_bucket::TokenBucket;
use crate::identity::{self, Identity};
use crate::metrics::{REQUEST_RATE, REQUEST_RATE_PER_ADDRESS};

/// Paths that are never rate limited. A session stream counts the requests inside of it.
const EXEMPT_PATHS: [&str; 5] = [SESSION_PATH, HEALTH_CHECK_PATH, "/healthz", "/readyz", "/metrics"];
/// Paths under which some operations are exempt. Their handlers decide, once they have decoded the operation.
const DECODED_PATHS: [&str; 3] = ["/v1/leases/", "/v1/leases:", "/v1/sessions/"];
/// gRPC methods whose operation is exempt if it can be decoded.
const DECODED_METHODS: [&str; 7] =
    ["Renew", "RenewLeases", "RenewSession", "Release", "FinishDrain", "Cancel", "Progress"];

/// Whether an operation is exempt from the limit.
pub fn is_exempt(operation: &Operation) -> bool {
    use Operation::{Cancel, FinishDrain, Progress, Release, Renew, RenewSession};
    matches!(operation, Renew(_) | RenewSession(_) | Release(_) | FinishDrain(_) | Cancel(_) | Progress(_))
}

/// Whether the limit applies to a request before it is decoded.
fn is_decided_by_handler(request: &Request) -> bool {
    let path = request.uri().path();
    let is_method = path.strip_prefix(SERVICE_PATH).is_some_and(|method| DECODED_METHODS.contains(&method));
    let is_command = DECODED_PATHS.iter().any(|prefix| path.starts_with(prefix));
    request.method() == Method::POST && (is_method || is_command)
}

/// Passes a request on unless its connection, its peer's address or its identity exceeds the limit.
pub async fn limit_rate(mut request: Request, next: Next) -> Response {
    let rate = request.extensions().get::<RequestRate>().cloned();
    let Some(rate) = rate.filter(|_| !EXEMPT_PATHS.contains(&request.uri().path())) else {
        return next.run(request).await;
    };
    let grpc = is_grpc(request.headers());
    if !is_decided_by_handler(&request) {
        return match rate.check() {
            Ok(()) => next.run(request).await,
            Err(problem) => problem_response(*problem, grpc),
        };
    }
    let charge = Arc::new(RequestCharge { rate, decided: AtomicBool::new(false) });
    request.extensions_mut().insert(charge.clone());
    let response = next.run(request).await;
    // A request that was not decoded had no effect, and is no operation that is exempt.
    match charge.check_undecided() {
        Ok(()) => response,
        Err(problem) => problem_response(*problem, grpc),
    }
}

/// A request whose operation decides whether it counts.
#[derive(Debug)]
pub struct RequestCharge {
    rate: RequestRate,
    decided: AtomicBool,
}

impl RequestCharge {
    /// Counts the request, unless its operation is exempt; fails if that exceeds the limit.
    pub fn check(&self, operation: &Operation) -> Result<(), Box<v1::Problem>> {
        self.decided.store(true, Ordering::Relaxed);
        if is_exempt(operation) { Ok(()) } else { self.rate.check() }
    }

    fn check_undecided(&self) -> Result<(), Box<v1::Problem>> {
        if self.decided.load(Ordering::Relaxed) { Ok(()) } else { self.rate.check() }
    }
}

/// The rates that count the requests of a connection: of the connection itself, and of the identity that sends each request.
#[derive(Clone, Debug)]
pub struct RequestRate {
    connection: Arc<ConnectionRate>,
    limiter: Arc<TrafficLimiter>,
    /// The identity of the connection or of the request, and its traffic.
    identity: Arc<Identity>,
    traffic: Option<Arc<IdentityTraffic>>,
}

impl RequestRate {
    pub(super) fn new(
        connection: Arc<ConnectionRate>,
        limiter: Arc<TrafficLimiter>,
        identity: Arc<Identity>,
        traffic: Option<Arc<IdentityTraffic>>,
    ) -> Self {
        Self { connection, limiter, identity, traffic }
    }

    /// The same for a request of an identity that its bearer token proves.
    pub(super) fn of_identity(&self, identity: Arc<Identity>, traffic: Option<Arc<IdentityTraffic>>) -> Self {
        Self { identity, traffic, ..self.clone() }
    }

    /// Counts a request of the current identity, or fails if that exceeds a limit.
    pub fn check(&self) -> Result<(), Box<v1::Problem>> {
        match identity::current() {
            Some(identity) => self.check_as(&identity),
            None => self.check_as(&self.identity),
        }
    }

    /// Counts a request of an identity, or fails if that exceeds a limit.
    pub fn check_as(&self, identity: &Identity) -> Result<(), Box<v1::Problem>> {
        self.connection.check()?;
        let checked = if std::ptr::eq(identity, &*self.identity) || *identity == *self.identity {
            self.traffic.as_ref().map_or(Ok(()), |traffic| traffic.check_request())
        } else {
            self.limiter.of(identity).map_or(Ok(()), |traffic| traffic.check_request())
        };
        checked.inspect_err(|_| self.connection.put_back())
    }
}

/// The limits that all connections share; they can be changed while connections are open.
#[derive(Debug)]
pub struct RateLimit {
    /// Requests per second of a connection; zero is unlimited.
    connection: AtomicU32,
    /// Requests per second of a peer address; zero is unlimited.
    address: AtomicU32,
    /// Buckets of addresses. A bucket outlives its connections until it is full again.
    addresses: Mutex<HashMap<RateKey, Arc<TokenBucket>>>,
    started: Instant,
}

/// Peers that share a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum RateKey {
    Address(IpAddr),
    /// A user of this machine, on the unix socket.
    User(u32),
}

/// The buckets of one connection: its own and that of its peer's address. The burst is one second's worth of requests.
#[derive(Debug)]
pub struct ConnectionRate {
    rate_limit: Arc<RateLimit>,
    own: TokenBucket,
    address: Arc<TokenBucket>,
}

/// Buckets of addresses above which full ones are removed.
const MIN_SWEEP: usize = 1_024;

impl RateLimit {
    /// At most so many requests per second of each connection and of each peer address; unlimited if there is none.
    pub fn new(connection: Option<u32>, address: Option<u32>) -> Arc<Self> {
        Arc::new(Self {
            connection: AtomicU32::new(connection.unwrap_or(0)),
            address: AtomicU32::new(address.unwrap_or(0)),
            addresses: Mutex::default(),
            started: Instant::now(),
        })
    }

    /// Changes the limits, also of open connections.
    pub fn set(&self, connection: Option<u32>, address: Option<u32>) {
        self.connection.store(connection.unwrap_or(0), Ordering::Relaxed);
        self.address.store(address.unwrap_or(0), Ordering::Relaxed);
    }

    /// The buckets of a new connection from an address.
    pub fn connection(self: &Arc<Self>, peer: IpAddr) -> Arc<ConnectionRate> {
        self.connection_of(RateKey::Address(network_of(peer)))
    }

    /// The buckets of a new connection of a user of this machine. All connections of one user share what those of one address share.
    pub fn user_connection(self: &Arc<Self>, uid: u32) -> Arc<ConnectionRate> {
        self.connection_of(RateKey::User(uid))
    }

    fn connection_of(self: &Arc<Self>, key: RateKey) -> Arc<ConnectionRate> {
        let now = self.now();
        let mut addresses = self.addresses.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if addresses.len() >= MIN_SWEEP && addresses.len() == addresses.capacity() {
            addresses.retain(|_, bucket| Arc::strong_count(bucket) > 1 || !bucket.is_full(now));
        }
        let address = addresses.entry(key).or_default().clone();
        Arc::new(ConnectionRate { rate_limit: self.clone(), own: TokenBucket::default(), address })
    }

    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

impl ConnectionRate {
    /// Takes one request from the buckets, or fails if one of them is empty.
    pub fn check(&self) -> Result<(), Box<v1::Problem>> {
        self.check_at(self.rate_limit.now())
    }

    /// Returns a request that was counted and then refused.
    fn put_back(&self) {
        self.own.put_back(self.rate_limit.connection.load(Ordering::Relaxed));
        self.address.put_back(self.rate_limit.address.load(Ordering::Relaxed));
    }

    fn check_at(&self, now: u64) -> Result<(), Box<v1::Problem>> {
        let limit = self.rate_limit.connection.load(Ordering::Relaxed);
        self.own.take(now, limit).map_err(|wait| rate_exceeded(REQUEST_RATE, "on this connection", limit, wait))?;
        let address_limit = self.rate_limit.address.load(Ordering::Relaxed);
        self.address.take(now, address_limit).map_err(|wait| {
            self.own.put_back(limit);
            rate_exceeded(REQUEST_RATE_PER_ADDRESS, "from this address", address_limit, wait)
        })
    }
}

fn rate_exceeded(name: &str, scope: &str, limit: u32, wait: u64) -> Box<v1::Problem> {
    let message = format!("more than {limit} requests per second {scope}; renewals and releases are not counted");
    Box::new(v1::Problem {
        next_step: "Send fewer requests, or retry later.".into(),
        limit: name.into(),
        max: Some(limit.into()),
        got: Some(u64::from(limit) + 1),
        retry_after_ms: Some(wait.div_ceil(1_000_000).max(1)),
        ..v1::Problem::of(Code::ResourceExhausted, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn limit_of(result: Result<(), Box<v1::Problem>>) -> Result<(), String> {
        result.map_err(|problem| problem.limit)
    }

    #[test]
    fn the_burst_is_one_second_and_then_requests_pass_one_by_one() {
        let rate = RateLimit::new(Some(4), None).connection(PEER);
        let at = |ms: u64| rate.check_at(ms * 1_000_000);
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
        let limit = RateLimit::new(Some(1), None);
        let (one, other) = (limit.connection(PEER), limit.connection(PEER));
        assert_eq!(one.check_at(0), Ok(()));
        assert_eq!(other.check_at(0), Ok(()));
        limit.set(None, None);
        for _ in 0..100 {
            assert_eq!(one.check_at(0), Ok(()));
        }
    }

    #[test]
    fn new_connections_of_an_address_share_its_bucket() {
        let limit = RateLimit::new(Some(2), Some(3));
        let refused = Err(REQUEST_RATE_PER_ADDRESS.to_owned());
        for request in 0..5 {
            let expected = if request < 3 { Ok(()) } else { refused.clone() };
            assert_eq!(limit_of(limit.connection(PEER).check_at(0)), expected, "request {request}");
        }
        let open = limit.connection(PEER);
        assert_eq!(limit_of(open.check_at(0)), refused);
        for ms in [334, 668] {
            assert_eq!(limit_of(open.check_at(ms * 1_000_000)), Ok(()), "a refusal of the address is not counted here");
        }
        let elsewhere = limit.connection([127, 0, 0, 2].into());
        assert_eq!(limit_of(elsewhere.check_at(0)), Ok(()), "another address has its own bucket");
        for request in 0..4 {
            let expected = if request < 3 { Ok(()) } else { refused.clone() };
            assert_eq!(limit_of(limit.user_connection(1000).check_at(0)), expected, "a user of the unix socket too");
        }
        assert_eq!(limit_of(limit.user_connection(1001).check_at(0)), Ok(()));
    }

    #[test]
    fn buckets_of_addresses_that_left_are_removed() {
        let limit = RateLimit::new(None, Some(1));
        for address in 0..100_000_u32 {
            drop(limit.connection(std::net::Ipv4Addr::from(address).into()));
        }
        let kept = limit.addresses.lock().expect("no thread panicked").len();
        assert!(kept <= 4 * MIN_SWEEP, "{kept}");
    }

    #[test]
    fn only_operations_that_keep_or_end_a_lease_are_exempt() {
        assert!(is_exempt(&Operation::Renew(v1::Renew::default())));
        assert!(is_exempt(&Operation::Release(v1::LeaseRef::default())));
        assert!(!is_exempt(&Operation::Acquire(v1::Acquire::default())));
        assert!(!is_exempt(&Operation::Check(v1::LeaseRef::default())));
    }

    #[test]
    fn the_end_of_a_path_decides_nothing() {
        let decided = |method: Method, path: &str| {
            let request = Request::builder().method(method).uri(path).body(axum::body::Body::empty());
            is_decided_by_handler(&request.expect("a request"))
        };
        for path in
            ["/v1/leases/a:renew", "/v1/leases/a:acquire", "/v1/sessions/1.0:renew", "/leasehold.v1.Leasehold/Renew"]
        {
            assert!(decided(Method::POST, path), "{path}");
            assert!(!decided(Method::GET, path), "{path}");
        }
        for path in ["/v1/coverage:renew", "/:renew", "/v1/history/a:release", "/leasehold.v1.Leasehold/Acquire"] {
            assert!(!decided(Method::POST, path), "{path}");
        }
    }
}
