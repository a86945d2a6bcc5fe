//! The text in which a mark is kept beside data: lines of a word and its value, closed by a checksum.
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
//! …what the target adds
//! sum 5e1f90ab
//! ```

use std::fmt::Write;

use leasehold_core::name::{Name, resource_hash};
use leasehold_core::token::{Cluster, Number};

use crate::place::Place;
use crate::state::State;
use crate::{Error, Kept, Lost, Refusal};

/// The version written here.
const VERSION: u32 = 1;
const NOTHING: &str = "-";

/// A mark's text, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Written<'a> {
    pub(crate) cluster: Cluster,
    pub(crate) name: &'a str,
    pub(crate) slot: u32,
    pub(crate) state: State,
    /// What the target added: words and their values, in order.
    pub(crate) rest: Vec<(&'a str, &'a str)>,
}

/// The text of a state at a place, and what the target adds. No word or value may hold a line's end.
pub(crate) fn write(place: &Place, state: &State, rest: &[(&str, String)]) -> String {
    let State { seen, lost, incarnation, strict, last } = state;
    let mut text = format!("leasehold-mark {VERSION}\n");
    let mut line = |word: &str, value: &str| {
        writeln!(text, "{word} {value}").expect("a string takes all that is written");
    };
    line("cluster", &place.guarded.cluster.to_string());
    line("resource", &place.resource());
    line("slot", &place.guarded.slot.to_string());
    line("name", &place.name);
    line("seen", &or_nothing(seen));
    line("lost", if lost.is_some() { "declared" } else { NOTHING });
    line("incarnation", &or_nothing(incarnation));
    line("strict", if *strict { "yes" } else { "no" });
    line("sequence", &or_nothing(last));
    rest.iter().for_each(|(word, value)| line(word, value));
    let sum = crc32fast::hash(text.as_bytes());
    text + &format!("sum {sum:08x}\n")
}

/// Reads a mark's text. What cannot be read is a lost mark, never a fresh one (F7).
pub(crate) fn read(text: &str) -> Result<Written<'_>, Error> {
    let unreadable = || Error::from(Refusal::Lost(Lost::Unreadable));
    let first = text.lines().next().and_then(|line| line.strip_prefix("leasehold-mark ")).ok_or_else(unreadable)?;
    let have = first.parse().map_err(|_| unreadable())?;
    if have != VERSION {
        return Err(Error::Version { have, want: VERSION });
    }
    whole(text).and_then(lines).ok_or_else(unreadable)
}

impl Written<'_> {
    /// The state, if this is the mark of this place.
    pub(crate) fn at(&self, place: &Place) -> Result<State, Error> {
        let own = (self.cluster, self.name, self.slot);
        if own != (place.guarded.cluster, place.name.as_str(), place.guarded.slot) {
            return Err(Refusal::ForeignMark.into());
        }
        Ok(self.state)
    }

    /// The value that the target added under a word.
    pub(crate) fn value(&self, word: &str) -> Option<&str> {
        self.rest.iter().find(|(of, _)| *of == word).map(|(_, value)| *value)
    }

    /// What is kept here, for a survey; `state` says what counts of it.
    pub(crate) fn kept(&self, state: &State) -> Kept {
        let resource = format!("{:016x}", u64::from_be_bytes(resource_hash(self.name)));
        let (name, mark) = (Some(self.name.to_owned()), state.standing().mark);
        let State { incarnation, strict, .. } = *state;
        Kept { cluster: self.cluster, resource, name, slot: self.slot, mark, incarnation, strict }
    }
}

/// The text before its checksum, if that fits.
fn whole(text: &str) -> Option<&str> {
    let (body, sum) = text.strip_suffix('\n')?.rsplit_once("\nsum ")?;
    let body = &text[..body.len() + 1];
    (sum == format!("{:08x}", crc32fast::hash(body.as_bytes()))).then_some(body)
}

