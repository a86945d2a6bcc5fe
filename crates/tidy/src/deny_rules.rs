//! The rules of `deny.toml` for dependencies: licenses, banned crates, sources and duplicates.

use std::collections::BTreeMap;

use crate::license_expression::is_satisfied;
use crate::third_party::RegistryPackage;

/// Rules that every dependency must keep. The file has the format of cargo-deny.
pub struct DenyRules {
    licenses: Vec<String>,
    banned: Vec<String>,
    registries: Vec<String>,
    /// Crates of which two versions are accepted.
    duplicates: Vec<String>,
    /// Ids of advisories that do not concern us, each with its reason in the file.
    pub ignored_advisories: Vec<String>,
}

impl DenyRules {
    /// Reads the rules from the text of `deny.toml`.
    pub fn parse(text: &str) -> Self {
        let file: toml::Table = text.parse().expect("deny.toml is TOML");
        let list = |table: &str, key: &str| -> Vec<String> {
            let values = file[table][key].as_array().unwrap_or_else(|| panic!("{table}.{key} is a list"));
            let name = |value: &toml::Value| {
                let name = value.as_str().or_else(|| value.get("crate")?.as_str());
                name.unwrap_or_else(|| panic!("{table}.{key} contains {value}")).to_owned()
            };
            values.iter().map(name).collect()
        };
        Self {
            licenses: list("licenses", "allow"),
            banned: list("bans", "deny"),
            registries: list("sources", "allow-registry"),
            duplicates: list("bans", "skip"),
            ignored_advisories: list("advisories", "ignore"),
        }
    }

    /// Every violation, with the package; and every exception that these packages do not need.
    pub fn violations(&self, packages: &[RegistryPackage]) -> Vec<String> {
        let mut found = self.violations_of(packages);
        for name in &self.duplicates {
            match packages.iter().filter(|package| package.name == *name).count() {
                0 => found.push(format!("{name}: not used; remove it from bans.skip")),
                1 => found.push(format!("{name}: one version; remove it from bans.skip")),
                _ => {}
            }
        }
        found
    }

    /// Every violation, with the package. For packages that do not need all exceptions.
    pub fn violations_of(&self, packages: &[RegistryPackage]) -> Vec<String> {
        let licenses: Vec<&str> = self.licenses.iter().map(String::as_str).collect();
        let mut found = Vec::new();
        let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for RegistryPackage { name, version, license, source, checksum, .. } in packages {
            let mut report = |what: String| found.push(format!("{name} {version}: {what}"));
            if !is_satisfied(license, &licenses) {
                report(format!("the license {license:?} is not allowed"));
            }
            if self.banned.contains(name) {
                report("the crate is banned".to_owned());
            }
            if !self.registries.iter().any(|registry| *source == format!("registry+{registry}")) {
                report(format!("the source {source:?} is not allowed"));
            }
            if checksum.is_none() {
                report("Cargo.lock has no checksum".to_owned());
            }
            versions.entry(name).or_default().push(version);
        }
        for (name, versions) in &versions {
            if versions.len() > 1 && !self.duplicates.iter().any(|duplicate| duplicate == name) {
                found.push(format!("{name}: versions {}", versions.join(" and ")));
            }
        }
        found
    }
}
