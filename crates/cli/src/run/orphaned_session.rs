//! Cleanup of an orphaned session: closes the session of a wrapper that died, so that its wait is not granted to a dead process.

use std::fmt;
use std::time::Duration;

use leasehold::session_stream::SessionResume;
use leasehold::{Client, Endpoints, Error, SessionSecret};
use serde::{Deserialize, Serialize};

use crate::global_args::client_builder;

/// A session and its secret. It is sent over a socket that only this user can open.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionCleanup {
    session: String,
    /// In hexadecimal.
    secret: String,
}

impl SessionCleanup {
    pub fn new(resume: &SessionResume) -> Self {
        Self { session: resume.session.to_string(), secret: resume.secret.expose_hex() }
    }

    /// A client that presents the secret of the session.
    pub fn present(&self, client: &Client) -> Client {
        SessionSecret::parse_hex(&self.secret)
            .map_or_else(|| client.clone(), |secret| client.with_session_secret(&secret))
    }

    /// Closes the session, and with it all its waits and leases. If this fails, the session ends with its ttl.
    pub async fn run(&self, endpoints: Endpoints, timeout: Duration) {
        let _ = tokio::time::timeout(timeout, self.close(endpoints)).await;
    }

    async fn close(&self, endpoints: Endpoints) -> Result<(), Error> {
        let (Ok(session), Some(secret)) = (self.session.parse(), SessionSecret::parse_hex(&self.secret)) else {
            return Ok(());
        };
        let client = client_builder(endpoints).build().with_session_secret(&secret);
        // The secret proves that this is the same session, and not one with the same number on a later server.
        let _stream = client.stream("supervisor", 0, Some(&SessionResume { session, secret })).await?;
        client.close_session(session).await
    }
}

/// Omits the secret.
impl fmt::Debug for SessionCleanup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SessionCleanup").field(&self.session).finish()
    }
}
