//! What others contribute to a build: licenses, banned crates, sources, duplicates and known vulnerabilities, of the workspace and of the
//! Python binding; `NOTICE` and the bill of materials (A18).

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use leasehold_tidy::advisories::AdvisoryDatabase;
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

fn package(name: &str, version: &str) -> RegistryPackage {
    RegistryPackage {
        name: name.into(),
        version: version.into(),
        license: "MIT".into(),
        repository: None,
        source: "registry+https://one".into(),
        checksum: Some("00".into()),
        dependencies: Vec::new(),
        directory: PathBuf::new(),
    }
}

#[test]
fn each_kind_of_violation_is_found() {
    let rules = DependencyRules::parse(
        "[advisories]\nignore = []\n[licenses]\nallow = [\"MIT\"]\n[bans]\ndeny = [{ crate = \"ring\", reason = \"one provider\" }]\nskip = [\"two\"]\n\
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

/// Writes an advisory about the crate `one` into a database below `root`.
fn write_advisory(root: &Path, id: &str, extra: &str, versions: &str) {
    let folder = root.join("crates/one");
    fs::create_dir_all(&folder).expect("a folder");
    let head = format!("[advisory]\nid = \"{id}\"\npackage = \"one\"\n{extra}\n[versions]\n{versions}");
    fs::write(folder.join(format!("{id}.md")), format!("```toml\n{head}\n```\n\n# Reads too far\n")).expect("a file");
}

#[test]
fn a_dependency_with_a_known_vulnerability_is_found() {
    let root = tempfile::tempdir().expect("a directory");
    write_advisory(root.path(), "RUSTSEC-2026-0001", "", "patched = [\">= 1.2.3\", \"^1.1.9\"]\nunaffected = [\"< 0.9.0\"]");
    write_advisory(root.path(), "RUSTSEC-2026-0002", "withdrawn = \"2026-02-02\"", "patched = []");
    let database = AdvisoryDatabase::read(root.path()).expect("a database");
    let found = |version: &str| database.findings(&[package("one", version), package("two", "1.0.0")], &[]);
    for sound in ["1.2.3", "2.0.0", "1.1.9", "0.8.9"] {
        assert_eq!(found(sound), [""; 0], "{sound}");
    }
    for faulty in ["1.1.8", "0.9.0"] {
        assert_eq!(found(faulty), [format!("one {faulty}: RUSTSEC-2026-0001, Reads too far")]);
    }
    assert_eq!(database.findings(&[package("one", "0.9.0")], &["RUSTSEC-2026-0001".to_owned()]), [""; 0], "ignored");
    write_advisory(root.path(), "RUSTSEC-2026-0003", "", "patched = []");
    let database = AdvisoryDatabase::read(root.path()).expect("a database");
    assert_eq!(database.findings(&[package("one", "2.0.0")], &[]).len(), 1, "no version is repaired");
}

#[test]
fn a_copy_of_the_advisories_that_cannot_be_read_is_an_error() {
    let root = tempfile::tempdir().expect("a directory");
    let error = |root: &Path| AdvisoryDatabase::read(root).expect_err("not a database").to_string();
    assert!(error(root.path()).contains("crates"), "{}", error(root.path()));
    fs::create_dir(root.path().join("crates")).expect("a folder");
    assert!(error(root.path()).contains("advisory-db"), "{}", error(root.path()));
    write_advisory(root.path(), "RUSTSEC-2026-0001", "", "patched = [\"newer\"]");
    assert!(error(root.path()).contains("newer"), "{}", error(root.path()));
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
