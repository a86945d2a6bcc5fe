//! The manifest: one object that lists all data objects under a fence, and contains the mark.

use std::collections::BTreeMap;

use leasehold_core::token::Number;
use object_store::path::Path;

use crate::mark_state::MarkState;
use crate::{Error, FenceId, FenceRefusal, MarkLoss, mark_text};

/// The last segment of a manifest's key.
pub(super) const FILE: &str = "leasehold.manifest";
/// Number of recent writes that a manifest lists, so that a writer without a reply can find its own.
pub(super) const RECENT_NONCES: usize = 16;

/// A decoded manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Manifest {
    pub(super) state: MarkState,
    /// Number of earlier manifests.
    pub(super) version: u64,
    /// The nonces of the last writes, the newest first. They make each body, and so its ETag, unique.
    pub(super) nonces: Vec<String>,
    /// The data key of each name. A name that is not listed does not exist.
    pub(super) entries: BTreeMap<String, String>,
}

impl Manifest {
    pub(super) fn fresh() -> Self {
        Self { state: MarkState::FRESH, version: 0, nonces: Vec::new(), entries: BTreeMap::new() }
    }

    /// The next manifest, for the writer with this nonce.
    pub(super) fn next(&self, nonce: &str) -> Self {
        let mut nonces = vec![nonce.to_owned()];
        nonces.extend(self.nonces.iter().take(RECENT_NONCES - 1).cloned());
        Self { version: self.version + 1, nonces, ..self.clone() }
    }

    pub(super) fn encode(&self, id: &FenceId, root: &Path) -> String {
        let mut rest =
            vec![("at", root.to_string()), ("version", self.version.to_string()), ("nonces", self.nonces.join(" "))];
        rest.extend(self.entries.iter().map(|(name, key)| ("entry", format!("{key} {name}"))));
        mark_text::encode(id, &self.state, &rest)
    }

    /// Decodes a manifest found under `root`. A manifest that was copied from elsewhere has lost its mark.
    pub(super) fn decode(parsed: &mark_text::ParsedMark<'_>, root: &Path) -> Result<Self, Error> {
        let unreadable = || Error::from(FenceRefusal::MarkLost(MarkLoss::Unreadable));
        let version = parsed.value("version").and_then(|text| text.parse().ok()).ok_or_else(unreadable)?;
        let nonces = parsed.value("nonces").ok_or_else(unreadable)?;
        let entries = parsed.extra.iter().filter(|(word, _)| *word == "entry");
        let entries = entries.map(|(_, value)| value.split_once(' ').map(|(key, name)| (name.into(), key.into())));
        let moved = parsed.value("at") != Some(root.as_ref());
        let lost = if moved { Some(MarkLoss::Moved) } else { parsed.state.loss };
        Ok(Self {
            state: MarkState { loss: lost, ..parsed.state },
            version,
            nonces: nonces.split_whitespace().map(str::to_owned).collect(),
            entries: entries.collect::<Option<_>>().ok_or_else(unreadable)?,
        })
    }
}

/// The key of data written under this token. It begins with the number, so that keys sort by token.
pub(super) fn data_key(number: Number, nonce: &str, part: usize) -> String {
    format!("{:019}-{nonce}-{part}", number.get())
}

/// The number in a data key; `None` if it is not a data key.
pub(super) fn number_of(key: &str) -> Option<Number> {
    let digits = key.split_once('-')?.0;
    (digits.len() == 19).then(|| digits.parse().ok().and_then(Number::new))?
}
