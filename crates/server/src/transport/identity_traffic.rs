//! Limits on what one identity sends: connections, requests per second, unfinished bodies and watches (A12).
//!
//! A peer without an identity is counted by its address, until a bearer token proves one. Operations that keep or end a lease are never refused here. Without access
//! rules nothing is counted.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use leasehold_wire::{Code, v1};

use super::connection_limit::ConnectionLimit;
use super::limits::BODY_BYTES;
use super::peer_network::network_of;
use super::token_bucket::TokenBucket;
use crate::identity::{Identity, Via};
use crate::metrics::{IDENTITY_BODY_BYTES, IDENTITY_CONNECTIONS, IDENTITY_REQUEST_RATE, IDENTITY_WATCHES};

/// How much one identity may send at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrafficLimits {
    /// Open connections.
    pub connections: u32,
    /// Open watches.
    pub watches: u32,
    /// Requests per second, over all its connections.
    pub requests_per_second: u32,
    /// Bytes of unfinished request bodies, beyond the allowance of each connection.
    pub body_bytes: u64,
}

/// Limits by principal, and of all others.
#[derive(Clone, Debug)]
pub struct TrafficRules {
    /// Principals with limits of their own.
    pub principals: HashMap<Box<str>, TrafficLimits>,
    /// Limits of each other principal.
    pub others: TrafficLimits,
}

impl TrafficRules {
    fn of(&self, principal: &str) -> TrafficLimits {
        self.principals.get(principal).copied().unwrap_or(self.others)
    }
}

/// Counters above which those of identities that left are removed.
const MIN_SWEEP: usize = 1_024;
/// Bytes of unfinished messages of session streams above which one identity is refused: they carry renewals, so the limit of other
/// bodies does not apply to them.
const STREAM_BYTES: u64 = BODY_BYTES as u64 / 2;

/// The traffic of all identities.
#[derive(Debug)]
pub struct TrafficLimiter {
    started: Instant,
    state: Mutex<LimiterState>,
}

#[derive(Debug)]
struct LimiterState {
    /// None without access rules.
    rules: Option<TrafficRules>,
    traffic: HashMap<TrafficKey, Arc<IdentityTraffic>>,
}

/// Peers that are counted together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum TrafficKey {
    Principal(Box<str>),
    /// A peer that proved no identity.
    Address(Option<IpAddr>),
}

impl TrafficKey {
    fn of(identity: &Identity) -> Self {
        match identity.via {
            Via::Anonymous => Self::Address(identity.peer.map(|peer| network_of(peer.ip()))),
            Via::Local | Via::Uid | Via::Certificate | Via::Bearer => Self::Principal(identity.principal.clone()),
        }
    }

    fn principal(&self) -> &str {
        match self {
            Self::Principal(principal) => principal,
            Self::Address(_) => Identity::ANONYMOUS,
        }
    }
}

/// The traffic of one identity.
#[derive(Debug)]
pub struct IdentityTraffic {
    started: Instant,
    connections: Arc<ConnectionLimit>,
    watches: AtomicU32,
    max_watches: AtomicU32,
    requests: TokenBucket,
    requests_per_second: AtomicU32,
    body_bytes: AtomicU64,
    max_body_bytes: AtomicU64,
}

impl TrafficLimiter {
    /// The limiter of a server without access rules.
    pub fn unlimited() -> Arc<Self> {
        Self::of_rules(None)
    }

    /// A limiter with rules.
    pub fn new(rules: TrafficRules) -> Arc<Self> {
        Self::of_rules(Some(rules))
    }

    fn of_rules(rules: Option<TrafficRules>) -> Arc<Self> {
        let state = Mutex::new(LimiterState { rules, traffic: HashMap::new() });
        Arc::new(Self { started: Instant::now(), state })
    }

    /// Replaces the limits, also of identities that are connected. A lower limit closes nothing.
    pub fn set(&self, rules: TrafficRules) {
        let mut state = self.state();
        for (key, traffic) in &state.traffic {
            traffic.set(&rules.of(key.principal()));
        }
        state.rules = Some(rules);
    }

