//! Who may know whom: the arrows between the crates, and what the core must be unable to reach.

use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Command;

/// Each crate and what it builds on. Nothing else of this workspace.
const ARROWS: [(&str, &[&str]); 9] = [
    ("leasehold-core", &[]),
    ("leasehold-fence", &["leasehold-core"]),
    ("leasehold-wire", &["leasehold-core"]),
    ("leasehold-server", &["leasehold-core", "leasehold-wire"]),
    ("leasehold", &["leasehold-core", "leasehold-wire", "leasehold-fence"]),
    ("leasehold-cli", &["leasehold-core", "leasehold-fence", "leasehold-server", "leasehold"]),
    ("leasehold-sim", &["leasehold-core", "leasehold-fence"]),
    // Real processes, judged by the simulator's checkers; of the server it knows only how a journal is read.
    ("leasehold-chaos", &["leasehold-core", "leasehold-fence", "leasehold-server", "leasehold", "leasehold-sim"]),
    // An example: it has a grantor of its own to be played without anything else.
    ("leasehold-settlement", &["leasehold-core", "leasehold-fence", "leasehold-server", "leasehold"]),
];

/// All that the core may take from others: data structures, checksums, and the shape of text.
const CORE_MAY_USE: [&str; 5] = ["hashbrown", "foldhash", "crc32fast", "sha2", "unicode-normalization"];

struct Workspace(Vec<Value>);

impl Workspace {
    fn read() -> Self {
        let cargo = std::env::var("CARGO").expect("cargo names itself to the tests it runs");
        let output = Command::new(cargo)
            .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .expect("cargo can be started again");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON");
        Self(metadata["packages"].as_array().expect("metadata lists packages").clone())
    }

    fn names(&self) -> BTreeSet<&str> {
        self.0.iter().map(|package| text(&package["name"])).collect()
    }

    fn package(&self, name: &str) -> &Value {
        self.0.iter().find(|package| package["name"] == name).expect("the workspace has this crate")
    }

    /// What a crate needs; a kind of `None` is what users of the crate get too.
    fn needs(&self, name: &str, kind: Option<&str>) -> BTreeSet<&str> {
        let needs = self.package(name)["dependencies"].as_array().expect("packages list dependencies");
        needs.iter().filter(|need| need["kind"].as_str() == kind).map(|need| text(&need["name"])).collect()
    }

    /// Everything of this workspace below a crate.
    fn below(&self, name: &str) -> BTreeSet<&str> {
        let (_, direct) = ARROWS.iter().find(|(from, _)| *from == name).expect("every crate has its arrows");
        direct.iter().flat_map(|to| self.below(to).into_iter().chain([*to])).collect()
    }
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

#[test]
fn the_workspace_has_eight_crates_and_an_example_and_these_arrows() {
    let workspace = Workspace::read();
    let ours = workspace.names();
    assert_eq!(ours, ARROWS.iter().map(|(name, _)| *name).collect());
    for (name, arrows) in ARROWS {
        let needs: BTreeSet<_> = workspace.needs(name, None).intersection(&ours).copied().collect();
        assert_eq!(needs, arrows.iter().copied().collect(), "arrows of {name}");
    }
}

#[test]
fn tests_and_builds_open_no_arrow_that_the_crates_lack() {
    let workspace = Workspace::read();
    let ours = workspace.names();
    for (name, _) in ARROWS {
        for kind in ["dev", "build"] {
            let needs = workspace.needs(name, Some(kind));
            // A crate whose own tests want its features names itself, and that opens nothing.
            let needs: BTreeSet<_> = needs.intersection(&ours).copied().filter(|need| *need != name).collect();
            assert!(needs.is_subset(&workspace.below(name)), "{kind} arrows of {name}: {needs:?}");
        }
    }
}

#[test]
fn the_core_can_reach_nothing_that_does() {
    let workspace = Workspace::read();
    assert_eq!(workspace.needs("leasehold-core", None), CORE_MAY_USE.into());
    assert_eq!(workspace.needs("leasehold-core", Some("build")), BTreeSet::new());
}

#[test]
fn the_client_knows_fences_only_where_it_reports_for_them() {
    let workspace = Workspace::read();
    let client = workspace.package("leasehold");
    let needs = client["dependencies"].as_array().expect("packages list dependencies");
    let fence = needs.iter().find(|need| need["name"] == "leasehold-fence").expect("the client may report");
    assert_eq!(fence["optional"], true);
    assert_eq!(client["features"]["report"], serde_json::json!(["dep:leasehold-fence"]));
    assert!(client["features"].get("default").is_none(), "reporting is asked for");
}

#[test]
fn no_crate_turns_the_mutants_on() {
    let workspace = Workspace::read();
    let core = &workspace.package("leasehold-core")["features"];
    assert_eq!(core["mutants"], serde_json::json!([]));
    assert!(core.get("default").is_none(), "the core has no default features");
    for (name, _) in ARROWS.into_iter().filter(|(name, _)| *name != "leasehold-core") {
        let package = workspace.package(name);
        let wanted = package["dependencies"].as_array().expect("packages list dependencies").iter();
        let wanted: Vec<_> = wanted.flat_map(|need| need["features"].as_array()).flatten().map(text).collect();
        assert!(!wanted.contains(&"mutants"), "{name} asks for the mutants");
        let mut features = package["features"].as_object().expect("packages list features").clone();
        if name == "leasehold-sim" {
            // It passes them on when asked for by name, in a build of its own, and only then.
            assert_eq!(features.remove("mutants"), Some(serde_json::json!(["leasehold-core/mutants"])));
            assert!(features.get("default").is_none(), "{name} has no default features");
        }
        let features = serde_json::json!(features).to_string();
        assert!(!features.contains("mutants"), "{name} passes the mutants on");
    }
}
