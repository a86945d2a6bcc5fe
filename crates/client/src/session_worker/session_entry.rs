//! State of the open session in the worker: its id and secret, its local deadline, and when it is renewed next.

use std::sync::Arc;

use leasehold_core::holder::Renewal;
use leasehold_core::ids::SessionId;
use leasehold_core::secret::SessionSecret;
use leasehold_core::time::Instant;
use leasehold_wire::TokenIssuer;

use super::lease_shared::SessionDeadline;

/// The open session. It is renewed by the same rules as a lease, under a token number without meaning.
pub(super) struct ClientSession {
    pub id: SessionId,
    pub secret: SessionSecret,
    pub issuer: TokenIssuer,
    pub deadline: Arc<SessionDeadline>,
    pub renewal: Renewal,
    /// When it is polled next.
    pub due: Instant,
}
