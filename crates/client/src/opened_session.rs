//! A session that was opened or resumed.

use std::fmt;

use leasehold_core::ids::SessionId;
use leasehold_wire::json::SessionBody;
use leasehold_wire::{TokenIssuer, session_id, v1};

use crate::Error;

/// A session that was opened or resumed.
#[derive(Clone, PartialEq)]
pub struct OpenedSession(v1::Welcome);

impl OpenedSession {
    pub(crate) const fn new(welcome: v1::Welcome) -> Self {
        Self(welcome)
    }

    /// Id of the session.
    pub const fn id(&self) -> SessionId {
        session_id(self.0.session)
    }

    /// The 32-byte secret to resume the session with; empty for a resumed session.
    pub fn secret(&self) -> &[u8] {
        &self.0.secret
    }

    /// Cluster and incarnation of the server, as in tokens.
    pub(crate) fn issuer(&self) -> Result<TokenIssuer, Error> {
        let cluster = self.0.cluster.parse().map_err(Error::invalid_reply)?;
        Ok(TokenIssuer { cluster, incarnation: self.0.incarnation.parse().map_err(Error::invalid_reply)? })
    }

    pub(crate) const fn ttl_and_remaining_ms(&self) -> (u64, u64) {
        (self.0.ttl_ms, self.0.remaining_ms)
    }

    /// The session as JSON, with the field names of the HTTP API.
    pub fn body(&self) -> SessionBody {
        self.0.clone().into()
    }
}

/// Omits the secret.
impl fmt::Debug for OpenedSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OpenedSession").field(&self.id()).finish()
    }
}
