//! Sessions without a stream: opened, extended, closed.

use std::fmt;
use std::time::Duration;

use leasehold_core::command::{Known, SessionGrant};
use leasehold_core::ids::SessionId;
use leasehold_wire::json::SessionBody;
use leasehold_wire::{Issuer, session_bits, session_id, v1};

use crate::lease::To;
use crate::route::Nature;
use crate::{Client, Error};

/// A session that was opened.
#[derive(Clone, PartialEq)]
pub struct Opened(v1::Welcome);

impl Opened {
    pub(crate) const fn of(welcome: v1::Welcome) -> Self {
        Self(welcome)
    }

    /// Its id.
    pub const fn session(&self) -> SessionId {
        session_id(self.0.session)
    }

    /// The 32 bytes to come back with.
    pub fn secret(&self) -> &[u8] {
        &self.0.secret
    }

    /// Who answers here, as tokens name it.
    pub(crate) fn issuer(&self) -> Result<Issuer, Error> {
        let cluster = self.0.cluster.parse().map_err(Error::garbled)?;
        Ok(Issuer { cluster, incarnation: self.0.incarnation.parse().map_err(Error::garbled)? })
    }

    /// How long a renewal lasts, and how long it lives unless renewed.
    pub(crate) const fn lasts(&self) -> (u64, u64) {
        (self.0.ttl_ms, self.0.remaining_ms)
    }

    /// The session as the HTTP interface tells it.
    pub fn body(&self) -> SessionBody {
        self.0.clone().into()
    }
}

/// Without the secret.
impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Opened").field(&self.session()).finish()
    }
}

impl Client {
    /// Opens a session. If the answer does not come, a session that nobody knows ends by its ttl.
    pub async fn open_session(&self, holder: &str, ttl_ms: u64) -> Result<Opened, Error> {
        let ask = v1::OpenSession { holder: holder.into(), ttl_ms, waits_only: false };
        let send = |mut to: To, ask| async move { to.open(ask).await };
        self.call(Nature::Again, Duration::ZERO, ask, send).await.map(Opened)
    }

    /// Extends a session; `known` is what the caller believes it holds.
    pub async fn renew_session(&self, session: SessionId, known: Option<Known>) -> Result<SessionGrant, Error> {
        let known = known.map(|known| v1::Known { count: known.count, digest: known.digest });
        let ask = v1::RenewSession { known, session: Some(session_bits(session)) };
        let send = |mut to: To, ask| async move { to.renew_session(ask).await };
        self.call(Nature::Again, Duration::ZERO, ask, send).await.map(Into::into)
    }

    /// Ends a session and all that it holds.
    pub async fn close_session(&self, session: SessionId) -> Result<(), Error> {
        let ask = v1::CloseSession { session: Some(session_bits(session)) };
        let send = |mut to: To, ask| async move { to.close_session(ask).await };
        self.call(Nature::Change, Duration::ZERO, ask, send).await.map(drop)
    }
}
