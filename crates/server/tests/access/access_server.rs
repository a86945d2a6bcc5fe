//! A server with access rules, and listeners whose connections have an identity that the test chooses.

use std::net::SocketAddr;
use std::sync::{Arc, RwLock};

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue};
use axum::middleware::{Next, from_fn};
use leasehold_server::access::{AccessControl, AccessFile};
use leasehold_server::api;
use leasehold_server::identity::{Identity, Via, on_behalf_of};
use leasehold_server::journal::memory::Memory;
use leasehold_server::sealing::TokenSealer;
use leasehold_server::server::{ServerConfig, ServerHandle, start};
use leasehold_server::transport::{AllowedHosts, ListenConfig, Listener, ServeTask, TransportLimits};
use leasehold_wire::json::ProblemBody;

use crate::transport_clients::{GrpcClient, HttpConnection, SessionStream, connect};

/// The administrator of every test.
pub const ADMIN: &str = "uid:0";

/// A server with access rules.
pub struct AccessServer {
    pub handle: ServerHandle,
    pub control: Arc<AccessControl>,
    /// Headers that are added to every request of a listener with an identity: the secrets that the caller presents.
    pub secrets: Arc<RwLock<HeaderMap>>,
    serving: Vec<ServeTask>,
}

/// The text of an access file.
pub fn access_text(grants: &[(&str, &str, &str)]) -> String {
    let grant = |(principal, role, prefix): &(&str, &str, &str)| {
        format!("[[grant]]\nprincipal = {principal:?}\nrole = {role:?}\nprefix = {prefix:?}\n")
    };
    grants.iter().map(grant).collect()
}

/// Limits that no test reaches which is not about limits.
const WIDE_LIMITS: &str = "[limits]\nsessions = 1000000\nconnections = 100000\nrequests_per_second = 1000000\n";

/// An access file with these grants, and the administrator.
pub fn access_file(grants: &[(&str, &str, &str)]) -> AccessFile {
    let all: Vec<_> = [(ADMIN, "admin", "")].into_iter().chain(grants.iter().copied()).collect();
    AccessFile::parse(&format!("{}{WIDE_LIMITS}", access_text(&all))).expect("the access file is valid")
}

/// An identity as a unix socket gives it.
pub fn identity(principal: &str) -> Identity {
    Identity { principal: principal.into(), via: Via::Uid, credential: "".into(), peer: None, not_after: None }
}

impl AccessServer {
    /// Starts a server with these grants, and an administrator.
    pub async fn start(grants: &[(&str, &str, &str)]) -> Self {
        Self::start_with(&access_file(grants)).await
    }

    /// Starts a server that seals tokens.
    pub async fn start_sealed(grants: &[(&str, &str, &str)], sealer: Arc<TokenSealer>) -> Self {
        Self::start_from(&access_file(grants), sealer).await
    }

    /// Starts a server with an access file.
    pub async fn start_with(file: &AccessFile) -> Self {
        Self::start_from(file, Arc::default()).await
    }

    async fn start_from(file: &AccessFile, sealer: Arc<TokenSealer>) -> Self {
        let control = Arc::new(AccessControl::new(file));
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let config = ServerConfig { listen, access: control.clone(), sealer, ..ServerConfig::default() };
        let handle = start(Memory::default(), config).await.expect("a server starts on a free port");
        Self { handle, control, secrets: Arc::default(), serving: Vec::new() }
    }

    /// Presents these secrets from now on; an empty one is not presented.
    pub fn present(&self, lease: &[u8], session: &[u8]) {
        let mut headers = HeaderMap::new();
        for (name, secret) in [("lease-secret", lease), ("session-secret", session)] {
            if !secret.is_empty() {
                headers.insert(name, HeaderValue::from_str(&hex(secret)).expect("hexadecimal digits"));
            }
        }
        *self.secrets.write().expect("no test panicked") = headers;
    }

    /// Replaces the rules, except for the administrator.
    pub fn reload(&self, grants: &[(&str, &str, &str)]) {
        assert!(self.control.reload(&access_file(grants)), "the rules differ");
    }

    /// Serves the same API to connections of one identity.
    pub async fn listen_as(&mut self, principal: &str) -> SocketAddr {
        self.listen_with(identity(principal)).await.0
    }

    /// Serves the same API to connections of an identity that the test can change.
    pub async fn listen_with(&mut self, first: Identity) -> (SocketAddr, Arc<RwLock<Arc<Identity>>>) {
        let current = Arc::new(RwLock::new(Arc::new(first)));
        let identities = current.clone();
        let secrets = self.secrets.clone();
        let identify = move |mut request: Request, next: Next| {
            request.headers_mut().extend(secrets.read().expect("no test panicked").clone());
            let identity = identities.read().expect("no test panicked").clone();
            on_behalf_of(identity, next.run(request))
        };
        let router: Router =
            api::router(self.handle.api().clone(), TransportLimits::default()).layer(from_fn(identify));
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let config = ListenConfig {
            address,
            insecure_listen: false,
            tls: None,
            bearers: None,
            is_restricted: true,
            limits: TransportLimits::default(),
            traffic: self.control.traffic().clone(),
            allowed_hosts: AllowedHosts::new([]),
        };
        let listener = Listener::bind(config).await.expect("a free port can be bound");
        self.serving.push(listener.serve(router));
        (listener.address, current)
    }

    pub async fn client_as(&mut self, principal: &str) -> GrpcClient {
        connect(self.listen_as(principal).await).await
    }

    pub async fn stream_as(&mut self, principal: &str) -> SessionStream {
        SessionStream::open(self.client_as(principal).await).await
    }

    pub async fn http_as(&mut self, principal: &str) -> HttpConnection {
        HttpConnection::connect(self.listen_as(principal).await).await
    }

    /// The value of a metric line that starts with this text; zero if there is none.
    pub async fn metric(&mut self, line: &str) -> f64 {
        let (status, text) = self.http_as(ADMIN).await.request("GET /metrics", "", "").await;
        assert_eq!(status, 200, "{text}");
        let found = text.lines().find_map(|found| found.strip_prefix(line)?.trim().parse().ok());
        found.unwrap_or(0.0)
    }
}

/// Bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The code of an HTTP response: `OK` or that of its problem.
pub fn http_code((status, body): &(u16, String)) -> String {
    if (200..300).contains(status) {
        return "OK".to_owned();
    }
    match serde_json::from_str::<ProblemBody>(body) {
        Ok(problem) => problem.code,
        Err(_) => format!("HTTP {status}: {body}"),
    }
}
