//! The packages that cargo builds, with what their authors say about them.
//!
//! `cargo tree` decides which packages belong to a build: `cargo metadata` also lists optional ones that no feature enables.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

/// One package from a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryPackage {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The license as an SPDX expression; empty if the package names none.
    pub license: String,
    /// Where its sources are published.
    pub repository: Option<String>,
    /// Where it comes from; empty for a path.
    pub source: String,
    /// SHA-256 of the package, from `Cargo.lock`.
    pub checksum: Option<String>,
    /// Names and versions of the packages it depends on.
    pub dependencies: Vec<(String, String)>,
    /// The directory of its sources on this machine.
    pub directory: PathBuf,
}

/// The packages of others that a crate is built of.
pub struct ThirdParty {
    /// The crate's version.
    pub version: String,
    /// Direct dependencies of the crate and of the workspace crates that it contains.
    pub direct: Vec<(String, String)>,
    /// All packages, by name and version.
    pub packages: Vec<RegistryPackage>,
}

impl ThirdParty {
    /// What is linked into a crate of the workspace, on the platform of releases.
    pub fn of(package: &str) -> Self {
        CargoWorkspace::main()
            .third_party(&["-p", package, "-e", "normal", "--target", "x86_64-unknown-linux-gnu"], package)
    }

    /// Everything that any crate of the workspace needs on any platform, for building and testing too.
    pub fn of_workspace() -> Self {
        CargoWorkspace::main()
            .third_party(&["--workspace", "-e", "normal,build,dev", "--target", "all"], "leasehold-cli")
    }

    /// What the native module of the Python client is built of, on any platform. It is a workspace with a lock file of its own.
    pub fn of_python_binding() -> Self {
        CargoWorkspace::python_binding().third_party(&["-e", "normal,build", "--target", "all"], "leasehold-python")
    }
}

/// A workspace with its lock file.
struct CargoWorkspace {
    directory: PathBuf,
    /// Arguments of every cargo command.
    arguments: &'static [&'static str],
}

impl CargoWorkspace {
    /// Its packages are on this machine, because this test is built with them.
    fn main() -> Self {
        Self { directory: root(), arguments: &["--locked", "--offline"] }
    }

    /// Cargo downloads what is missing: a machine that never built the Python client has not all of its packages.
    fn python_binding() -> Self {
        Self { directory: root().join("clients/python"), arguments: &["--locked"] }
    }

    fn third_party(&self, tree: &[&str], root: &str) -> ThirdParty {
        let built = self.built(tree);
        let metadata = self.cargo(&["metadata", "--format-version", "1"]);
        let metadata: Value = serde_json::from_str(&metadata).expect("cargo metadata prints JSON");
        let checksums = self.checksums();
        let all = metadata["packages"].as_array().expect("metadata lists packages");
        let keys: BTreeMap<&str, (String, String)> =
            all.iter().map(|package| (text(&package["id"]), key(package))).collect();
        let nodes = metadata["resolve"]["nodes"].as_array().expect("metadata lists nodes");
        let edges: BTreeMap<&str, &Value> = nodes.iter().map(|node| (text(&node["id"]), &node["deps"])).collect();
        let dependencies = |id: &str| -> Vec<(String, String)> {
            let deps = edges[id].as_array().into_iter().flatten();
            let normal =
                deps.filter(|dep| dep["dep_kinds"].as_array().into_iter().flatten().any(|kind| kind["kind"].is_null()));
            let mut found: Vec<_> = normal.map(|dep| keys[text(&dep["pkg"])].clone()).collect();
            found.retain(|dependency| built.contains(dependency));
            found.sort();
            found.dedup();
            found
        };
        let own = |package: &&Value| package["source"].is_null();
        let mut direct: Vec<_> = all
            .iter()
            .filter(own)
            .filter(|package| built.contains(&key(package)))
            .flat_map(|package| dependencies(text(&package["id"])))
            .collect();
        let own_keys: BTreeSet<_> = all.iter().filter(own).map(key).collect();
        direct.retain(|key| !own_keys.contains(key));
        direct.sort();
        direct.dedup();
        let mut packages: Vec<_> = all
            .iter()
            .filter(|package| !own(package) && built.contains(&key(package)))
            .map(|package| {
                let (name, version) = key(package);
                let manifest = PathBuf::from(text(&package["manifest_path"]));
                RegistryPackage {
                    license: package["license"].as_str().unwrap_or_default().to_owned(),
                    repository: package["repository"].as_str().map(str::to_owned),
                    source: package["source"].as_str().unwrap_or_default().to_owned(),
                    checksum: checksums.get(&(name.clone(), version.clone())).cloned(),
                    dependencies: dependencies(text(&package["id"])),
                    directory: manifest.parent().expect("a manifest is in a directory").to_owned(),
                    name,
                    version,
                }
            })
            .collect();
        packages.sort_by(|one, other| (&one.name, &one.version).cmp(&(&other.name, &other.version)));
        let version = all.iter().find(|package| package["name"] == root).map(|package| text(&package["version"]));
        ThirdParty { version: version.unwrap_or_default().to_owned(), direct, packages }
    }

    /// Names and versions that `cargo tree` lists.
    fn built(&self, arguments: &[&str]) -> BTreeSet<(String, String)> {
        let output = self.cargo(&[&["tree", "--prefix", "none", "--format", "{p}"], arguments].concat());
        // One line is `name v1.2.3 (proc-macro) (/a/path) (*)`.
        let package = |line: &str| {
            let mut words = line.split(' ');
            Some((words.next()?.to_owned(), words.next()?.strip_prefix('v')?.to_owned()))
        };
        let found: BTreeSet<_> = output.lines().filter_map(package).collect();
        assert!(found.len() > 100, "cargo tree lists only {} packages", found.len());
        found
    }

    /// Checksums of packages in `Cargo.lock`.
    fn checksums(&self) -> BTreeMap<(String, String), String> {
        let lock = std::fs::read_to_string(self.directory.join("Cargo.lock")).expect("the lock file exists");
        let lock: toml::Table = lock.parse().expect("it is TOML");
        let field =
            |package: &toml::Value, name: &str| package.get(name).and_then(toml::Value::as_str).map(str::to_owned);
        let packages = lock["package"].as_array().expect("the lock file lists packages");
        packages
            .iter()
            .filter_map(|package| {
                Some(((field(package, "name")?, field(package, "version")?), field(package, "checksum")?))
            })
            .collect()
    }

    fn cargo(&self, arguments: &[&str]) -> String {
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
        let output = Command::new(cargo).args(arguments).args(self.arguments).current_dir(&self.directory).output();
        let output = output.expect("cargo starts");
        assert!(output.status.success(), "cargo {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("cargo prints UTF-8")
    }
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a string")
}

fn key(package: &Value) -> (String, String) {
    (text(&package["name"]).to_owned(), text(&package["version"]).to_owned())
}

/// The directory of the workspace.
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}
