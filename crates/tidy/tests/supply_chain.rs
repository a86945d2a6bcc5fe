//! What others contribute to a build: licenses, banned crates, sources and duplicates, of the workspace and of the Python binding; `NOTICE`
//! and the bill of materials (A18).

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use leasehold_tidy::dependency_rules::DependencyRules;
use leasehold_tidy::third_party::{RegistryPackage, ThirdParty, root};
use leasehold_tidy::{bill_of_materials, notice};

fn rules() -> DependencyRules {
    DependencyRules::parse(&fs::read_to_string(root().join("deny.toml")).expect("deny.toml exists"))
}

#[test]
fn every_dependency_keeps_the_rules_of_deny_toml() {
    let all = ThirdParty::of_workspace();
    let violations = rules().violations(&all.packages);
    assert!(violations.is_empty(), "see deny.toml:\n{}", violations.join("\n"));
}

#[test]
fn the_dependencies_of_the_python_binding_keep_the_same_rules() {
    let all = ThirdParty::of_python_binding();
    assert!(all.packages.iter().any(|package| package.name == "pyo3"), "the lock file of clients/python");
    let violations = rules().violations_of(&all.packages);
    assert!(violations.is_empty(), "see deny.toml:\n{}", violations.join("\n"));
}

#[test]
fn each_kind_of_violation_is_found() {
    let package = |name: &str, version: &str| RegistryPackage {
        name: name.into(),
        version: version.into(),
        license: "MIT".into(),
        repository: None,
        source: "registry+https://one".into(),
        checksum: Some("00".into()),
        dependencies: Vec::new(),
        directory: PathBuf::new(),
    };
    let rules = DependencyRules::parse(
        "[licenses]\nallow = [\"MIT\"]\n[bans]\ndeny = [{ crate = \"ring\", reason = \"one provider\" }]\nskip = [\"two\"]\n\
         [sources]\nallow-registry = [\"https://one\"]\n",
    );
    let two = [package("two", "1.0.0"), package("two", "2.0.0")];
    let found = |added: &[RegistryPackage]| rules.violations(&[&two[..], added].concat());
    assert_eq!(found(&[package("fine", "1.0.0")]), [""; 0]);
    let git = RegistryPackage { source: "git+https://one".into(), ..package("a", "1.0.0") };
    let unsigned = RegistryPackage { checksum: None, ..package("a", "1.0.0") };
    let unlicensed = RegistryPackage { license: String::new(), ..package("a", "1.0.0") };
    let cases = [
        (vec![git], "source"),
        (vec![unsigned], "checksum"),
        (vec![unlicensed], "license"),
        (vec![package("ring", "0.17.14")], "banned"),
        (vec![package("a", "1.0.0"), package("a", "2.0.0")], "versions 1.0.0 and 2.0.0"),
    ];
    for (added, part) in cases {
        let found = found(&added);
        assert!(found.len() == 1 && found[0].contains(part), "{part}: {found:?}");
        assert_eq!(rules.violations_of(&added), found, "without the exceptions too");
    }
    assert_eq!(rules.violations(&two[..1]).len(), 1, "an exception that is not needed any more");
    assert_eq!(rules.violations(&[]).len(), 1);
    assert_eq!(rules.violations_of(&two), [""; 0]);
}

#[test]
fn the_notice_lists_what_the_binary_contains() {
    let (path, text) = (root().join("NOTICE"), notice::text(&ThirdParty::of("leasehold-cli")));
    if std::env::var_os("LEASEHOLD_BLESS").is_some() {
        fs::write(&path, &text).expect("the file is writable");
    }
    let known = fs::read_to_string(path).unwrap_or_default();
    assert!(known == text, "NOTICE is not up to date; write it with LEASEHOLD_BLESS=1");
}

#[test]
fn the_bill_of_materials_lists_every_package_with_checksum_license_and_edges() {
    let shipped = ThirdParty::of("leasehold-cli");
    let bill = bill_of_materials::document(&shipped);
    let components = bill["components"].as_array().expect("components");
    assert!(components.len() > 100, "only {} components", components.len());
    let references: BTreeSet<_> =
        components.iter().map(|component| component["bom-ref"].as_str().expect("a reference")).collect();
    assert_eq!(references.len(), components.len(), "references are unique");
    for component in components {
        assert_eq!(component["hashes"][0]["content"].as_str().map(str::len), Some(64), "{component}");
        assert!(
            component["licenses"][0]["expression"].as_str().is_some_and(|license| !license.is_empty()),
            "{component}"
        );
    }
    let edges = bill["dependencies"].as_array().expect("edges");
    assert_eq!(edges.len(), components.len() + 1, "one row for each component, and one for the binary");
    let mut reached = BTreeSet::new();
    for target in edges.iter().flat_map(|edge| edge["dependsOn"].as_array().expect("a list")) {
        let target = target.as_str().expect("a reference");
        assert!(references.contains(target), "{target} is not listed");
        reached.insert(target);
    }
    assert_eq!(reached, references, "every component is there because of another one");
    for name in ["rustls", "aws-lc-rs", "tokio"] {
        assert!(references.iter().any(|reference| reference.starts_with(&format!("pkg:cargo/{name}@"))), "{name}");
    }
    assert!(!references.iter().any(|reference| reference.starts_with("pkg:cargo/ring@")), "ring");
}

#[test]
fn license_texts_are_collected_for_the_release() {
    let texts = notice::license_texts(&ThirdParty::of("leasehold-cli"));
    for part in ["tokio 1.", "Apache License", "Permission is hereby granted, free of charge"] {
        assert!(texts.contains(part), "{part}");
    }
}
