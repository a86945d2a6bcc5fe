//! What one connection counts for: the limit of the server, and the limits of the identities that use it (A12).
//!
//! A connection without a certificate counts for the address of its peer until a request proves an identity. From then on it counts for
//! each identity with a request in progress, and while it is idle for the last one. So neither silent connections nor the requests of
//! one bearer token use up the connections of another one behind the same address.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_wire::v1;

use super::connection_activity::ConnectionActivity;
use super::connection_limit::{ConnectionLimit, ConnectionPermit};
use super::identity_traffic::{IdentityTraffic, limit_problem};
use super::peer_network::network_of;
use crate::identity::{Identity, Via};
use crate::log_windows::LogWindows;
use crate::metrics::{ConnectionGauge, IDENTITY_CONNECTIONS, Metrics};

/// Name of the limit of the server.
const SERVER_CONNECTIONS: &str = "connections";

/// What all connections of a server share.
#[derive(Clone)]
pub(super) struct CountedServer {
    pub limit: Arc<ConnectionLimit>,
    pub metrics: Arc<Metrics>,
    /// Bounds the lines about limits that were reached.
    pub log: Arc<LogWindows>,
}

/// What one connection counts for.
pub(super) struct ConnectionCounts {
    activity: Arc<ConnectionActivity>,
    server: CountedServer,
    counts: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    /// Its place among the connections of the server, once it is admitted.
    of_server: Option<(ConnectionPermit, ConnectionGauge)>,
    of_identities: Vec<IdentityCount>,
    /// Its place in the reserve, until it is admitted.
    in_reserve: Option<ConnectionPermit>,
    is_closed: bool,
}

/// The place of a connection among those of an identity.
struct IdentityCount {
    traffic: Arc<IdentityTraffic>,
    _permit: ConnectionPermit,
    /// Requests in progress.
    requests: usize,
}

/// The limit that keeps a connection from being admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionRefusal {
    /// That of the identity or address.
    Identity { max: u64 },
    /// That of the server.
    Server { max: u64 },
}

impl ConnectionRefusal {
    /// The name of the limit.
    pub fn limit(self) -> &'static str {
        match self {
            Self::Identity { .. } => IDENTITY_CONNECTIONS,
            Self::Server { .. } => SERVER_CONNECTIONS,
        }
    }

    pub fn problem(self) -> v1::Problem {
        let (max, message) = match self {
            Self::Identity { max } => {
                let message = format!(
                    "this identity has {max} connections and may have at most {max}; \
                     close one, send more requests on one, or ask an administrator for a higher limit"
                );
                (max, message)
            }
            Self::Server { max } => {
                (max, format!("more than {max} connections; close one, or send more requests on one"))
            }
        };
        limit_problem(self.limit(), max, max.saturating_add(1), message)
    }
}

impl ConnectionCounts {
    pub fn new(activity: Arc<ConnectionActivity>, server: CountedServer) -> Arc<Self> {
        Arc::new(Self { activity, server, counts: Mutex::default() })
    }

    /// Counts a new connection for the identity of its peer, or for its address.
    pub fn admit(&self, identity: &Identity, traffic: Option<&Arc<IdentityTraffic>>) -> Result<(), ConnectionRefusal> {
        self.count(&mut self.counts(), identity, traffic)
    }

    /// Keeps a connection that is not admitted in the reserve, where it waits for a request that is.
    pub fn keep_in_reserve(&self, permit: ConnectionPermit) {
        self.counts().in_reserve = Some(permit);
    }

    /// Counts the connection for the identity of a request, at least until the returned value is dropped.
    pub fn begin_request(
        self: &Arc<Self>,
        identity: &Identity,
        traffic: Option<&Arc<IdentityTraffic>>,
    ) -> Result<CountedRequest, ConnectionRefusal> {
        let mut counts = self.counts();
        self.count(&mut counts, identity, traffic)?;
        self.activity.set_known();
        if let Some(count) = traffic.and_then(|traffic| counts.of(traffic)) {
            count.requests += 1;
        }
        Ok(CountedRequest { connection: self.clone(), traffic: traffic.cloned() })
    }

    /// Whether the connection is within the limits.
    pub fn is_admitted(&self) -> bool {
        self.counts().of_server.is_some()
    }

    /// Resolves if the connection is not admitted in time.
    pub async fn not_admitted(&self, timeout: Duration) {
        tokio::time::sleep(timeout).await;
        if self.is_admitted() {
            std::future::pending().await
        }
    }

    /// Returns all places of a connection that has ended.
    pub fn close(&self) {
        *self.counts() = Counts { is_closed: true, ..Counts::default() };
    }