    /// The traffic of an identity; none without access rules.
    pub fn of(&self, identity: &Identity) -> Option<Arc<IdentityTraffic>> {
        let mut state = self.state();
        let LimiterState { rules: Some(rules), traffic } = &mut *state else { return None };
        let key = TrafficKey::of(identity);
        if let Some(known) = traffic.get(&key) {
            return Some(known.clone());
        }
        if traffic.len() >= MIN_SWEEP && traffic.len() == traffic.capacity() {
            let now = self.now();
            traffic.retain(|_, known| Arc::strong_count(known) > 1 || !known.requests.is_full(now));
        }
        let new = Arc::new(IdentityTraffic::new(self.started, &rules.of(key.principal())));
        traffic.insert(key, new.clone());
        Some(new)
    }

    /// The highest share of each limit that one identity uses now, by the name of the limit.
    pub fn highest_shares(&self) -> [(&'static str, f64); 3] {
        let mut highest = [(IDENTITY_CONNECTIONS, 0.0), (IDENTITY_WATCHES, 0.0), (IDENTITY_BODY_BYTES, 0.0)];
        for traffic in self.state().traffic.values() {
            let shares = [
                share(traffic.connections.open() as u64, traffic.connections.limit() as u64),
                share(
                    traffic.watches.load(Ordering::Relaxed).into(),
                    traffic.max_watches.load(Ordering::Relaxed).into(),
                ),
                share(traffic.body_bytes.load(Ordering::Relaxed), traffic.max_body_bytes.load(Ordering::Relaxed)),
            ];
            for ((_, highest), share) in highest.iter_mut().zip(shares) {
                *highest = share.max(*highest);
            }
        }
        highest
    }

    fn now(&self) -> u64 {
        nanoseconds_since(self.started)
    }

    fn state(&self) -> MutexGuard<'_, LimiterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The share of a limit that is used; 1 if the limit is zero.
pub fn share(used: u64, max: u64) -> f64 {
    match (used, max) {
        (0, _) => 0.0,
        (_, 0) => 1.0,
        (used, max) => used as f64 / max as f64,
    }
}

fn nanoseconds_since(started: Instant) -> u64 {
    u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

impl IdentityTraffic {
    fn new(started: Instant, limits: &TrafficLimits) -> Self {
        Self {
            started,
            connections: ConnectionLimit::new(limits.connections as usize),
            watches: AtomicU32::new(0),
            max_watches: AtomicU32::new(limits.watches),
            requests: TokenBucket::default(),
            requests_per_second: AtomicU32::new(limits.requests_per_second),
            body_bytes: AtomicU64::new(0),
            max_body_bytes: AtomicU64::new(limits.body_bytes),
        }
    }

    fn set(&self, limits: &TrafficLimits) {
        self.connections.resize(limits.connections as usize);
        self.max_watches.store(limits.watches, Ordering::Relaxed);
        self.requests_per_second.store(limits.requests_per_second, Ordering::Relaxed);
        self.max_body_bytes.store(limits.body_bytes, Ordering::Relaxed);
    }

    /// Its open connections. At the limit its own longest idle one makes room.
    pub fn connections(&self) -> &Arc<ConnectionLimit> {
        &self.connections
    }

    /// Takes one request from its rate, or fails if there is none left.
    pub fn check_request(&self) -> Result<(), Box<v1::Problem>> {
        self.check_request_at(nanoseconds_since(self.started))
    }

    fn check_request_at(&self, now: u64) -> Result<(), Box<v1::Problem>> {
        let max = self.requests_per_second.load(Ordering::Relaxed);
        self.requests.take(now, max).map_err(|wait| {
            let message =
                format!("more than {max} requests per second of this identity; renewals and releases are not counted");
            let next_step = "Send fewer requests, retry later, or ask an administrator for a higher limit.";
            let retry_after_ms = Some(wait.div_ceil(1_000_000).max(1));
            Box::new(v1::Problem {
                retry_after_ms,
                next_step: next_step.into(),
                ..limit_problem(IDENTITY_REQUEST_RATE, max.into(), u64::from(max) + 1, message)
            })
        })
    }

    /// A place for one watch, or the reason why there is none.
    pub fn open_watch(self: &Arc<Self>) -> Result<WatchPermit, Box<v1::Problem>> {
        let max = self.max_watches.load(Ordering::Relaxed);
        let below = |open: u32| (open < max).then_some(open + 1);
        match self.watches.fetch_update(Ordering::Relaxed, Ordering::Relaxed, below) {
            Ok(_) => Ok(WatchPermit(self.clone())),
            Err(open) => {
                let message = format!(
                    "this identity has {open} watches and may have at most {max}; \
                     end one, watch a common prefix, or ask an administrator for a higher limit"
                );
                Err(Box::new(limit_problem(IDENTITY_WATCHES, max.into(), u64::from(open) + 1, message)))
            }
        }
    }

    /// Counts bytes of an unfinished body until the returned charge is dropped; none if that exceeds the limit.
    pub(super) fn charge_body(self: &Arc<Self>, bytes: u64, kind: BodyKind) -> Option<TrafficBytes> {
        let max = self.max_body_bytes.load(Ordering::Relaxed);
        let max = if kind == BodyKind::SessionStream { max.max(STREAM_BYTES) } else { max };
        let below = |charged: u64| charged.checked_add(bytes).filter(|charged| *charged <= max);
        self.body_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, below).ok()?;
        Some(TrafficBytes { traffic: self.clone(), bytes })
    }

    /// The problem of a body that exceeds the limit.
    pub(super) fn body_problem(&self) -> v1::Problem {
        let max = self.max_body_bytes.load(Ordering::Relaxed);
        let charged = self.body_bytes.load(Ordering::Relaxed);
        let message = format!(
            "body: this identity has {charged} bytes in unfinished requests and may have at most {max}; nothing happened, retry after a moment"
        );
        let problem =
            limit_problem(IDENTITY_BODY_BYTES, max, charged.saturating_add(1).max(max.saturating_add(1)), message);
        v1::Problem { field: "body".into(), retry_after_ms: Some(1_000), ..problem }
    }
}

/// The problem of something that exceeds a limit.
pub(super) fn limit_problem(limit: &str, max: u64, got: u64, message: String) -> v1::Problem {
    v1::Problem {
        limit: limit.into(),
        max: Some(max),
        got: Some(got),
        ..v1::Problem::of(Code::ResourceExhausted, message)
    }
}

/// What a body belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyKind {
    Request,
    /// A message of a session stream, which may carry renewals.
    SessionStream,
}

/// One open watch, until it is dropped.
#[derive(Debug)]
pub struct WatchPermit(Arc<IdentityTraffic>);

impl Drop for WatchPermit {
    fn drop(&mut self) {
        self.0.watches.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counted bytes of an unfinished body, until they are dropped.
#[derive(Debug)]
pub(super) struct TrafficBytes {
    traffic: Arc<IdentityTraffic>,
    bytes: u64,
}

impl TrafficBytes {
    /// Adds bytes of the same identity.
    pub(super) fn merge(&mut self, mut other: Self) {
        debug_assert!(Arc::ptr_eq(&self.traffic, &other.traffic), "one body is of one identity");
        self.bytes += std::mem::take(&mut other.bytes);
    }
}

impl Drop for TrafficBytes {
    fn drop(&mut self) {
        self.traffic.body_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    const LIMITS: TrafficLimits =
        TrafficLimits { connections: 2, watches: 2, requests_per_second: 3, body_bytes: 1_000 };

    fn limiter() -> Arc<TrafficLimiter> {
        TrafficLimiter::new(TrafficRules { principals: HashMap::new(), others: LIMITS })
    }

    fn identity(principal: &str) -> Identity {
        Identity { principal: principal.into(), via: Via::Uid, credential: "".into(), peer: None, not_after: None }
    }

    fn limit_of<T>(result: Result<T, Box<v1::Problem>>) -> Result<T, (String, Option<u64>, Option<u64>)> {
        result.map_err(|problem| (problem.limit, problem.max, problem.got))
    }

    #[test]
    fn each_identity_has_its_own_counts() {
        let limiter = limiter();
        let traffic = |principal: &str| limiter.of(&identity(principal)).expect("there are rules");
        let (ann, bob) = (traffic("uid:1"), traffic("uid:2"));
        let watches = [ann.open_watch(), traffic("uid:1").open_watch()];
        assert!(watches.iter().all(Result::is_ok));
        let refused = limit_of(ann.open_watch().map(drop));
        assert_eq!(refused, Err((IDENTITY_WATCHES.to_owned(), Some(2), Some(3))));
        assert!(bob.open_watch().is_ok());
        for _ in 0..3 {
            assert_eq!(ann.check_request_at(0), Ok(()));
        }
        assert_eq!(limit_of(ann.check_request_at(0)), Err((IDENTITY_REQUEST_RATE.to_owned(), Some(3), Some(4))));
        assert_eq!(bob.check_request_at(0), Ok(()));
        let body = ann.charge_body(900, BodyKind::Request).expect("below the limit");
        assert!(ann.charge_body(101, BodyKind::Request).is_none());
        assert!(bob.charge_body(1_000, BodyKind::Request).is_some());
        let shares = limiter.highest_shares();
        assert_eq!(shares, [(IDENTITY_CONNECTIONS, 0.0), (IDENTITY_WATCHES, 1.0), (IDENTITY_BODY_BYTES, 0.9)]);
        drop((body, watches));
        assert!(ann.charge_body(1_000, BodyKind::Request).is_some() && ann.open_watch().is_ok());
        assert_eq!(limiter.highest_shares().map(|(_, share)| share), [0.0; 3], "what ended is returned");
    }

    #[test]
    fn messages_of_session_streams_are_not_refused_by_the_limit_of_other_bodies() {
        let ann = limiter().of(&identity("uid:1")).expect("there are rules");
        let _bodies = ann.charge_body(1_000, BodyKind::Request).expect("below the limit");
        let mut message = ann.charge_body(256 << 10, BodyKind::SessionStream).expect("it may carry renewals");
        message.merge(ann.charge_body(1, BodyKind::SessionStream).expect("it may carry renewals"));
        assert!(ann.charge_body(STREAM_BYTES, BodyKind::SessionStream).is_none(), "one identity cannot use up all");
        drop(message);
        assert_eq!(ann.body_bytes.load(Ordering::Relaxed), 1_000);
    }

    #[test]
    fn a_peer_without_an_identity_is_counted_by_its_address() {
        let limiter = limiter();
        let at = |address: &str| {
            let peer: SocketAddr = address.parse().expect("an address");
            limiter.of(&Identity::anonymous(Some(peer))).expect("there are rules")
        };
        let _watches = [at("10.0.0.1:1").open_watch(), at("10.0.0.1:2").open_watch()];
        assert!(at("10.0.0.1:3").open_watch().is_err());
        assert!(at("10.0.0.2:1").open_watch().is_ok());
    }

    #[test]
    fn new_limits_apply_to_identities_that_are_connected() {
        let limiter = limiter();
        let ann = limiter.of(&identity("uid:1")).expect("there are rules");
        let _watches = [ann.open_watch(), ann.open_watch()];
        let principals = HashMap::from([("uid:1".into(), TrafficLimits { watches: 3, ..LIMITS })]);
        limiter.set(TrafficRules { principals, others: TrafficLimits { watches: 0, ..LIMITS } });
        let third = ann.open_watch();
        assert!(third.is_ok() && ann.open_watch().is_err());
        assert!(limiter.of(&identity("uid:2")).expect("there are rules").open_watch().is_err());
        limiter.set(TrafficRules { principals: HashMap::new(), others: TrafficLimits { watches: 1, ..LIMITS } });
        drop(third);
        assert!(ann.open_watch().is_err(), "a lower limit ends nothing, and applies to new watches");
        assert!(
            TrafficLimiter::unlimited().of(&identity("uid:1")).is_none(),
            "without access rules nothing is counted"
        );
    }

    #[test]
    fn counters_of_identities_that_left_are_removed() {
        let limiter = limiter();
        for uid in 0..10 * MIN_SWEEP {
            drop(limiter.of(&identity(&format!("uid:{uid}"))));
        }
        assert!(limiter.state().traffic.len() <= 4 * MIN_SWEEP);
    }
}
