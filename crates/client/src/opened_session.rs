//! A session that was opened or resumed.

use std::fmt;

use leasehold_core::ids::SessionId;
use leasehold_core::secret::SessionSecret;
use leasehold_wire::json::SessionBody;
use leasehold_wire::{TokenIssuer, session_id, v1};
use zeroize::Zeroize;

use crate::Error;

/// A session that was opened or resumed.
#[derive(Clone)]
pub struct OpenedSession {
    /// Without the secret.
    welcome: v1::Welcome,
    secret: Option<SessionSecret>,
}

impl OpenedSession {
    pub(crate) fn new(mut welcome: v1::Welcome) -> Self {
        let secret = SessionSecret::from_slice(&welcome.secret);
        welcome.secret.zeroize();
        Self { welcome, secret }
    }

    /// Id of the session.
    pub const fn id(&self) -> SessionId {
        session_id(self.welcome.session)
    }

    /// The secret to resume the session with, and for [`Client::with_session_secret`](crate::Client::with_session_secret); none for a
    /// resumed session.
    pub const fn secret(&self) -> Option<&SessionSecret> {
        self.secret.as_ref()
    }

    /// Cluster and incarnation of the server, as in tokens.
    pub(crate) fn issuer(&self) -> Result<TokenIssuer, Error> {
        let cluster = self.welcome.cluster.parse().map_err(Error::invalid_reply)?;
        Ok(TokenIssuer { cluster, incarnation: self.welcome.incarnation.parse().map_err(Error::invalid_reply)? })
    }

    pub(crate) const fn ttl_and_remaining_ms(&self) -> (u64, u64) {
        (self.welcome.ttl_ms, self.welcome.remaining_ms)
    }

    /// The session as JSON, with the field names of the HTTP API. It contains the secret.
    pub fn body(&self) -> SessionBody {
        SessionBody { secret: self.secret.as_ref().map(SessionSecret::expose_hex), ..self.welcome.clone().into() }
    }
}

/// Omits the secret.
impl fmt::Debug for OpenedSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OpenedSession").field(&self.id()).finish()
    }
}