    fn count(
        &self,
        counts: &mut Counts,
        identity: &Identity,
        traffic: Option<&Arc<IdentityTraffic>>,
    ) -> Result<(), ConnectionRefusal> {
        if counts.is_closed {
            return Ok(());
        }
        // First the limit of the identity, so that at the limit of the server no other identity loses an idle connection for it.
        let new = traffic.filter(|traffic| counts.of(traffic).is_none());
        let of_identity = match new {
            None => None,
            Some(traffic) => {
                let limit = traffic.connections();
                let refusal = ConnectionRefusal::Identity { max: limit.limit() as u64 };
                let permit = self.try_acquire(limit, identity, refusal)?;
                Some(IdentityCount { traffic: traffic.clone(), _permit: permit, requests: 0 })
            }
        };
        if counts.of_server.is_none() {
            let refusal = ConnectionRefusal::Server { max: self.server.limit.limit() as u64 };
            let permit = self.try_acquire(&self.server.limit, identity, refusal)?;
            counts.of_server = Some((permit, self.server.metrics.connection_opened()));
            counts.in_reserve = None;
        }
        if let Some(count) = of_identity {
            // An idle connection counts for the identity that uses it next.
            counts.of_identities.retain(|other| other.requests > 0);
            counts.of_identities.push(count);
        }
        Ok(())
    }

    fn try_acquire(
        &self,
        limit: &Arc<ConnectionLimit>,
        identity: &Identity,
        refusal: ConnectionRefusal,
    ) -> Result<ConnectionPermit, ConnectionRefusal> {
        let permit = limit.try_acquire(&self.activity);
        match &permit {
            Some(permit) if permit.made_room => {
                self.report(identity, refusal, "the longest idle connection was closed for a new one");
            }
            Some(_) => {}
            None => self.report(identity, refusal, "a connection is refused"),
        }
        permit.ok_or(refusal)
    }

