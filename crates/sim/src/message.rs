//! Messages between the actors of a run, and the actors.

use leasehold_core::command::{Answer, SessionEvent};
use leasehold_core::ids::SessionId;
use leasehold_core::token::{Incarnation, Token};

use crate::request::SimRequest;

/// Maximum number of servers.
pub const SERVERS: usize = 3;
/// Maximum number of actors.
pub(crate) const MAX_ACTORS: usize = 32;

/// A sender or receiver of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names are clear")]
pub enum SimActor {
    Server(usize),
    Target(usize),
    Operator,
    Holder(usize),
}

impl SimActor {
    /// Index of the actor in the network.
    pub const fn index(self) -> usize {
        match self {
            Self::Server(i) => i,
            Self::Target(i) => SERVERS + i,
            Self::Operator => SERVERS + 4,
            Self::Holder(i) => SERVERS + 5 + i,
        }
    }
}

/// A request in transit.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the glossary defines these names")]
pub struct Envelope {
    pub op: u64,
    /// Number of earlier sends, so that a reply to an earlier copy is not mistaken for one to this copy.
    pub tries: u32,
    pub from: SimActor,
    pub request: SimRequest,
    pub id: Option<leasehold_core::command::RequestId>,
    pub presented: Option<Token>,
}

/// A message between actors.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the glossary defines these names")]
pub enum Message {
    Request(Box<Envelope>),
    Reply { op: u64, answer: Answer, incarnation: Incarnation },
    NotServing { op: u64, tries: u32 },
    Notice { session: SessionId, event: SessionEvent },
    Write { id: u64, from: SimActor, token: String, sequence: u64, value: Option<u64> },
    Written { id: u64, applied: bool },
}
