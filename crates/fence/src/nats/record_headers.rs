//! Headers of a fenced JetStream record: its kind, and the mark after the record.

use async_nats::HeaderMap;
use leasehold_core::token::{Token, TokenScope};

use crate::mark_fixed_text::FixedMark;

/// Header with the mark.
pub const MARK_HEADER: &str = "Leasehold-Mark";
/// Header with the kind.
const KIND_HEADER: &str = "Leasehold-Kind";
/// Header with the sealed token of a write or a claim, for readers that verify it.
const TOKEN_HEADER: &str = "Leasehold-Token";
/// Header with the expected sequence of the record before. The server refuses any other place, and stores the header.
const EXPECTED_HEADER: &str = "Nats-Expected-Last-Subject-Sequence";

/// Kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordKind {
    /// A holder appended bytes.
    Write,
    /// A new holder claimed.
    Claim,
    /// An operator armed, re-armed or adopted, or declared the mark lost.
    Operator,
}

impl RecordKind {
    const ALL: [(Self, &str); 3] = [(Self::Write, "write"), (Self::Claim, "claim"), (Self::Operator, "operator")];

    fn word(self) -> &'static str {
        Self::ALL.iter().find(|(kind, _)| *kind == self).map_or("", |(_, word)| word)
    }
}

/// The last record of a subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LastRecord {
    /// Sequence of the record; 0 if the subject is empty.
    pub(super) sequence: u64,
    /// Mark of the record; `Some(None)` if it has no readable mark, `None` if the subject is empty.
    pub(super) mark: Option<Option<FixedMark>>,
}

/// The headers of a record that a token appends, or an operator without one.
pub(super) fn headers(kind: RecordKind, mark: &FixedMark, token: Option<&str>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(KIND_HEADER, kind.word());
    headers.insert(MARK_HEADER, mark.to_string());
    // The mark holds all of a plain token, but not a signature.
    if let Some(token) = token.filter(|token| token.starts_with("lh2-")) {
        headers.insert(TOKEN_HEADER, token);
    }
    headers
}

/// The mark of a record that the fence appended. A client that publishes the headers of an old record again does not expect the
/// record before it, so its record has no mark.
pub(super) fn appended_mark(headers: &HeaderMap) -> Option<FixedMark> {
    headers.get(EXPECTED_HEADER).and_then(|_| mark(headers))
}

fn mark(headers: &HeaderMap) -> Option<FixedMark> {
    headers.get(MARK_HEADER).and_then(|text| FixedMark::parse(text.as_str()))
}

/// The stamp of a record for a [`ReaderFence`](crate::reader_fence::ReaderFence): its kind and its token, as sealed text if it was
/// appended with one. `None` for records of an operator, and for records without a fence.
pub fn stamp(headers: &HeaderMap) -> Option<String> {
    let kind = headers.get(KIND_HEADER)?.as_str();
    let mark = mark(headers)?;
    if let Some(token) = headers.get(TOKEN_HEADER) {
        return matches!(kind, "write" | "claim").then(|| format!("{kind} {}", token.as_str()));
    }
    let (incarnation, number) = mark.set_by()?;
    let info = mark.info(true);
    let resource = u64::from_str_radix(&info.resource_hash, 16).ok()?.to_be_bytes();
    let token = Token { cluster: info.cluster, incarnation, resource, scope: TokenScope::Slot(info.slot), number };
    matches!(kind, "write" | "claim").then(|| format!("{kind} {token}"))
}