fn lines(body: &str) -> Option<Written<'_>> {
    let mut lines = body.lines().skip(1).map(|line| line.split_once(' '));
    let mut value = |word: &str| lines.next()?.filter(|(of, _)| *of == word).map(|(_, value)| value);
    let cluster = value("cluster")?.parse().ok()?;
    let resource = value("resource")?;
    let slot = value("slot")?.parse().ok()?;
    let name = value("name").filter(|name| Name::parse(name).is_ok())?;
    if resource != format!("{:016x}", u64::from_be_bytes(resource_hash(name))) {
        return None;
    }
    let state = State {
        seen: some(value("seen")?, |text| Number::new(text.parse().ok()?))?,
        lost: some(value("lost")?, |text| (text == "declared").then_some(Lost::Declared))?,
        incarnation: some(value("incarnation")?, |text| text.parse().ok())?,
        strict: match value("strict")? {
            "yes" => true,
            "no" => false,
            _ => return None,
        },
        last: some(value("sequence")?, |text| text.parse().ok())?,
    };
    Some(Written { cluster, name, slot, state, rest: lines.collect::<Option<_>>()? })
}

fn or_nothing(value: &Option<impl ToString>) -> String {
    value.as_ref().map_or_else(|| NOTHING.to_owned(), ToString::to_string)
}

/// A value that may be none; `None` if it is neither.
fn some<T>(text: &str, read: impl FnOnce(&str) -> Option<T>) -> Option<Option<T>> {
    if text == NOTHING { Some(None) } else { read(text).map(Some) }
}

#[cfg(test)]
mod tests {
    use leasehold_core::token::Incarnation;

    use super::*;

    fn place() -> Place {
        Place::new(Cluster(*b"testing!"), Name::parse("jobs/settle").expect("a name"), 3)
    }

    fn state(seen: Option<u64>, lost: Option<Lost>, last: Option<u64>) -> State {
        let seen = seen.and_then(Number::new);
        State { seen, lost, incarnation: seen.map(|_| Incarnation(7)), strict: last.is_some(), last }
    }

    #[test]
    fn what_was_written_is_read_again() {
        let rest = [("nonce", "00ff".to_owned()), ("entry", "a b/c".to_owned()), ("entry", String::new())];
        for state in [
            State::FRESH,
            state(Some(34), None, None),
            state(Some(34), Some(Lost::Declared), Some(u64::MAX)),
            state(Some(Number::MAX.get()), None, Some(0)),
        ] {
            let text = write(&place(), &state, &rest);
            let read = read(&text).expect("readable");
            assert_eq!(read.at(&place()).expect("of this place"), state);
            assert_eq!(read.rest, [("nonce", "00ff"), ("entry", "a b/c"), ("entry", "")]);
            assert_eq!(read.value("nonce"), Some("00ff"));
        }
    }

    #[test]
    fn a_text_that_was_cut_or_changed_anywhere_is_never_a_mark() {
        let text = write(&place(), &state(Some(34), None, None), &[("inode", "12".to_owned())]);
        for at in 0..text.len() {
            assert!(read(&text[..at]).is_err(), "cut at {at}");
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            let changed = String::from_utf8(bytes).expect("still text");
            assert!(read(&changed).is_err(), "changed at {at}: {changed}");
        }
        assert!(read(&(text.clone() + "\n")).is_err());
        assert!(read("").is_err());
    }

    #[test]
    fn a_newer_version_is_named_and_another_place_is_foreign() {
        let text = write(&place(), &State::FRESH, &[]);
        let newer = text.replacen("leasehold-mark 1", "leasehold-mark 2", 1);
        assert!(matches!(read(&newer), Err(Error::Version { have: 2, want: 1 })));
        let other = Place::new(Cluster(*b"another!"), Name::parse("jobs/settle").expect("a name"), 3);
        let error = read(&text).expect("readable").at(&other).expect_err("another cluster's");
        assert_eq!(error.refusal(), Some(&Refusal::ForeignMark));
    }
}
