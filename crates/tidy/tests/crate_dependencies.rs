//! Crate dependencies: which crate of the workspace may depend on which, and what the core must be unable to reach.

use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Command;

/// Each crate and the workspace crates it depends on. No others.
const DEPENDENCIES: [(&str, &[&str]); 13] = [
    ("leasehold-core", &[]),
    // Signs and verifies; a verifier needs neither a server nor a client.
    ("leasehold-seal", &["leasehold-core"]),
    ("leasehold-fence", &["leasehold-core", "leasehold-seal"]),
    ("leasehold-wire", &["leasehold-core"]),
    ("leasehold-server", &["leasehold-core", "leasehold-seal", "leasehold-wire"]),
    ("leasehold", &["leasehold-core", "leasehold-wire", "leasehold-fence"]),
    ("leasehold-cli", &["leasehold-core", "leasehold-seal", "leasehold-fence", "leasehold-server", "leasehold"]),
    ("leasehold-sim", &["leasehold-core"]),
    // Real processes, judged by the simulator's checkers; it uses the server crate only to read a journal.
    (
        "leasehold-chaos",
        &["leasehold-core", "leasehold-fence", "leasehold-server", "leasehold", "leasehold-sim", "leasehold-testkit"],
    ),
    // Runs drivers of every client against real servers; its own driver is over the Rust client. A proxy rewrites messages, so it
    // needs their types.
    ("leasehold-conformance", &["leasehold", "leasehold-testkit", "leasehold-wire"]),
    // Tools of tests, also of the core's: it can depend on no other crate of the workspace.
    ("leasehold-testkit", &[]),
    // These checks read files and `cargo metadata`; they build nothing of the workspace.
    ("leasehold-tidy", &[]),
    // An example with a grantor of its own, so that it runs without a server.
    ("leasehold-settlement", &["leasehold-fence", "leasehold-server", "leasehold"]),
];

/// All external crates the core may use: data structures, checksums, Unicode normalization, and secrets that are wiped and compared in
/// constant time.
const CORE_MAY_USE: [&str; 7] =
    ["hashbrown", "foldhash", "crc32fast", "sha2", "subtle", "unicode-normalization", "zeroize"];

/// The packages that `cargo metadata` lists.
struct Workspace(Vec<Value>);

/// The Python binding, which is a workspace of its own.
const PYTHON: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../clients/python");

impl Workspace {
    fn read() -> Self {
        Self::read_in(env!("CARGO_MANIFEST_DIR"))
    }

