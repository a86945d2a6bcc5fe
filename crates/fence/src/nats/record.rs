//! What a record of a fenced JetStream log carries beside its bytes: what it is, and the mark as it stands with it.

use async_nats::HeaderMap;
use leasehold_core::token::{Reach, Token};

use crate::fixed::MarkText;

/// The header with the mark.
pub const MARK: &str = "Leasehold-Mark";
/// The header with the kind.
const KIND: &str = "Leasehold-Kind";

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bytes that a holder appended.
    Write,
    /// A new holder's first act.
    Claim,
    /// An operator's act: arming, losing, adopting.
    Operator,
}

impl Kind {
    const ALL: [(Self, &str); 3] = [(Self::Write, "write"), (Self::Claim, "claim"), (Self::Operator, "operator")];

    fn word(self) -> &'static str {
        Self::ALL.iter().find(|(kind, _)| *kind == self).map_or("", |(_, word)| word)
    }
}

/// The last record of a subject, as far as the fence looks at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// Its sequence; 0 if there is none.
    pub(super) sequence: u64,
    /// Its mark; `Some(None)` if it has none that can be read, `None` if there is no record at all.
    pub(super) mark: Option<Option<MarkText>>,
}

pub(super) fn headers(kind: Kind, mark: &MarkText) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(KIND, kind.word());
    headers.insert(MARK, mark.to_string());
    headers
}

pub(super) fn mark(headers: &HeaderMap) -> Option<MarkText> {
    headers.get(MARK).and_then(|text| MarkText::parse(text.as_str()))
}

/// The stamp of a record, for a reader's [`Sieve`](crate::logs::Sieve): what it is, and the token it was appended under.
/// An operator's record, and one that no fence wrote, has none.
pub fn stamp(headers: &HeaderMap) -> Option<String> {
    let kind = headers.get(KIND)?.as_str();
    let mark = mark(headers)?;
    let (incarnation, number) = mark.set_by()?;
    let kept = mark.kept(true);
    let resource = u64::from_str_radix(&kept.resource, 16).ok()?.to_be_bytes();
    let token = Token { cluster: kept.cluster, incarnation, resource, reach: Reach::Slot(kept.slot), number };
    matches!(kind, "write" | "claim").then(|| format!("{kind} {token}"))
}
