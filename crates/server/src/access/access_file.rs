//! The access file: `[[grant]]` tables in TOML, each with a principal, a role and a prefix, and limits of identities. Errors name
//! line and key.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_core::access::{AccessGrant, ApprovalRules, DangerousAction, Role};
use leasehold_core::name::Prefix;
use serde::Deserialize;
use toml::Spanned;

use super::PrincipalLimits;
use super::limits_text::LimitsText;
use crate::principal_name::check_principal;
use crate::toml_file::{self, TomlFileError};

/// Most grants of a file.
const MAX_GRANTS: usize = 10_000;

/// One grant of an access file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrincipalGrant {
    /// The identity.
    pub principal: Box<str>,
    /// Its role and prefix.
    pub grant: AccessGrant,
}

/// A valid access file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessFile {
    grants: Vec<PrincipalGrant>,
    limits: PrincipalLimits,
    own_limits: BTreeMap<Box<str>, PrincipalLimits>,
    approval: ApprovalRules,
    /// Identities that may act without a second one.
    alone: BTreeSet<Box<str>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileText {
    #[serde(default)]
    grant: Vec<Spanned<GrantText>>,
    two_person: Option<TwoPersonText>,
    #[serde(default)]
    limits: LimitsText,
    #[serde(default)]
    limit: Vec<Spanned<LimitsText>>,
}

/// Actions that need the approval of a second identity.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TwoPersonText {
    actions: Vec<Spanned<String>>,
    revoke_up_to: Option<Spanned<u64>>,
    /// Identities that may act alone, with a reason.
    #[serde(default)]
    alone: Vec<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GrantText {
    principal: Spanned<String>,
    role: Spanned<String>,
    prefix: Spanned<String>,
}

impl AccessFile {
    /// Parses and validates the text of a file.
    pub fn parse(text: &str) -> Result<Self, TomlFileError> {
        let file: FileText = toml_file::parse(text)?;
        let at = |offset: usize, key: &str, message: String| TomlFileError::at(text, offset, key, message);
        if file.grant.is_empty() {
            let message = "no grant; add at least one [[grant]] with principal, role and prefix".to_owned();
            return Err(TomlFileError::of_file("grant", message));
        }
        if file.grant.len() > MAX_GRANTS {
            let message =
                format!("{} grants; at most {MAX_GRANTS} are allowed, so grant a common prefix", file.grant.len());
            return Err(TomlFileError::of_file("grant", message));
        }
        let mut seen = BTreeMap::new();
        let mut grants = Vec::with_capacity(file.grant.len());
        for entry in &file.grant {
            let GrantText { principal, role, prefix } = entry.get_ref();
            let start = |value: &Spanned<String>| value.span().start;
            check_principal(principal.get_ref()).map_err(|message| at(start(principal), "principal", message))?;
            let found =
                Role::parse(role.get_ref()).ok_or_else(|| at(start(role), "role", unknown_role(role.get_ref())))?;
            let name = prefix.get_ref().as_str();
            Prefix::parse(name).map_err(|error| at(start(prefix), "prefix", error.to_string()))?;
            if found == Role::Admin && !name.is_empty() {
                let message =
                    "the role admin concerns the whole cluster; write prefix = \"\", or use the role operator";
                return Err(at(start(prefix), "prefix", message.to_owned()));
            }
            let line = toml_file::line_of(text, entry.span().start);
            if let Some(first) = seen.insert((principal.get_ref(), found, name), line) {
                let message = format!("repeats the grant of line {first}; remove one of them");
                return Err(at(entry.span().start, "grant", message));
            }
            let grant = AccessGrant { role: found, prefix: name.into() };
            grants.push(PrincipalGrant { principal: principal.get_ref().as_str().into(), grant });
        }
        let invalid = |(offset, key, message): (usize, &str, String)| at(offset, key, message);
        if let Some(principal) = &file.limits.principal {
            let message = "[limits] is for every identity; write [[limit]] for one of them";
            return Err(at(principal.span().start, "principal", message.to_owned()));
        }
        let limits = file.limits.over(&PrincipalLimits::default()).map_err(invalid)?;
        let own_limits = own_limits(&file.limit, &limits).map_err(invalid)?;
        let (mut approval, mut alone) = (ApprovalRules::NONE, BTreeSet::new());
        if let Some(text) = &file.two_person {
            approval = approval_rules(text).map_err(invalid)?;
            alone = acting_alone(text, &grants).map_err(invalid)?;
        }
        Ok(Self { grants, limits, own_limits, approval, alone })
    }

