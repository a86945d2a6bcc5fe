//! Charter files, in TOML or JSON.

use std::path::Path;

use leasehold::Error;
use leasehold::json::{CharterBody, CharterEntryBody};
use leasehold_core::charter::Charter;
use leasehold_core::limits::TTL_MAX_EVER;
use serde::{Deserialize, Serialize};

use crate::input_file;

/// Contents of a charter file: one charter, or several.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct CharterFile {
    #[serde(skip_serializing_if = "Option::is_none")]
    prefix: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    charter: Option<CharterBody>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    charters: Vec<CharterEntryBody>,
}

/// Reads the charters of a file, each with its prefix, and validates them as a grantor would.
pub fn read(path: &Path) -> Result<Vec<(String, Charter)>, Error> {
    let at = path.display().to_string();
    let refused = |key: &str, reason: String| Error::config_in_file(&at, None, key, reason);
    let text = input_file::read(path)?;
    let ending = path.extension().and_then(|ending| ending.to_str());
    let written = match ending {
        Some("toml") => input_file::toml::<CharterFile>(path, &text)?,
        // `charter show --json` prints a list.
        Some("json") if text.trim_ascii_start().starts_with('[') => {
            CharterFile { charters: input_file::json(path, &text)?, ..CharterFile::default() }
        }
        Some("json") => input_file::json::<CharterFile>(path, &text)?,
        _ => return Err(refused("", format!("{at} ends with neither .toml nor .json; rename it to match its format"))),
    };
    let entries = match written {
        CharterFile { prefix: Some(prefix), charter: Some(charter), charters } if charters.is_empty() => {
            vec![CharterEntryBody { prefix, charter }]
        }
        CharterFile { prefix: None, charter: None, charters } if !charters.is_empty() => charters,
        _ => {
            return Err(refused(
                "charter",
                "charter: the file must contain either prefix and charter, or charters; write one of them".into(),
            ));
        }
    };
    let each = entries.into_iter().map(|entry| {
        let about = |field: &str, reason: &dyn std::fmt::Display| {
            refused(field, format!("the charter of {}: {reason}; change it", super::prefix_text(&entry.prefix)))
        };
        let charter = entry.charter.to_charter().map_err(|refusal| about("charter", &refusal))?;
        charter.validate(TTL_MAX_EVER).map_err(|error| about(error.field, &error))?;
        Ok((entry.prefix.clone(), charter))
    });
    each.collect()
}

/// Formats charters as a TOML charter file.
pub fn format(entries: &[CharterEntryBody]) -> String {
    let written = CharterFile { charters: entries.to_vec(), ..CharterFile::default() };
    let text = toml::to_string_pretty(&written).expect("charters consist of strings, numbers and tables");
    text.trim_end().to_owned()
}
