//! What an object store keeps under a fence: one object that names all others, and the mark in its body.

use std::collections::BTreeMap;

use leasehold_core::token::Number;
use object_store::path::Path;

use crate::place::Place;
use crate::state::State;
use crate::{Error, Lost, Refusal, text};

/// The last part of a manifest's key.
pub(super) const FILE: &str = "leasehold.manifest";
/// How many writes back a manifest names, so that a writer whose answer was lost finds its own.
pub(super) const RECENT: usize = 16;

/// A manifest, as it stands in its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Manifest {
    pub(super) state: State,
    /// How many manifests there were before.
    pub(super) version: u64,
    /// The nonces of the last writes, the newest first. A body without one could come twice, and its tag with it.
    pub(super) nonces: Vec<String>,
    /// Which data key a name has. What is not here does not exist.
    pub(super) entries: BTreeMap<String, String>,
}

impl Manifest {
    pub(super) fn fresh() -> Self {
        Self { state: State::FRESH, version: 0, nonces: Vec::new(), entries: BTreeMap::new() }
    }

    /// The next one, written by whoever has this nonce.
    pub(super) fn next(&self, nonce: &str) -> Self {
        let mut nonces = vec![nonce.to_owned()];
        nonces.extend(self.nonces.iter().take(RECENT - 1).cloned());
        Self { version: self.version + 1, nonces, ..self.clone() }
    }

    pub(super) fn encode(&self, place: &Place, root: &Path) -> String {
        let mut rest =
            vec![("at", root.to_string()), ("version", self.version.to_string()), ("nonces", self.nonces.join(" "))];
        rest.extend(self.entries.iter().map(|(name, key)| ("entry", format!("{key} {name}"))));
        text::write(place, &self.state, &rest)
    }

    /// Reads a body. `root` is where it was found: a manifest that was copied elsewhere has lost its mark.
    pub(super) fn decode(written: &text::Written<'_>, root: &Path) -> Result<Self, Error> {
        let unreadable = || Error::from(Refusal::Lost(Lost::Unreadable));
        let version = written.value("version").and_then(|text| text.parse().ok()).ok_or_else(unreadable)?;
        let nonces = written.value("nonces").ok_or_else(unreadable)?;
        let entries = written.rest.iter().filter(|(word, _)| *word == "entry");
        let entries = entries.map(|(_, value)| value.split_once(' ').map(|(key, name)| (name.into(), key.into())));
        let moved = written.value("at") != Some(root.as_ref());
        let lost = if moved { Some(Lost::Moved) } else { written.state.lost };
        Ok(Self {
            state: State { lost, ..written.state },
            version,
            nonces: nonces.split_whitespace().map(str::to_owned).collect(),
            entries: entries.collect::<Option<_>>().ok_or_else(unreadable)?,
        })
    }
}

/// The key of data written under this token: its number stands in front, so that keys order as tokens do.
pub(super) fn data_key(number: Number, nonce: &str, part: usize) -> String {
    format!("{:019}-{nonce}-{part}", number.get())
}

/// The number in a data key, if it is one.
pub(super) fn number_of(key: &str) -> Option<Number> {
    let digits = key.split_once('-')?.0;
    (digits.len() == 19).then(|| digits.parse().ok().and_then(Number::new))?
}
