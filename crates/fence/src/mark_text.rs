//! Text format of a mark stored beside data: lines of a key and its value, followed by a checksum.
//!
//! ```text
//! leasehold-mark 1
//! cluster 74657374696e6721
//! resource 7b5c3c1d2f0a9e84
//! slot 0
//! name jobs/settle
//! seen 34
//! lost -
//! incarnation 00000007
//! strict no
//! sequence -
//! …lines of the target
//! sum 5e1f90ab
//! ```
//!
//! The mark of a sealed fence has version 2, and `sealed yes` after `sequence`. Earlier releases refuse its version, so that
//! none of them drops the seal.

use std::fmt::Write;

use leasehold_core::name::{Name, resource_hash};
use leasehold_core::token::{Cluster, Number};

use crate::error::OTHER_FENCE;
use crate::mark_state::MarkState;
use crate::{Error, FenceId, FenceRefusal, MarkInfo, MarkLoss};

/// Format version of a mark that is not sealed.
const PLAIN_VERSION: u32 = 1;
/// Format version of a sealed mark, the newest.
const SEALED_VERSION: u32 = 2;
const NONE: &str = "-";

/// A parsed mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ParsedMark<'a> {
    pub(crate) cluster: Cluster,
    pub(crate) name: &'a str,
    pub(crate) slot: u32,
    pub(crate) state: MarkState,
    /// Keys and values that the target added, in order.
    pub(crate) extra: Vec<(&'a str, &'a str)>,
}

/// Encodes a state and the values that the target adds. Keys and values must not contain a line break.
pub(crate) fn encode(id: &FenceId, state: &MarkState, rest: &[(&str, String)]) -> String {
    let MarkState { highest: seen, loss: lost, incarnation, strict, sealed, last_sequence: last } = state;
    let version = if *sealed { SEALED_VERSION } else { PLAIN_VERSION };
    let mut text = format!("leasehold-mark {version}\n");
    let mut line = |word: &str, value: &str| {
        writeln!(text, "{word} {value}").expect("writing to a string does not fail");
    };
    line("cluster", &id.cluster().to_string());
    line("resource", &id.resource_hash());
    line("slot", &id.slot().to_string());
    line("name", id.resource());
    line("seen", &or_none(seen));
    line("lost", if lost.is_some() { "declared" } else { NONE });
    line("incarnation", &or_none(incarnation));
    line("strict", if *strict { "yes" } else { "no" });
    line("sequence", &or_none(last));
    if *sealed {
        line("sealed", "yes");
    }
    rest.iter().for_each(|(word, value)| line(word, value));
    let sum = crc32fast::hash(text.as_bytes());
    text + &format!("sum {sum:08x}\n")
}

/// Parses a mark. A text that cannot be parsed is a lost mark, never a fresh one (F7).
pub(crate) fn parse(text: &str) -> Result<ParsedMark<'_>, Error> {
    let unreadable = || Error::from(FenceRefusal::MarkLost(MarkLoss::Unreadable));
    let first = text.lines().next().and_then(|line| line.strip_prefix("leasehold-mark ")).ok_or_else(unreadable)?;
    let found = first.parse().map_err(|_| unreadable())?;
    if !(PLAIN_VERSION..=SEALED_VERSION).contains(&found) {
        return Err(Error::Version { found, supported: SEALED_VERSION });
    }
    verify_checksum(text).and_then(|body| parse_lines(body, found == SEALED_VERSION)).ok_or_else(unreadable)
}

impl ParsedMark<'_> {
    /// The state, if this is the mark of this fence.
    pub(crate) fn state_for(&self, id: &FenceId) -> Result<MarkState, Error> {
        if self.cluster != id.cluster() {
            return Err(FenceRefusal::ForeignMark.into());
        }
        if (self.name, self.slot) != (id.resource(), id.slot()) {
            return Err(Error::Conflict(OTHER_FENCE));
        }
        Ok(self.state)
    }

    /// The value that the target added under this key.
    pub(crate) fn value(&self, word: &str) -> Option<&str> {
        self.extra.iter().find(|(of, _)| *of == word).map(|(_, value)| *value)
    }

    /// `state` overrides the parsed state: the target may know that the mark is lost.
    pub(crate) fn info(&self, state: &MarkState) -> MarkInfo {
        let resource_hash = format!("{:016x}", u64::from_be_bytes(resource_hash(self.name)));
        let (name, mark) = (Some(self.name.to_owned()), state.stored_mark().mark);
        let MarkState { incarnation, strict, sealed, .. } = *state;
        MarkInfo { cluster: self.cluster, resource_hash, name, slot: self.slot, mark, incarnation, strict, sealed }
    }
}

/// The text before its checksum, if the checksum matches.
fn verify_checksum(text: &str) -> Option<&str> {
    let (body, sum) = text.strip_suffix('\n')?.rsplit_once("\nsum ")?;
    let body = &text[..body.len() + 1];
    (sum == format!("{:08x}", crc32fast::hash(body.as_bytes()))).then_some(body)
}

