//! Context of a command: the session that sent it, and the cluster whose tokens it presents.

use leasehold_core::ids::SessionId;
use leasehold_core::refusal::Refusal;
use leasehold_core::token::{Cluster, Incarnation, Token, TokenError};

use crate::enums::missing_field;
use crate::session_id;

/// The sender of a request, as far as the connection knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandContext {
    /// The session of the stream; `None` for a unary call. A lease in a request must belong to it (L5).
    pub session: Option<SessionId>,
    /// The cluster that answers.
    pub issuer: TokenIssuer,
}

impl CommandContext {
    /// The session of a request: the one it names, or the stream's own. Naming another session on a stream is refused.
    pub(crate) fn session_for(&self, named: Option<u64>) -> Result<Option<SessionId>, Refusal> {
        match (named.map(session_id), self.session) {
            (Some(named), Some(own)) if named != own => Err(Refusal::Invalid {
                field: "session",
                reason: "must be absent on a stream, which has its own session",
            }),
            (named, own) => Ok(own.or(named)),
        }
    }

    /// Like [`CommandContext::session_for`], for a request that needs a session.
    pub(crate) fn require_session(&self, named: Option<u64>) -> Result<SessionId, Refusal> {
        self.session_for(named)?.ok_or(missing_field("session"))
    }
}

/// The cluster and incarnation that issue tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenIssuer {
    /// Id of the cluster.
    pub cluster: Cluster,
    /// Incarnation of the cluster.
    pub incarnation: Incarnation,
}

impl TokenIssuer {
    /// Parses the text of a token. A token of another cluster is refused and never compared (T6).
    pub fn parse_token(&self, text: &str) -> Result<Token, Refusal> {
        let token = Token::parse(text)?;
        if token.cluster == self.cluster { Ok(token) } else { Err(Refusal::Token(TokenError::WrongCluster)) }
    }
}