    /// Logs that a limit was reached, once per minute for each identity and each address.
    fn report(&self, identity: &Identity, refusal: ConnectionRefusal, outcome: &'static str) {
        let address = identity.peer.map(|peer| network_of(peer.ip()).to_string()).unwrap_or_default();
        let key = match (refusal, identity.via) {
            (ConnectionRefusal::Server { .. }, _) => SERVER_CONNECTIONS,
            (_, Via::Anonymous) => &address,
            _ => &identity.principal,
        };
        let Some(unlogged) = self.server.log.admit(key) else { return };
        let (ConnectionRefusal::Identity { max } | ConnectionRefusal::Server { max }) = refusal;
        tracing::warn!(
            principal = &*identity.principal,
            peer = identity.peer_text(),
            limit = refusal.limit(),
            max,
            outcome,
            unlogged,
            "connection limit reached"
        );
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
    fn of(&mut self, traffic: &Arc<IdentityTraffic>) -> Option<&mut IdentityCount> {
        self.of_identities.iter_mut().find(|count| Arc::ptr_eq(&count.traffic, traffic))
    }
}

/// A request in progress, for whose identity its connection counts.
pub(super) struct CountedRequest {
    connection: Arc<ConnectionCounts>,
    traffic: Option<Arc<IdentityTraffic>>,
}

impl Drop for CountedRequest {
    fn drop(&mut self) {
        let Some(traffic) = &self.traffic else { return };
        let mut counts = self.connection.counts();
        if let Some(count) = counts.of(traffic) {
            count.requests -= 1;
        }
        // The last identity keeps an idle connection.
        if counts.of_identities.iter().any(|count| count.requests > 0) {
            counts.of_identities.retain(|count| count.requests > 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::net::SocketAddr;

    use super::super::connection_activity::Phase;
    use super::super::identity_traffic::{TrafficLimiter, TrafficLimits, TrafficRules};
    use super::*;

    const LIMITS: TrafficLimits = TrafficLimits { connections: 2, watches: 1, requests_per_second: 1, body_bytes: 1 };

    struct World {
        limiter: Arc<TrafficLimiter>,
        server: CountedServer,
    }

    impl World {
        fn new(connections: usize) -> Self {
            let limiter = TrafficLimiter::new(TrafficRules { principals: HashMap::new(), others: LIMITS });
            let limit = ConnectionLimit::new(connections);
            Self { limiter, server: CountedServer { limit, metrics: Arc::default(), log: Arc::default() } }
        }

        fn connect(&self) -> Result<Arc<ConnectionCounts>, ConnectionRefusal> {
            let counts = ConnectionCounts::new(ConnectionActivity::new(), self.server.clone());
            counts.admit(&address(), self.limiter.of(&address()).as_ref()).map(|()| counts)
        }

        fn begin(&self, counts: &Arc<ConnectionCounts>, who: &Identity) -> Result<CountedRequest, ConnectionRefusal> {
            counts.begin_request(who, self.limiter.of(who).as_ref())
        }

        fn open(&self, who: &Identity) -> usize {
            self.limiter.of(who).expect("there are rules").connections().open()
        }
    }

    fn address() -> Identity {
        Identity::anonymous(Some(SocketAddr::from(([10, 0, 0, 1], 1))))
    }

    fn bearer(name: &str) -> Identity {
        Identity { principal: name.into(), via: Via::Bearer, ..address() }
    }

    #[test]
    fn a_connection_counts_for_its_address_until_a_request_proves_an_identity() {
        let world = World::new(9);
        let (ann, bob) = (bearer("bearer:ann"), bearer("bearer:bob"));
        let connections = [0; 2].map(|_| world.connect().expect("below the limit"));
        assert_eq!((world.open(&address()), world.open(&ann)), (2, 0));
        for counts in &connections {
            drop(world.begin(counts, &ann).expect("below the limit"));
        }
        assert_eq!((world.open(&address()), world.open(&ann)), (0, 2), "it stays with the identity while it is idle");
        let third = world.connect().expect("the address has none");
        let busy = connections.each_ref().map(|counts| counts.activity.begin().expect("open"));
        assert_eq!(world.begin(&third, &ann).err(), Some(ConnectionRefusal::Identity { max: 2 }));
        assert_eq!(world.open(&address()), 1, "a refused request proves nothing");
        drop(world.begin(&third, &bob).expect("another token has its own connections"));
        drop(busy);
        third.close();
        assert_eq!((world.open(&bob), world.server.limit.open()), (0, 2));
    }

    #[test]
    fn a_connection_of_several_identities_counts_for_each_that_has_a_request_in_progress() {
        let world = World::new(9);
        let (ann, bob) = (bearer("bearer:ann"), bearer("bearer:bob"));
        let shared = world.connect().expect("below the limit");
        let requests = [&ann, &bob, &bob].map(|who| world.begin(&shared, who).expect("below the limit"));
        assert_eq!((world.open(&address()), world.open(&ann), world.open(&bob)), (0, 1, 1));
        let [of_ann, first, second] = requests;
        drop((of_ann, first));
        assert_eq!((world.open(&ann), world.open(&bob)), (0, 1), "a request of one is in progress");
        drop(second);
        assert_eq!((world.open(&ann), world.open(&bob)), (0, 1), "the last one keeps the idle connection");
        drop(world.begin(&shared, &ann).expect("below the limit"));
        assert_eq!((world.open(&ann), world.open(&bob)), (1, 0), "it counts for the identity that uses it");
        let late = world.begin(&shared, &bob).expect("below the limit");
        shared.close();
        drop(late);
        assert_eq!((world.open(&ann), world.open(&bob), world.server.limit.open()), (0, 0, 0));
    }

    #[test]
    fn silent_connections_of_an_address_make_room_and_keep_no_known_peer_out() {
        let world = World::new(9);
        let silent = [0; 2].map(|_| world.connect().expect("below the limit"));
        let third = world.connect().expect("the oldest silent connection makes room");
        let closed = [&silent[0], &silent[1], &third].map(|counts| counts.activity.phase() == Phase::Closed);
        assert_eq!(closed, [true, false, false]);
    }

    #[test]
    fn a_connection_above_the_limit_of_its_address_is_admitted_by_a_request_of_another_identity() {
        let world = World::new(3);
        let open = [0; 2].map(|_| world.connect().expect("below the limit"));
        let busy = open.each_ref().map(|counts| counts.activity.begin().expect("open"));
        assert_eq!(world.connect().err(), Some(ConnectionRefusal::Identity { max: 2 }));
        let third = ConnectionCounts::new(ConnectionActivity::new(), world.server.clone());
        let reserve = ConnectionLimit::new(1);
        third.keep_in_reserve(reserve.try_acquire(&third.activity).expect("it is empty"));
        assert!(world.begin(&third, &address()).is_err() && !third.is_admitted());
        let request = world.begin(&third, &bearer("bearer:ann")).expect("it has its own limit");
        assert!(third.is_admitted());
        assert_eq!(reserve.open(), 0, "it needs no reserve any more");
        let _busy = third.activity.begin().expect("open");
        let fourth = ConnectionCounts::new(ConnectionActivity::new(), world.server.clone());
        let refused = world.begin(&fourth, &bearer("bearer:bob")).err();
        assert_eq!(refused, Some(ConnectionRefusal::Server { max: 3 }));
        assert_eq!(world.open(&bearer("bearer:bob")), 0, "a refusal counts nothing");
        drop((request, busy));
    }
}