fn parse_lines(body: &str, sealed: bool) -> Option<ParsedMark<'_>> {
    let mut lines = body.lines().skip(1).map(|line| line.split_once(' '));
    let mut value = |word: &str| lines.next()?.filter(|(of, _)| *of == word).map(|(_, value)| value);
    let cluster = value("cluster")?.parse().ok()?;
    let resource = value("resource")?;
    let slot = value("slot")?.parse().ok()?;
    let name = value("name").filter(|name| Name::parse(name).is_ok())?;
    if resource != format!("{:016x}", u64::from_be_bytes(resource_hash(name))) {
        return None;
    }
    let state = MarkState {
        highest: optional(value("seen")?, |text| Number::new(text.parse().ok()?))?,
        loss: optional(value("lost")?, |text| (text == "declared").then_some(MarkLoss::Declared))?,
        incarnation: optional(value("incarnation")?, |text| text.parse().ok())?,
        strict: match value("strict")? {
            "yes" => true,
            "no" => false,
            _ => return None,
        },
        sealed,
        last_sequence: optional(value("sequence")?, |text| text.parse().ok())?,
    };
    if sealed && value("sealed") != Some("yes") {
        return None;
    }
    Some(ParsedMark { cluster, name, slot, state, extra: lines.collect::<Option<_>>()? })
}

fn or_none(value: &Option<impl ToString>) -> String {
    value.as_ref().map_or_else(|| NONE.to_owned(), ToString::to_string)
}

/// Parses an optional value; `None` if it is malformed.
fn optional<T>(text: &str, read: impl FnOnce(&str) -> Option<T>) -> Option<Option<T>> {
    if text == NONE { Some(None) } else { read(text).map(Some) }
}

#[cfg(test)]
mod tests {
    use leasehold_core::token::Incarnation;

    use super::*;

    fn fence_id() -> FenceId {
        FenceId::new(Cluster(*b"testing!"), "jobs/settle").expect("a name").with_slot(3)
    }

    fn state(seen: Option<u64>, lost: Option<MarkLoss>, last: Option<u64>) -> MarkState {
        let seen = seen.and_then(Number::new);
        MarkState {
            highest: seen,
            loss: lost,
            incarnation: seen.map(|_| Incarnation(7)),
            strict: last.is_some(),
            sealed: false,
            last_sequence: last,
        }
    }

    #[test]
    fn an_encoded_mark_parses_to_the_same_state() {
        let rest = [("nonce", "00ff".to_owned()), ("entry", "a b/c".to_owned()), ("entry", String::new())];
        for state in [
            MarkState::FRESH,
            state(Some(34), None, None),
            state(Some(34), Some(MarkLoss::Declared), Some(u64::MAX)),
            state(Some(Number::MAX.get()), None, Some(0)),
            MarkState { sealed: true, ..MarkState::FRESH },
            MarkState { sealed: true, ..state(Some(34), Some(MarkLoss::Declared), Some(1)) },
        ] {
            let text = encode(&fence_id(), &state, &rest);
            let read = parse(&text).expect("it parses");
            assert_eq!(read.state_for(&fence_id()).expect("same fence"), state);
            assert_eq!(read.extra, [("nonce", "00ff"), ("entry", "a b/c"), ("entry", "")]);
            assert_eq!(read.value("nonce"), Some("00ff"));
        }
    }

    #[test]
    fn a_truncated_or_changed_text_never_parses() {
        for state in [state(Some(34), None, None), MarkState { sealed: true, ..state(Some(34), None, None) }] {
            let text = encode(&fence_id(), &state, &[("inode", "12".to_owned())]);
            for at in 0..text.len() {
                assert!(parse(&text[..at]).is_err(), "truncated at {at}");
                let mut bytes = text.clone().into_bytes();
                bytes[at] ^= 1;
                let changed = String::from_utf8(bytes).expect("still text");
                assert!(parse(&changed).is_err(), "changed at {at}: {changed}");
            }
            assert!(parse(&(text.clone() + "\n")).is_err());
        }
        assert!(parse("").is_err());
    }

    #[test]
    fn a_newer_version_and_a_mark_of_another_cluster_are_errors() {
        let text = encode(&fence_id(), &MarkState::FRESH, &[]);
        let newer = text.replacen("leasehold-mark 1", "leasehold-mark 3", 1);
        assert!(matches!(parse(&newer), Err(Error::Version { found: 3, supported: 2 })));
        let sealed = encode(&fence_id(), &MarkState { sealed: true, ..MarkState::FRESH }, &[]);
        assert!(sealed.starts_with("leasehold-mark 2\n"), "earlier releases refuse this version");
        assert!(text.starts_with("leasehold-mark 1\n"), "earlier releases read it");
        let other = FenceId::new(Cluster(*b"another!"), "jobs/settle").expect("a name").with_slot(3);
        let error = parse(&text).expect("it parses").state_for(&other).expect_err("another cluster");
        assert_eq!(error.refusal(), Some(&FenceRefusal::ForeignMark));
        let other = fence_id().with_slot(fence_id().slot() + 1);
        let error = parse(&text).expect("it parses").state_for(&other).expect_err("another slot");
        assert_eq!(error.code(), "CONFLICT", "{error}");
    }
}
