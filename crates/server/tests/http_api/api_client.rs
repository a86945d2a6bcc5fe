//! A plain HTTP client of one server that the test starts.

use leasehold_server::journal::memory::Memory;
use leasehold_server::server::{ServerConfig, ServerHandle, start};
use serde_json::Value;

use crate::transport_clients::HttpConnection;

/// A server, and a connection to it.
pub struct ApiClient {
    pub server: ServerHandle,
    http: HttpConnection,
}

/// An open session.
pub struct OpenedSession {
    pub id: String,
    /// The header that proves it.
    pub secret: String,
}

/// Starts a server on a free port, with a journal in memory.
pub async fn start_server() -> ServerHandle {
    let config = ServerConfig { listen: ([127, 0, 0, 1], 0).into(), ..ServerConfig::default() };
    start(Memory::default(), config).await.expect("a server starts on a free port")
}

impl ApiClient {
    pub async fn start() -> Self {
        let server = start_server().await;
        let http = HttpConnection::connect(server.address).await;
        Self { server, http }
    }

    /// Sends a request and returns the response's status and its JSON body.
    pub async fn send(&mut self, request: &str, headers: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let (status, text) = self.http.request(request, headers, &body).await;
        let json = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{request}: {e}: {text}"));
        (status, json)
    }

    /// Sends a request that must succeed.
    pub async fn ok(&mut self, request: &str, headers: &str, body: Value) -> Value {
        let (status, reply) = self.send(request, headers, &body).await;
        assert_eq!(status, 200, "{request} {body}: {reply}");
        reply
    }

    /// Sends a request that must be refused, and returns the code of its problem.
    pub async fn refused(&mut self, request: &str, headers: &str, body: Value) -> (String, Value) {
        let (status, reply) = self.send(request, headers, &body).await;
        assert!(status >= 400, "{request} {body}: {reply}");
        (reply["code"].as_str().expect("a problem has a code").to_owned(), reply)
    }

    pub async fn open_session(&mut self, holder: &str) -> OpenedSession {
        let opened = self.ok("POST /v1/sessions", "", serde_json::json!({ "holder": holder, "ttl": "60s" })).await;
        let text = |name: &str| opened[name].as_str().expect("a text").to_owned();
        OpenedSession { id: text("session"), secret: format!("Session-Secret: {}\r\n", text("secret")) }
    }

    /// Acquires a lease that lives as long as a session.
    pub async fn acquire_in(&mut self, session: &OpenedSession, resource: &str) -> Value {
        let body = serde_json::json!({ "session": session.id });
        self.ok(&format!("POST /v1/leases/{resource}:acquire"), &session.secret, body).await
    }
}

/// The header with the token of a grant.
pub fn token(grant: &Value) -> String {
    format!("Lease-Token: {}\r\n", grant["token"].as_str().expect("a grant has a token"))
}

/// The exclusive or of the token numbers of grants, as a session's renewal presents it.
pub fn digest(grants: &[&Value]) -> String {
    let number = |grant: &&Value| grant["token_number"].as_str().expect("a text").parse::<u64>().expect("a number");
    grants.iter().map(number).fold(0, |all, number| all ^ number).to_string()
}
