//! Charters as people write them down, in TOML or JSON.

use std::path::Path;

use leasehold::Error;
use leasehold::json::{CharterBody, CharterEntryBody};
use leasehold_core::charter::Charter;
use leasehold_core::limits::TTL_MAX_EVER;
use serde::{Deserialize, Serialize};

use crate::file;

/// One charter, or several.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Written {
    #[serde(skip_serializing_if = "Option::is_none")]
    prefix: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    charter: Option<CharterBody>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    charters: Vec<CharterEntryBody>,
}

/// The charters of a file, each with its prefix. What no grantor could keep is refused here already.
pub fn read(path: &Path) -> Result<Vec<(String, Charter)>, Error> {
    let at = path.display().to_string();
    let refused = |key: &str, reason: String| Error::in_file(&at, None, key, reason);
    let text = file::read(path)?;
    let ending = path.extension().and_then(|ending| ending.to_str());
    let written = match ending {
        Some("toml") => file::toml::<Written>(path, &text)?,
        // What `show --json` prints is a list.
        Some("json") if text.trim_ascii_start().starts_with('[') => {
            Written { charters: file::json(path, &text)?, ..Written::default() }
        }
        Some("json") => file::json::<Written>(path, &text)?,
        _ => return Err(refused("", format!("{at} ends with neither .toml nor .json; name it after what it holds"))),
    };
    let entries = match written {
        Written { prefix: Some(prefix), charter: Some(charter), charters } if charters.is_empty() => {
            vec![CharterEntryBody { prefix, charter }]
        }
        Written { prefix: None, charter: None, charters } if !charters.is_empty() => charters,
        _ => {
            return Err(refused(
                "charter",
                "charter: either prefix and charter, or charters; write one of them".into(),
            ));
        }
    };
    let each = entries.into_iter().map(|entry| {
        let about = |field: &str, reason: &dyn std::fmt::Display| {
            refused(field, format!("the charter of {}: {reason}; change it", super::called(&entry.prefix)))
        };
        let charter = entry.charter.read().map_err(|refusal| about("charter", &refusal))?;
        charter.validate(TTL_MAX_EVER).map_err(|error| about(error.field, &error))?;
        Ok((entry.prefix.clone(), charter))
    });
    each.collect()
}

/// A file that says these charters.
pub fn text(entries: &[CharterEntryBody]) -> String {
    let written = Written { charters: entries.to_vec(), ..Written::default() };
    let text = toml::to_string_pretty(&written).expect("a charter has only texts, numbers and tables");
    text.trim_end().to_owned()
}
