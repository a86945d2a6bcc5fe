//! The bearer file: `[[bearer]]` tables in TOML, one for each own token. It contains digests, never tokens.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use toml::Spanned;
use toml::value::Datetime;

use super::timestamp::{self, timestamp_text};
use super::token_text::{ID_DIGITS, is_id};
use crate::hex::{hex, unhex};
use crate::principal_name::check_principal;
use crate::toml_file::{self, TomlFileError};

/// Most tokens of a file.
const MAX_TOKENS: usize = 10_000;

/// One own token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BearerEntry {
    /// Names the token; not secret.
    pub id: String,
    /// The identity that it proves.
    pub principal: String,
    /// SHA-256 of its text.
    pub digest: [u8; 32],
    /// When it was created, in seconds since 1970.
    pub created: u64,
    /// When it ends.
    pub expires: u64,
    /// When it was revoked.
    pub revoked: Option<u64>,
}

/// A valid bearer file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BearerFile {
    /// The tokens, in the order of the file.
    pub entries: Vec<BearerEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BearerFileText {
    #[serde(default)]
    bearer: Vec<Spanned<BearerEntryText>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BearerEntryText {
    id: Spanned<String>,
    principal: Spanned<String>,
    sha256: Spanned<String>,
    created: Spanned<Datetime>,
    expires: Spanned<Datetime>,
    revoked: Option<Spanned<Datetime>>,
}

impl BearerFile {
    /// Parses and validates the text of a file.
    pub fn parse(text: &str) -> Result<Self, TomlFileError> {
        let at = |offset: usize, key: &str, message: String| TomlFileError::at(text, offset, key, message);
        let file: BearerFileText = toml_file::parse(text)?;
        if file.bearer.len() > MAX_TOKENS {
            let message = format!("{} tokens; at most {MAX_TOKENS} are allowed, so remove old ones", file.bearer.len());
            return Err(TomlFileError::of_file("bearer", message));
        }
        let mut seen = BTreeMap::new();
        let mut entries = Vec::with_capacity(file.bearer.len());
        for entry in &file.bearer {
            let BearerEntryText { id, principal, sha256, created, expires, revoked } = entry.get_ref();
            if !is_id(id.get_ref()) {
                let message = format!("not {ID_DIGITS} hexadecimal digits; restore the line that was written");
                return Err(at(id.span().start, "id", message));
            }
            check_principal(principal.get_ref()).map_err(|message| at(principal.span().start, "principal", message))?;
            if principal.get_ref() == "anonymous" {
                let message = "a token proves an identity, and anonymous is none; write for example bearer:NAME";
                return Err(at(principal.span().start, "principal", message.to_owned()));
            }
            let digest = unhex(sha256.get_ref()).ok_or_else(|| {
                at(sha256.span().start, "sha256", "not 64 hexadecimal digits; restore the line that was written".into())
            })?;
            let time = |value: &Spanned<Datetime>, key: &str| {
                let message = "not a date and time with an offset; write for example 2027-01-31T12:00:00Z";
                timestamp::seconds(value.get_ref()).ok_or_else(|| at(value.span().start, key, message.to_owned()))
            };
            let first = toml_file::line_of(text, entry.span().start);
            if let Some(first) = seen.insert(id.get_ref(), first) {
                let message = format!("repeats the id of line {first}; remove one of the tables");
                return Err(at(id.span().start, "id", message));
            }
            entries.push(BearerEntry {
                id: id.get_ref().clone(),
                principal: principal.get_ref().clone(),
                digest,
                created: time(created, "created")?,
                expires: time(expires, "expires")?,
                revoked: revoked.as_ref().map(|value| time(value, "revoked")).transpose()?,
            });
        }
        Ok(Self { entries })
    }
}

impl fmt::Display for BearerFile {
    /// The text of the file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "# Digests of bearer tokens. leasehold bearer creates and revokes tokens; SIGHUP reloads this file.\n",
        )?;
        for BearerEntry { id, principal, digest, created, expires, revoked } in &self.entries {
            let principal = toml::Value::from(principal.as_str());
            write!(f, "\n[[bearer]]\nid = \"{id}\"\nprincipal = {principal}\nsha256 = \"{}\"\n", hex(digest))?;
            write!(f, "created = {}\nexpires = {}\n", timestamp_text(*created), timestamp_text(*expires))?;
            if let Some(revoked) = revoked {
                writeln!(f, "revoked = {}", timestamp_text(*revoked))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(id: &str, revoked: Option<u64>) -> BearerEntry {
        let (created, expires) = (1_795_000_000, 1_802_776_000);
        BearerEntry { id: id.into(), principal: "bearer:ci".into(), digest: [0xa5; 32], created, expires, revoked }
    }

    #[test]
    fn a_file_is_parsed_from_its_own_text() {
        let file =
            BearerFile { entries: vec![entry("0123456789ab", None), entry("ba9876543210", Some(1_795_000_001))] };
        assert_eq!(BearerFile::parse(&file.to_string()), Ok(file));
        assert_eq!(BearerFile::parse(""), Ok(BearerFile::default()), "no token is valid");
    }

    #[test]
    fn an_invalid_value_is_reported_with_its_line_and_key() {
        let text = BearerFile { entries: vec![entry("0123456789ab", None)] }.to_string();
        let table = [
            ("id = \"0123456789ab\"", "id = \"0123456789AB\"", 4, "id", "hexadecimal"),
            ("bearer:ci", "ci", 5, "principal", "not a principal"),
            ("bearer:ci", "anonymous", 5, "principal", "is none"),
            ("bearer:ci", "local", 5, "principal", ""),
            ("a5a5\"", "a5\"", 6, "sha256", "64"),
            ("expires = 2027", "expires = \"2027", 8, "", ""),
            ("expires = 2027-02-16T", "expires = 2027-02-16 # T", 8, "expires", "offset"),
            ("expires =", "ends =", 8, "ends", "unknown field"),
        ];
        for (from, to, line, key, message) in table {
            let bad = text.replace(from, to);
            assert_ne!(bad, text, "{from}");
            let error = BearerFile::parse(&bad).expect_err("invalid");
            assert!(error.line == Some(line) && error.message.contains(message), "{to}: {error:?}");
            assert!(key.is_empty() || error.key == key, "{to}: {error:?}");
        }
        let twice = BearerFile { entries: vec![entry("0123456789ab", None), entry("0123456789ab", None)] };
        let error = BearerFile::parse(&twice.to_string()).expect_err("repeated");
        assert!(error.key == "id" && error.message.contains("line 3"), "{error:?}");
    }
}
