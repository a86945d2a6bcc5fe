//! Changes grants in an access file. Comments and the order of other grants stay as they are.

use std::path::{Path, PathBuf};

use leasehold::Error;
use leasehold_core::access::Role;
use leasehold_core::name::Prefix;
use serde::Deserialize;
use toml_edit::DocumentMut;

use crate::input_file;

/// One grant of an access file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GrantEntry {
    pub principal: String,
    pub role: String,
    pub prefix: String,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct GrantEntries {
    grant: Vec<GrantEntry>,
}

/// An access file that is valid as a whole.
pub struct AccessDocument {
    path: PathBuf,
    text: String,
    pub grants: Vec<GrantEntry>,
}

impl AccessDocument {
    /// Reads and validates a file.
    pub fn read(path: &Path) -> Result<Self, Error> {
        Self::parse(path, input_file::read(path)?)
    }

    fn parse(path: &Path, text: String) -> Result<Self, Error> {
        let entries: GrantEntries = input_file::toml(path, &text)?;
        let refused = |key: &str, reason: String| {
            Err(Error::config_in_file(&path.display().to_string(), None, key, format!("{key}: {reason}")))
        };
        if entries.grant.is_empty() {
            return refused("grant", "there must be at least one grant".into());
        }
        for (at, grant) in entries.grant.iter().enumerate() {
            if let Err(reason) = parse_grant(&grant.role, &grant.prefix) {
                return refused("grant", reason);
            }
            if entries.grant[..at].contains(grant) {
                let GrantEntry { principal, role, prefix } = grant;
                return refused("grant", format!("{principal} has the role {role} under {prefix:?} twice; remove one"));
            }
        }
        Ok(Self { path: path.to_owned(), text, grants: entries.grant })
    }

    /// Grants of one identity, as text.
    pub fn roles_of<'a>(&'a self, principal: &'a str) -> impl Iterator<Item = &'a GrantEntry> {
        self.grants.iter().filter(move |grant| grant.principal == principal)
    }

    /// The file with further grants at its end.
    pub fn with_grants(&self, comment: &str, added: &[GrantEntry]) -> Result<String, Error> {
        let mut text = self.text.clone();
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        for grant in added {
            text.push_str(&format!("\n# {comment}\n{}", grant.text()));
        }
        self.validated(text)
    }

    /// The file without the grants of one identity.
    pub fn without(&self, principal: &str) -> Result<String, Error> {
        if self.grants.iter().all(|grant| grant.principal == principal) {
            let message =
                format!("{principal} has the last grants of the access file; grant a role to another identity first");
            return Err(Error::config_in_file(&self.path.display().to_string(), None, "grant", message));
        }
        let mut document: DocumentMut = self.text.parse().map_err(|error: toml_edit::TomlError| {
            Error::config_in_file(&self.path.display().to_string(), None, "grant", error.message())
        })?;
        match document.get_mut("grant") {
            Some(toml_edit::Item::ArrayOfTables(tables)) => {
                tables.retain(|table| table.get("principal").and_then(toml_edit::Item::as_str) != Some(principal));
            }
            Some(toml_edit::Item::Value(toml_edit::Value::Array(values))) => values.retain(|value| {
                let table = value.as_inline_table();
                table.and_then(|table| table.get("principal")).and_then(toml_edit::Value::as_str) != Some(principal)
            }),
            _ => {}
        }
        self.validated(document.to_string())
    }

    fn validated(&self, text: String) -> Result<String, Error> {
        Self::parse(&self.path, text).map(|document| document.text)
    }
}

impl GrantEntry {
    /// The grant as a table of an access file.
    pub fn text(&self) -> String {
        let quoted = |text: &str| toml::Value::from(text).to_string();
        let Self { principal, role, prefix } = self;
        format!("[[grant]]\nprincipal = {}\nrole = {}\nprefix = {}\n", quoted(principal), quoted(role), quoted(prefix))
    }
}

