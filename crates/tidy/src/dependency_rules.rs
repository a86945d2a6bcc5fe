//! The rules of `deny.toml` for dependencies: licenses, banned crates, sources and duplicates.

use std::collections::BTreeMap;

use crate::license_expression::is_satisfied;
use crate::third_party::RegistryPackage;

/// Rules that every dependency must keep. The file has the format of cargo-deny.
pub struct DependencyRules {
    licenses: Vec<String>,
    banned: Vec<String>,
    registries: Vec<String>,
    /// Crates of which two versions are accepted.
    duplicates: Vec<String>,
}

impl DependencyRules {
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
        }
    }

    /// Every violation, with the package.
    pub fn violations(&self, packages: &[RegistryPackage]) -> Vec<String> {
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
            let accepted = self.duplicates.iter().any(|duplicate| duplicate == name);
            match (versions.len() > 1, accepted) {
                (true, false) => found.push(format!("{name}: versions {}", versions.join(" and "))),
                (false, true) => found.push(format!("{name}: one version; remove it from bans.skip")),
                _ => {}
            }
        }
        found.extend(
            self.duplicates
                .iter()
                .filter(|name| !versions.contains_key(name.as_str()))
                .map(|name| format!("{name}: not used; remove it from bans.skip")),
        );
        found
    }
}