    /// Limits of each identity that has none of its own.
    pub fn limits(&self) -> &PrincipalLimits {
        &self.limits
    }

    /// Actions that need the approval of a second identity.
    pub fn approval(&self) -> &ApprovalRules {
        &self.approval
    }

    /// The same for one identity, which may be one that may act alone.
    pub fn approval_of(&self, principal: &str) -> ApprovalRules {
        let mut rules = self.approval;
        rules.may_act_alone = self.alone.contains(principal);
        rules
    }

    /// Identities that may act without a second one.
    pub fn acting_alone(&self) -> &BTreeSet<Box<str>> {
        &self.alone
    }

    /// Identities with limits of their own.
    pub fn own_limits(&self) -> &BTreeMap<Box<str>, PrincipalLimits> {
        &self.own_limits
    }

    /// All grants, in the order of the file.
    pub fn grants(&self) -> &[PrincipalGrant] {
        &self.grants
    }
}

/// The `[two_person]` table.
fn approval_rules(text: &TwoPersonText) -> Result<ApprovalRules, (usize, &'static str, String)> {
    let mut rules = ApprovalRules::NONE;
    for action in &text.actions {
        let at = action.span().start;
        let Some(found) = DangerousAction::parse(action.get_ref()) else {
            let known: Vec<_> = DangerousAction::ALL.iter().map(|action| action.word()).collect();
            let message = format!("{:?} cannot need an approval; use some of {}", action.get_ref(), known.join(", "));
            return Err((at, "actions", message));
        };
        if rules.is_required(found) {
            return Err((at, "actions", format!("{:?} is repeated; write it once", action.get_ref())));
        }
        rules.require(found);
    }
    if let Some(up_to) = &text.revoke_up_to {
        if !rules.is_required(DangerousAction::Revoke) {
            let message = "needs \"revoke\" in actions; add it, or remove this key".to_owned();
            return Err((up_to.span().start, "revoke_up_to", message));
        }
        rules.revoke_up_to = *up_to.get_ref();
    }
    Ok(rules)
}

/// The identities of the key `alone`. Each has a grant, so that a misspelled one is found before the emergency.
fn acting_alone(
    text: &TwoPersonText,
    grants: &[PrincipalGrant],
) -> Result<BTreeSet<Box<str>>, (usize, &'static str, String)> {
    let mut alone = BTreeSet::new();
    for principal in &text.alone {
        let (at, name) = (principal.span().start, principal.get_ref().as_str());
        check_principal(name).map_err(|message| (at, "alone", message))?;
        if !grants.iter().any(|entry| *entry.principal == *name) {
            return Err((at, "alone", format!("{name:?} has no grant; add one, or remove it here")));
        }
        if !alone.insert(name.into()) {
            return Err((at, "alone", format!("{name:?} is repeated; write it once")));
        }
    }
    Ok(alone)
}

/// The `[[limit]]` tables. Keys that a table leaves out are those of all identities.
fn own_limits(
    tables: &[Spanned<LimitsText>],
    of_all: &PrincipalLimits,
) -> Result<BTreeMap<Box<str>, PrincipalLimits>, (usize, &'static str, String)> {
    if tables.len() > MAX_GRANTS {
        let message = format!("{} tables; at most {MAX_GRANTS} are allowed, so set [limits] for all", tables.len());
        return Err((0, "limit", message));
    }
    let mut own = BTreeMap::new();
    for table in tables {
        let limits = table.get_ref();
        let missing =
            || (table.span().start, "principal", "missing; write for which identity the limits are".to_owned());
        let principal = limits.principal.as_ref().ok_or_else(missing)?;
        let start = principal.span().start;
        check_principal(principal.get_ref()).map_err(|message| (start, "principal", message))?;
        if limits.is_empty() {
            let message = "names no limit; add for example leases = 1000, or remove the table".to_owned();
            return Err((table.span().start, "limit", message));
        }
        if own.insert(principal.get_ref().as_str().into(), limits.over(of_all)?).is_some() {
            let message = format!("repeats the limits of {:?}; keep one table for each principal", principal.get_ref());
            return Err((start, "principal", message));
        }
    }
    Ok(own)
}