    fn read_in(folder: &str) -> Self {
        let cargo = std::env::var("CARGO").expect("cargo sets CARGO for the tests it runs");
        let output = Command::new(cargo)
            .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
            .current_dir(folder)
            .output()
            .expect("cargo starts");
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

    /// Dependencies of a crate by kind; `None` is the kind that users of the crate get too.
    fn dependencies(&self, name: &str, kind: Option<&str>) -> BTreeSet<&str> {
        let all = self.package(name)["dependencies"].as_array().expect("packages list dependencies");
        all.iter().filter(|one| one["kind"].as_str() == kind).map(|one| text(&one["name"])).collect()
    }

    /// Direct and indirect dependencies of a crate inside the workspace.
    fn closure(&self, name: &str) -> BTreeSet<&str> {
        let (_, direct) = DEPENDENCIES.iter().find(|(from, _)| *from == name).expect("every crate is listed");
        direct.iter().flat_map(|to| self.closure(to).into_iter().chain([*to])).collect()
    }
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a JSON string")
}

#[test]
fn crates_depend_on_each_other_as_listed() {
    let workspace = Workspace::read();
    let ours = workspace.names();
    let listed: BTreeSet<_> = DEPENDENCIES.iter().map(|(name, _)| *name).collect();
    assert_eq!(ours, listed);
    for (name, expected) in DEPENDENCIES {
        let found: BTreeSet<_> = workspace.dependencies(name, None).intersection(&ours).copied().collect();
        assert_eq!(found, expected.iter().copied().collect(), "dependencies of {name}");
    }
}

#[test]
fn dev_and_build_dependencies_add_no_edge() {
    let workspace = Workspace::read();
    let ours = workspace.names();
    for (name, _) in DEPENDENCIES {
        for kind in ["dev", "build"] {
            let found = workspace.dependencies(name, Some(kind));
            // A crate whose own tests need its features names itself, and the test kit is for tests only.
            let found: BTreeSet<_> = found.intersection(&ours).copied().collect();
            let found = &found - &[name, "leasehold-testkit"].into();
            assert!(found.is_subset(&workspace.closure(name)), "{kind} dependencies of {name}: {found:?}");
        }
    }
}

#[test]
fn published_crates_use_the_testkit_only_in_tests_and_without_a_version() {
    let workspace = Workspace::read();
    let is_published = |package: &&Value| package["publish"] != serde_json::json!([]);
    let published: Vec<_> = workspace.0.iter().filter(is_published).collect();
    assert!(published.len() >= 7, "the workspace publishes seven crates");
    for package in published {
        let dependencies = package["dependencies"].as_array().expect("packages list dependencies");
        for one in dependencies.iter().filter(|one| one["name"] == "leasehold-testkit") {
            // `cargo package` removes a dev-dependency without a version; with one, the crate could not be published.
            assert_eq!((text(&one["kind"]), text(&one["req"])), ("dev", "*"), "{}", package["name"]);
        }
    }
    assert_eq!(workspace.package("leasehold-testkit")["publish"], serde_json::json!([]));
}

#[test]
fn the_python_binding_depends_on_the_client_and_is_not_published() {
    let python = Workspace::read_in(PYTHON);
    assert_eq!(python.names(), ["leasehold-python"].into());
    let found = python.dependencies("leasehold-python", None);
    let ours: BTreeSet<_> = found.into_iter().filter(|name| name.starts_with("leasehold")).collect();
    assert_eq!(ours, ["leasehold", "leasehold-core"].into());
    let package = python.package("leasehold-python");
    assert_eq!(package["publish"], serde_json::json!([]));
    assert_eq!(package["version"], Workspace::read().package("leasehold")["version"], "versions follow the server's");
    assert!(!Workspace::read().names().contains("leasehold-python"), "it would add PyO3 to every build");
}

/// The macros of PyO3 expand to unsafe code, so that the lint cannot forbid it there. Hand-written unsafe code is refused here.
#[test]
fn the_python_binding_contains_no_unsafe_code_of_its_own() {
    let sources = std::fs::read_dir(format!("{PYTHON}/src")).expect("the binding has sources");
    let mut checked = 0;
    for path in sources.map(|entry| entry.expect("a folder that opened can be read").path()) {
        let text = std::fs::read_to_string(&path).expect("sources are text");
        let tokens: proc_macro2::TokenStream = text.parse().expect("sources are Rust");
        assert!(!contains_unsafe(tokens), "{} contains unsafe code", path.display());
        checked += 1;
    }
    assert!(checked >= 10, "only {checked} files were checked");
    assert!(contains_unsafe("fn f() { unsafe { g() } }".parse().expect("a function")));
}

fn contains_unsafe(tokens: proc_macro2::TokenStream) -> bool {
    tokens.into_iter().any(|token| match token {
        proc_macro2::TokenTree::Group(group) => contains_unsafe(group.stream()),
        proc_macro2::TokenTree::Ident(name) => name == "unsafe",
        _ => false,
    })
}

#[test]
fn the_core_can_reach_no_io() {
    let workspace = Workspace::read();
    assert_eq!(workspace.dependencies("leasehold-core", None), CORE_MAY_USE.into());
    assert_eq!(workspace.dependencies("leasehold-core", Some("build")), BTreeSet::new());
}

#[test]
fn the_client_depends_on_fences_only_for_reports() {
    let workspace = Workspace::read();
    let client = workspace.package("leasehold");
    let dependencies = client["dependencies"].as_array().expect("packages list dependencies");
    let fence = dependencies.iter().find(|one| one["name"] == "leasehold-fence").expect("the client may report");
    assert_eq!(fence["optional"], true);
    assert_eq!(client["features"]["report"], serde_json::json!(["dep:leasehold-fence"]));
    assert!(client["features"].get("default").is_none(), "reporting is opt-in");
}

#[test]
fn no_crate_enables_the_mutants() {
    let workspace = Workspace::read();
    let core = &workspace.package("leasehold-core")["features"];
    assert_eq!(core["mutants"], serde_json::json!([]));
    assert!(core.get("default").is_none(), "the core has no default features");
    for (name, _) in DEPENDENCIES.into_iter().filter(|(name, _)| *name != "leasehold-core") {
        let package = workspace.package(name);
        let enabled = package["dependencies"].as_array().expect("packages list dependencies").iter();
        let enabled: Vec<_> = enabled.flat_map(|one| one["features"].as_array()).flatten().map(text).collect();
        assert!(!enabled.contains(&"mutants"), "{name} enables the mutants");
        let mut features = package["features"].as_object().expect("packages list features").clone();
        if name == "leasehold-sim" {
            // The simulator forwards the feature when it is requested by name, in a build of its own.
            assert_eq!(features.remove("mutants"), Some(serde_json::json!(["leasehold-core/mutants"])));
            assert!(features.get("default").is_none(), "{name} has no default features");
        }
        let features = serde_json::json!(features).to_string();
        assert!(!features.contains("mutants"), "{name} forwards the mutants");
    }
}
