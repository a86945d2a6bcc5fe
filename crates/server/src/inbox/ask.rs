//! One request on its way to a turn, and whoever may go away meanwhile.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use leasehold_core::command::Request;
use leasehold_core::ids::{LeaseId, SessionId};
use leasehold_wire::{Caller, v1};

use crate::desk::{Outbox, To};

/// A request of so many bytes counts as one; a larger one as several.
const ONE: usize = 512;

/// One request on its way to a turn. It owns what its command borrows.
pub struct Ask {
    /// Its id, and the highest token that the caller has seen. The driver sets the mark.
    pub request: Request,
    /// What is asked.
    pub body: Body,
    /// Who asks.
    pub caller: Caller,
    /// Where the answer goes.
    pub to: To,
    /// Where the caller stands, if it matters that it goes away.
    pub seat: Option<Arc<Seat>>,
    weight: u32,
}

impl Ask {
    /// A request.
    pub fn new(request: Request, body: Body, caller: Caller, to: To) -> Self {
        let weight = 1 + u32::try_from(body.bytes() / ONE).unwrap_or(u32::MAX);
        Self { request, body, caller, to, seat: None, weight }
    }

    /// The same from a caller who may go away before it is answered.
    pub fn from(self, seat: Arc<Seat>) -> Self {
        Self { seat: Some(seat), ..self }
    }

    /// Whether it extends what is held, and may wait for nothing else.
    pub fn extends(&self) -> bool {
        use v1::request::Ask::{Renew, RenewSession};
        matches!(&self.body, Body::Ask(ask) if matches!(**ask, Renew(_) | RenewSession(_)))
    }

    /// How much of an inbox it takes.
    pub fn weight(&self) -> u32 {
        self.weight
    }

    /// How much it takes where renewals wait: many of a batch take the room of one that comes alone.
    pub fn weight_in_renewals(&self) -> u32 {
        self.weight.saturating_mul((ONE / size_of::<(LeaseId, u64)>()) as u32)
    }
}

/// What is asked, as it came in.
#[derive(Clone, PartialEq)]
pub enum Body {
    /// Anything that is asked inside of a session or without one.
    Ask(Box<v1::request::Ask>),
    /// A new session, with the secret that was drawn for it.
    Open(v1::OpenSession, [u8; 32]),
    /// A session that goes on.
    Resume(v1::ResumeSession),
}

/// Without the secret.
impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ask(ask) => f.debug_tuple("Ask").field(ask).finish(),
            Self::Open(open, _) => f.debug_tuple("Open").field(open).finish_non_exhaustive(),
            Self::Resume(resume) => f.debug_tuple("Resume").field(resume).finish(),
        }
    }
}

impl Body {
    /// The resources that grants would be on, in the order they were asked for.
    pub fn resource(&self, index: usize) -> &str {
        match self {
            Self::Ask(ask) => match &**ask {
                v1::request::Ask::Acquire(acquire) => &acquire.resource,
                v1::request::Ask::AcquireAll(all) => all.wanted.get(index).map_or("", |wanted| &wanted.resource),
                _ => "",
            },
            Self::Open(..) | Self::Resume(_) => "",
        }
    }

    /// About how many bytes it takes.
    fn bytes(&self) -> usize {
        match self {
            Self::Ask(ask) => ask.encoded_len(),
            Self::Open(open, _) => open.holder.len(),
            Self::Resume(_) => 0,
        }
    }
}

/// Many renewals of one connection, answered together.
pub struct Renewals {
    /// The connection.
    pub to: Arc<Outbox>,
    /// Its session, which must hold what it renews (L5).
    pub session: SessionId,
    /// The request's number on it.
    pub number: u64,
    /// The leases with the numbers of their tokens.
    pub leases: Vec<(LeaseId, u64)>,
}

/// Where a caller stands who may go away: on the way to the desk, at the desk under a mark, or gone on the way.
#[derive(Debug)]
pub struct Seat(AtomicU64);

impl Seat {
    const ON_THE_WAY: u64 = u64::MAX;
    const GONE: u64 = u64::MAX - 1;

    /// Takes a place at the desk, unless the caller has gone.
    pub fn take(&self, mark: u64) -> bool {
        self.0.compare_exchange(Self::ON_THE_WAY, mark, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// The caller goes. The mark under which it is missed, if it was at the desk.
    pub fn leave(&self) -> Option<u64> {
        self.0.compare_exchange(Self::ON_THE_WAY, Self::GONE, Ordering::AcqRel, Ordering::Acquire).err()
    }
}

impl Default for Seat {
    fn default() -> Self {
        Self(AtomicU64::new(Self::ON_THE_WAY))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_goes_on_the_way_is_never_seated_and_whoever_was_seated_is_missed() {
        let seat = Seat::default();
        assert_eq!(seat.leave(), None);
        assert!(!seat.take(7));
        let seat = Seat::default();
        assert!(seat.take(7));
        assert_eq!(seat.leave(), Some(7));
    }

    #[test]
    fn no_secret_is_spelled_out_for_debugging() {
        let open = Body::Open(v1::OpenSession { holder: "w".into(), ..Default::default() }, [0xab; 32]);
        let resume = Body::Resume(v1::ResumeSession { session: 1, secret: vec![0xab; 32] });
        for body in [open, resume] {
            let words = format!("{body:?}");
            assert!(!words.contains("171") && !words.contains("ab"), "{words}");
        }
    }
}