/// Checks a role and a prefix.
pub fn parse_grant(role: &str, prefix: &str) -> Result<Role, String> {
    let Some(parsed) = Role::parse(role) else {
        let roles = Role::ALL.map(Role::word).join(", ");
        return Err(format!("{role:?} is not a role; write one of {roles}"));
    };
    if let Err(error) = Prefix::parse(prefix) {
        return Err(format!("{prefix:?} is not a prefix: {error}; write whole segments, for example jobs/nightly"));
    }
    if parsed == Role::Admin && !prefix.is_empty() {
        return Err(format!("the role admin concerns the whole cluster, not {prefix:?}; write the prefix \"\""));
    }
    Ok(parsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# Who may do what.\n[[grant]] # first\nprincipal = \"spiffe://a/admin\"\nrole = \"admin\"\nprefix = \"\"\n\n\
                        # The night jobs.\n[[grant]]\nrole = \"holder\"\nprincipal = \"spiffe://a/worker\"\nprefix = \"jobs\"\n\
                        # end";

    fn document(text: &str) -> Result<AccessDocument, Error> {
        AccessDocument::parse(Path::new("access.toml"), text.to_owned())
    }

    fn grant(principal: &str, role: &str, prefix: &str) -> GrantEntry {
        GrantEntry { principal: principal.into(), role: role.into(), prefix: prefix.into() }
    }

    #[test]
    fn added_grants_follow_what_is_there() {
        let document_before = document(FILE).expect("a valid file");
        let added = [grant("spiffe://a/w2", "holder", "jobs/a"), grant("spiffe://a/w2", "observer", "")];
        let text = document_before.with_grants("w2, issued 2026-11-18", &added).expect("valid grants");
        assert!(text.starts_with(FILE), "{text}");
        let after = document(&text).expect("a valid file");
        assert_eq!(after.grants[2..], added);
        assert_eq!(after.roles_of("spiffe://a/w2").count(), 2);
    }

    #[test]
    fn removed_grants_leave_the_others_as_they_are() {
        let text = document(FILE).expect("a valid file").without("spiffe://a/worker").expect("one grant is left");
        assert!(
            text.starts_with("# Who may do what.\n[[grant]] # first\nprincipal = \"spiffe://a/admin\"\n"),
            "{text}"
        );
        assert!(!text.contains("worker"), "{text}");
        let inline = "grant = [ # all\n  {principal = \"a\", role = \"admin\", prefix = \"\"}, {principal = \"b\", role = \"holder\", prefix = \"\"}]\n";
        let text = document(inline).expect("a valid file").without("b").expect("one grant is left");
        assert!(text.contains("# all") && !text.contains("\"b\""), "{text}");
    }

    #[test]
    fn an_invalid_file_or_result_is_refused() {
        let one = |text: &str| document(text).map(|_| ()).expect_err("invalid").to_string();
        assert!(one("").contains("grant"), "no grant");
        assert!(one("grant = []\n").contains("at least one grant"));
        assert!(
            one("[[grant]]\nprincipal = \"a\"\nrole = \"root\"\nprefix = \"\"\n").contains("\"root\" is not a role")
        );
        assert!(one("[[grant]]\nprincipal = \"a\"\nrole = \"admin\"\nprefix = \"jobs\"\n").contains("whole cluster"));
        assert!(
            one("[[grant]]\nprincipal = \"a\"\nrole = \"holder\"\nprefix = \"a//b\"\n").contains("is not a prefix")
        );
        assert!(one("[[grant]]\nprincipal = \"a\"\nrole = \"holder\"\nprefix = \"\"\nmay = 1\n").contains("may"));
        let full = document(FILE).expect("a valid file");
        assert!(full.with_grants("again", &[grant("spiffe://a/worker", "holder", "jobs")]).is_err(), "repeated");
        let single = document("[[grant]]\nprincipal = \"a\"\nrole = \"admin\"\nprefix = \"\"\n").expect("a valid file");
        assert!(single.without("a").is_err_and(|error| error.to_string().contains("the last grants")));
    }
}
