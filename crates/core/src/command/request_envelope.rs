//! The envelope of a command: who sends it, what it proves, and how a retry is recognized.

use crate::access::{Caller, RequestOrigin};
use crate::ids::SessionId;
use crate::secret::SecretDigest;
use crate::token::{Number, Token};
use crate::trace_context::TraceContext;

/// The envelope of a command: who sends it, how it is answered and how a retry is recognized.
#[derive(Clone, Copy, Debug, Default)]
pub struct Request<'a> {
    /// A tag that the driver chooses; every reply carries it.
    pub tag: u64,
    /// The id by which a retry is recognized (L11).
    pub id: Option<RequestId>,
    /// The highest token that the caller has observed. A token that this journal never issued proves a rollback (T9).
    pub observed: Option<Token>,
    /// The token that the command is about, with the same effect. It may be lower than the observed one and yet be lost.
    pub presented: Option<Token>,
    /// Which of the two are proven to be tokens of this cluster.
    pub proven: ProvenTokens,
    /// Who sends the request, and what it may do.
    pub caller: Caller<'a>,
    /// What it proves besides the caller's identity (A6).
    pub proof: Proof,
    /// How the caller is known, and from where. Recorded with what the request changes (A13).
    pub origin: RequestOrigin<'a>,
    /// Why the caller executes a dangerous command without the approval of a second identity, if it does (A14).
    pub alone: Option<&'a str>,
}

impl Request<'_> {
    /// A request of the server itself, or on a server without access rules, with only a tag.
    pub const fn tagged(tag: u64) -> Self {
        Self {
            tag,
            id: None,
            observed: None,
            presented: None,
            proven: ProvenTokens::NONE,
            caller: Caller::LOCAL,
            proof: Proof::NONE,
            origin: RequestOrigin::LOCAL,
            alone: None,
        }
    }

    /// The same request, which belongs to a trace.
    #[must_use]
    pub const fn traced(mut self, trace: Option<TraceContext>) -> Self {
        self.origin.trace = trace;
        self
    }
}

/// What a request proves besides the identity of its caller. Several processes may share one identity; only what is proven lets one
/// act on what it was granted (A6). Numbers and ids are no proof: listings, events and targets show them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Proof {
    /// The session whose stream carries the request. The stream was opened or resumed with the session's secret.
    pub stream: Option<SessionId>,
    /// The digest of a session secret that the request presents.
    pub session: Option<SecretDigest>,
    /// The token number of a lease secret that the request presents and that was verified for the resource of the request.
    pub lease: Option<Number>,
}

impl Proof {
    /// Proves nothing.
    pub const NONE: Self = Self { stream: None, session: None, lease: None };

    /// The proof of a request on the stream of a session.
    pub const fn of_stream(session: SessionId) -> Self {
        Self { stream: Some(session), ..Self::NONE }
    }
}

/// Which tokens of a request are proven: sealed by a key of the cluster for their resource, or presented with the secret of their
/// lease. Anyone who can write to the server can make up the text of a token, so only a proven one is evidence against the journal
/// where access is restricted (A9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProvenTokens {
    /// The observed token.
    pub observed: bool,
    /// The presented token.
    pub presented: bool,
}

impl ProvenTokens {
    /// Nothing is proven.
    pub const NONE: Self = Self { observed: false, presented: false };
    /// Both are proven.
    pub const BOTH: Self = Self { observed: true, presented: true };
}

/// The id of a retryable request within its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestId {
    /// The session.
    pub session: SessionId,
    /// The sequence number within the session, from 1.
    pub sequence: u64,
    /// The lowest sequence whose answer the client still waits for.
    pub lowest: u64,
    /// A digest of the body, so that another body under the same id is a conflict.
    pub digest: u64,
}