fn unknown_role(role: &str) -> String {
    let roles: Vec<_> = Role::ALL.iter().map(|role| role.word()).collect();
    format!("unknown role {role:?}; use one of {}", roles.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(principal: &str, role: &str, prefix: &str) -> String {
        format!("[[grant]]\nprincipal = {principal:?}\nrole = {role:?}\nprefix = {prefix:?}\n")
    }

    fn error(text: &str) -> (Option<u64>, String, String) {
        let error = AccessFile::parse(text).expect_err("the file is invalid");
        (error.line, error.key, error.message)
    }

    #[test]
    fn a_file_with_every_kind_of_principal_is_valid() {
        let text = [
            grant("spiffe://example.org/jobs/worker-1", "holder", "jobs"),
            grant("spiffe://example.org/jobs/worker-1", "holder", "jobs/night"),
            grant("dns:build-7.example.org", "operator", "builds/main"),
            grant("uid:0", "admin", ""),
            grant("uid:1000", "observer", ""),
            grant("anonymous", "observer", "public"),
        ];
        let file = AccessFile::parse(&text.concat()).expect("the file is valid");
        assert_eq!(file.grants().len(), 6);
        assert_eq!(&*file.grants()[2].principal, "dns:build-7.example.org");
        assert_eq!(file.grants()[2].grant, AccessGrant { role: Role::Operator, prefix: "builds/main".into() });
    }

    #[test]
    fn an_invalid_value_is_reported_with_its_line_and_key() {
        let good = grant("uid:1", "holder", "jobs");
        let cases = [
            (grant("root", "admin", ""), 6, "principal", "is not a principal"),
            (grant("local", "admin", ""), 6, "principal", "no connection is"),
            (grant("CN=admin", "admin", ""), 6, "principal", "is not a principal"),
            (grant("spiffe://Example/a", "holder", "a"), 6, "principal", "lower-case"),
            (grant("spiffe://example", "holder", "a"), 6, "principal", "has no path"),
            (grant("spiffe://example/a//b", "holder", "a"), 6, "principal", "segments"),
            (grant("spiffe://example/../b", "holder", "a"), 6, "principal", "segments"),
            (grant("spiffe://example/a?b", "holder", "a"), 6, "principal", "segments"),
            (grant("dns:*.example.org", "holder", "a"), 6, "principal", "wildcards"),
            (grant("uid:01", "holder", "a"), 6, "principal", "user id"),
            (grant("uid:4294967296", "holder", "a"), 6, "principal", "user id"),
            (grant("uid:-1", "holder", "a"), 6, "principal", "user id"),
            (grant("uid:2", "root", "a"), 7, "role", "use one of holder, observer"),
            (grant("uid:2", "Admin", ""), 7, "role", "unknown role"),
            (grant("uid:2", "holder", "/jobs"), 8, "prefix", ""),
            (grant("uid:2", "holder", "jobs/"), 8, "prefix", ""),
            (grant("uid:2", "holder", "jobs//a"), 8, "prefix", ""),
            (grant("uid:2", "admin", "jobs"), 8, "prefix", "whole cluster"),
        ];
        for (bad, line, key, message) in cases {
            let (at, named, text) = error(&format!("{good}{bad}"));
            assert_eq!((at, named.as_str()), (Some(line), key), "{bad}: {text}");
            assert!(text.contains(message), "{bad}: {text}");
        }
    }

    #[test]
    fn limits_are_those_of_the_principal_of_the_file_or_the_defaults() {
        let good = grant("uid:1", "holder", "jobs");
        let file = AccessFile::parse(&good).expect("the file is valid");
        assert_eq!(*file.limits(), PrincipalLimits::default());
        let text = format!("{good}[limits]\nleases = 7\nwatches = 0\n[[limit]]\nprincipal = \"uid:1\"\nleases = 9\n");
        let file = AccessFile::parse(&text).expect("the file is valid");
        assert_eq!((file.limits().state.leases, file.limits().traffic.watches), (7, 0));
        assert_eq!(file.limits().state.sessions, PrincipalLimits::default().state.sessions);
        let own = file.own_limits()["uid:1"];
        assert_eq!((own.state.leases, own.traffic.watches), (9, 0));
    }

    #[test]
    fn two_persons_are_required_for_the_listed_actions() {
        let good = grant("uid:1", "holder", "jobs");
        let parse = |text: &str| AccessFile::parse(&format!("{good}[two_person]\n{text}"));
        let file = parse("actions = [\"free\", \"revoke\"]\nrevoke_up_to = 3\n").expect("the file is valid");
        assert!(file.approval().is_required(DangerousAction::Free));
        assert!(!file.approval().is_required(DangerousAction::StepDown));
        assert_eq!(file.approval().revoke_up_to, 3);
        assert!(!file.approval_of("uid:1").may_act_alone);
        let file = parse("actions = [\"free\"]\nalone = [\"uid:1\"]\n").expect("the file is valid");
        assert!(file.approval_of("uid:1").may_act_alone && !file.approval_of("uid:2").may_act_alone);
        assert!(file.approval_of("uid:1").is_required(DangerousAction::Free));
        let cases = [
            ("actions = [\"acquire\"]\n", Some(6), "actions"),
            ("actions = [\"free\", \"free\"]\n", Some(6), "actions"),
            ("actions = []\nrevoke_up_to = 3\n", Some(7), "revoke_up_to"),
            ("actions = [\"free\"]\nalone = true\n", Some(7), "alone"),
            ("actions = [\"free\"]\nalone = [\"uid:2\"]\n", Some(7), "alone"),
            ("actions = [\"free\"]\nalone = [\"root\"]\n", Some(7), "alone"),
            ("actions = [\"free\"]\nalone = [\"uid:1\", \"uid:1\"]\n", Some(7), "alone"),
        ];
        for (text, line, key) in cases {
            let error = parse(text).expect_err("the file is invalid");
            assert_eq!((error.line, error.key.as_str()), (line, key), "{error}");
        }
    }

    #[test]
    fn an_invalid_limit_is_reported_with_its_line_and_key() {
        let good = grant("uid:1", "holder", "jobs");
        let of = |principal: &str, rest: &str| format!("[[limit]]\nprincipal = {principal:?}\n{rest}");
        let cases = [
            ("[limits]\nleases = -1\n".to_owned(), 6, "leases", ""),
            ("[limits]\nleases = \"many\"\n".to_owned(), 6, "leases", ""),
            ("[limits]\nlease = 1\n".to_owned(), 6, "lease", "unknown field"),
            ("[limits]\nsessions = 1048577\n".to_owned(), 6, "sessions", "from 0 to 1048576"),
            ("[limits]\nconnections = 0\n".to_owned(), 6, "connections", "from 1 to"),
            ("[limits]\nrequests_per_second = 0\n".to_owned(), 6, "requests_per_second", "from 1 to"),
            ("[limits]\nbody_bytes = 5\n".to_owned(), 6, "body_bytes", "from 1048576 to"),
            ("[limits]\nprincipal = \"uid:1\"\n".to_owned(), 6, "principal", "[[limit]]"),
            ("[[limit]]\nleases = 1\n".to_owned(), 5, "principal", "missing"),
            (of("uid:x", "leases = 1\n"), 6, "principal", "user id"),
            (of("uid:1", ""), 5, "limit", "names no limit"),
            (of("uid:1", "leases = 1\nrate = 1\n"), 8, "rate", "unknown field"),
            (of("uid:1", "watches = 5000000000\n"), 7, "watches", "from 0 to"),
            (of("uid:1", "leases = 1\n") + &of("uid:1", "leases = 1\n"), 9, "principal", "repeats"),
        ];
        for (bad, line, key, message) in cases {
            let (at, named, text) = error(&format!("{good}{bad}"));
            assert_eq!((at, named.as_str()), (Some(line), key), "{bad}: {text}");
            assert!(text.contains(message), "{bad}: {text}");
        }
    }

    #[test]
    fn unknown_missing_and_repeated_keys_and_grants_are_refused() {
        let good = grant("uid:1", "holder", "jobs");
        let (line, key, message) = error(&format!("{good}deny = true\n"));
        assert_eq!((line, key.as_str()), (Some(5), "deny"), "{message}");
        let (_, key, message) = error("[[grant]]\nprincipal = \"uid:1\"\nrole = \"holder\"\n");
        assert_eq!(key, "prefix", "{message}");
        let (line, key, message) = error(&format!("default = \"allow\"\n{good}"));
        assert_eq!((line, key.as_str()), (Some(1), "default"), "{message}");
        let (line, key, message) = error(&format!("{good}{good}"));
        assert_eq!((line, key.as_str()), (Some(5), "grant"), "{message}");
        assert!(message.contains("line 1"), "{message}");
        let (line, _, _) = error(&format!("{good}role = \"admin\"\n"));
        assert_eq!(line, Some(5));
        for empty in ["", "# nothing\n", "grant = []\n"] {
            assert_eq!(error(empty).1, "grant", "{empty:?}");
        }
        assert!(AccessFile::parse("[[grant]\n").is_err());
    }
}
