//! Changes grants in an access file. Comments and the order of other grants stay as they are.

use std::path::{Path, PathBuf};

use leasehold::Error;
use leasehold_core::access::{AccessGrant, Role};
use leasehold_core::name::Prefix;
use leasehold_server::access::{AccessFile, PrincipalGrant};
use toml_edit::DocumentMut;

use crate::input_file;

/// An access file that is valid as a whole.
pub struct AccessDocument {
    path: PathBuf,
    text: String,
    file: AccessFile,
}

impl AccessDocument {
    /// Reads and validates a file.
    pub fn read(path: &Path) -> Result<Self, Error> {
        Self::parse(path, input_file::read(path)?)
    }

    fn parse(path: &Path, text: String) -> Result<Self, Error> {
        let file = AccessFile::parse(&text).map_err(|error| {
            let message =
                if error.key.is_empty() { error.message } else { format!("{}: {}", error.key, error.message) };
            Error::config_in_file(&path.display().to_string(), error.line, &error.key, message)
        })?;
        Ok(Self { path: path.to_owned(), text, file })
    }

    /// All grants, in the order of the file.
    pub fn grants(&self) -> &[PrincipalGrant] {
        self.file.grants()
    }

    /// Grants of one identity.
    pub fn grants_of<'a>(&'a self, principal: &'a str) -> impl Iterator<Item = &'a AccessGrant> {
        self.grants().iter().filter(move |grant| *grant.principal == *principal).map(|grant| &grant.grant)
    }

    /// Grants of a command line, one role for each prefix, that an identity does not have yet. An identity without any is refused.
    pub fn missing_grants(
        &self,
        identity: &str,
        roles: &[String],
        prefixes: &[String],
    ) -> Result<Vec<PrincipalGrant>, Error> {
        if roles.len() != prefixes.len() {
            let (roles, prefixes) = (roles.len(), prefixes.len());
            let message = format!(
                "prefix: --role is given {roles} times and --prefix {prefixes} times; give one --prefix for each --role, \"\" for all names"
            );
            return Err(Error::config("prefix", message));
        }
        if roles.is_empty() && self.grants_of(identity).next().is_none() {
            let message =
                format!("role: {identity} has no grant yet, and could do nothing; give a --role and a --prefix");
            return Err(Error::config("role", message));
        }
        let mut added: Vec<PrincipalGrant> = Vec::new();
        for (role, prefix) in roles.iter().zip(prefixes) {
            let grant = parse_grant(role, prefix).map_err(|reason| Error::config("role", format!("role: {reason}")))?;
            let grant = PrincipalGrant { principal: identity.into(), grant };
            if !self.grants().contains(&grant) && !added.contains(&grant) {
                added.push(grant);
            }
        }
        Ok(added)
    }

    /// The file with further grants at its end.
    pub fn with_grants(&self, comment: &str, added: &[PrincipalGrant]) -> Result<String, Error> {
        let mut text = self.text.clone();
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        for grant in added {
            text.push_str(&format!("\n# {comment}\n{}", grant_text(grant)));
        }
        self.validated(text)
    }

    /// The file without the grants and limits of one identity.
    pub fn without(&self, principal: &str) -> Result<String, Error> {
        if self.grants().iter().all(|grant| *grant.principal == *principal) {
            let message =
                format!("{principal} has the last grants of the access file; grant a role to another identity first");
            return Err(Error::config_in_file(&self.path.display().to_string(), None, "grant", message));
        }
        let mut document: DocumentMut = self.text.parse().map_err(|error: toml_edit::TomlError| {
            Error::config_in_file(&self.path.display().to_string(), None, "grant", error.message())
        })?;
        for key in ["grant", "limit"] {
            match document.get_mut(key) {
                Some(toml_edit::Item::ArrayOfTables(tables)) => {
                    tables.retain(|table| table.get("principal").and_then(toml_edit::Item::as_str) != Some(principal));
                }
                Some(toml_edit::Item::Value(toml_edit::Value::Array(values))) => values.retain(|value| {
                    let table = value.as_inline_table();
                    table.and_then(|table| table.get("principal")).and_then(toml_edit::Value::as_str) != Some(principal)
                }),
                _ => {}
            }
        }
        self.validated(document.to_string())
    }

    fn validated(&self, text: String) -> Result<String, Error> {
        Self::parse(&self.path, text).map(|document| document.text)
    }
}

/// A grant as a table of an access file.
pub fn grant_text(PrincipalGrant { principal, grant }: &PrincipalGrant) -> String {
    let quoted = |text: &str| toml::Value::from(text).to_string();
    let (principal, role, prefix) = (quoted(principal), quoted(grant.role.word()), quoted(&grant.prefix));
    format!("[[grant]]\nprincipal = {principal}\nrole = {role}\nprefix = {prefix}\n")
}

/// Parses a role and a prefix of the command line.
fn parse_grant(role: &str, prefix: &str) -> Result<AccessGrant, String> {
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
    Ok(AccessGrant { role: parsed, prefix: prefix.into() })
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

    fn grant(principal: &str, role: &str, prefix: &str) -> PrincipalGrant {
        PrincipalGrant { principal: principal.into(), grant: parse_grant(role, prefix).expect("a valid grant") }
    }

    #[test]
    fn added_grants_follow_what_is_there() {
        let document_before = document(FILE).expect("a valid file");
        let added = [grant("spiffe://a/w2", "holder", "jobs/a"), grant("spiffe://a/w2", "observer", "")];
        let text = document_before.with_grants("w2, issued 2026-11-18", &added).expect("valid grants");
        assert!(text.starts_with(FILE), "{text}");
        let after = document(&text).expect("a valid file");
        assert_eq!(after.grants()[2..], added);
        assert_eq!(after.grants_of("spiffe://a/w2").count(), 2);
    }

    #[test]
    fn removed_grants_leave_the_others_as_they_are() {
        let text = document(FILE).expect("a valid file").without("spiffe://a/worker").expect("one grant is left");
        assert!(
            text.starts_with("# Who may do what.\n[[grant]] # first\nprincipal = \"spiffe://a/admin\"\n"),
            "{text}"
        );
        assert!(!text.contains("worker"), "{text}");
        let limited = format!("{FILE}\n[[limit]]\nprincipal = \"spiffe://a/worker\"\nleases = 5\n");
        let text = document(&limited).expect("a valid file").without("spiffe://a/worker").expect("one grant is left");
        assert!(!text.contains("worker"), "{text}");
        let inline = "grant = [ # all\n  {principal = \"uid:1\", role = \"admin\", prefix = \"\"}, {principal = \"uid:2\", role = \"holder\", prefix = \"\"}]\n";
        let text = document(inline).expect("a valid file").without("uid:2").expect("one grant is left");
        assert!(text.contains("# all") && !text.contains("uid:2"), "{text}");
    }

    #[test]
    fn an_invalid_file_or_result_is_refused() {
        let error = |text: &str| document(text).map(|_| ()).expect_err("invalid").to_string();
        assert!(error("").contains("grant"), "no grant");
        let text = "[[grant]]\nprincipal = \"uid:1\"\nrole = \"root\"\nprefix = \"\"\n";
        assert!(error(text).contains("access.toml, 3, role"), "{}", error(text));
        for (role, prefix) in [("root", ""), ("admin", "jobs"), ("holder", "jobs/"), ("holder", "/")] {
            assert!(parse_grant(role, prefix).is_err(), "{role}:{prefix}");
        }
        let full = document(FILE).expect("a valid file");
        assert!(full.with_grants("again", &[grant("spiffe://a/worker", "holder", "jobs")]).is_err(), "repeated");
        let single =
            document("[[grant]]\nprincipal = \"uid:1\"\nrole = \"admin\"\nprefix = \"\"\n").expect("a valid file");
        assert!(single.without("uid:1").is_err_and(|error| error.to_string().contains("the last grants")));
    }
}
