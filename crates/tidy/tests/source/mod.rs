//! Reads the source trees of the workspace: files, the modules they define, and what modules re-export.
#![allow(dead_code, reason = "each test uses a part of this module")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use syn::{Item, UseTree};

/// The workspace's root folder.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace exists")
}

/// A module with its own file.
pub struct Module {
    /// Segments below the crate's root; empty for the root itself.
    pub path: Vec<String>,
    /// The file, relative to the workspace.
    pub file: String,
    pub text: String,
}

/// All modules of one crate's `src`, without those that hold only tests.
pub struct SourceTree {
    modules: Vec<Module>,
    /// Names that a module re-exports or imports, and the path they stand for.
    uses: BTreeMap<Vec<String>, BTreeMap<String, Vec<String>>>,
}

/// Every crate below `crates/`, and the suite of the clients, by name.
pub fn crates() -> Vec<(String, SourceTree)> {
    let mut names: Vec<_> =
        entries(&root().join("crates")).into_iter().filter(|path| path.join("src").is_dir()).collect();
    names.push(root().join("clients/conformance"));
    names.sort();
    let all: Vec<_> = names.iter().map(|path| (file_name(path), SourceTree::read(&path.join("src")))).collect();
    assert!(all.len() >= 8, "the workspace has at least eight crates");
    all
}

pub fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("a folder that opened can be read").path()).collect();
    paths.sort();
    paths
}

pub fn file_name(path: &Path) -> String {
    path.file_name().expect("a path below a folder has a name").to_string_lossy().into_owned()
}

/// Every file below `folder` whose name ends with one of `endings`.
pub fn files(folder: &Path, endings: &[&str]) -> Vec<PathBuf> {
    let (folders, files): (Vec<_>, Vec<_>) = entries(folder).into_iter().partition(|path| path.is_dir());
    let own = files.into_iter().filter(|path| endings.iter().any(|ending| file_name(path).ends_with(ending)));
    own.chain(folders.iter().flat_map(|folder| self::files(folder, endings))).collect()
}

pub fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

impl SourceTree {
    fn read(src: &Path) -> Self {
        let files = files(src, &[".rs"]).into_iter().map(|path| {
            let below = path.strip_prefix(src).expect("the file is below src").to_string_lossy().into_owned();
            let file = path.strip_prefix(root()).expect("the crate is in the workspace").to_string_lossy().into_owned();
            (below, file, read(&path))
        });
        Self::new(files.collect())
    }

    /// A crate made of texts, for tests of the checks themselves.
    pub fn from_texts(files: &[(&str, &str)]) -> Self {
        Self::new(
            files.iter().map(|(name, text)| ((*name).to_owned(), (*name).to_owned(), (*text).to_owned())).collect(),
        )
    }

    fn new(files: Vec<(String, String, String)>) -> Self {
        let modules = files.into_iter().map(|(below, file, text)| Module { path: module_path(&below), file, text });
        let modules: Vec<_> = modules.filter(|module| !module.path.iter().any(|part| part == "tests")).collect();
        let mut tree = Self { modules, uses: BTreeMap::new() };
        for module in &tree.modules {
            let parsed = syn::parse_file(&module.text).unwrap_or_else(|error| panic!("{}: {error}", module.file));
            let mut names = BTreeMap::new();
            for item in parsed.items {
                if let Item::Use(item) = item {
                    use_names(&item.tree, Vec::new(), &mut names);
                }
            }
            tree.uses.insert(module.path.clone(), names);
        }
        tree
    }

    pub fn modules(&self) -> &[Module] {
        &self.modules
    }

    fn has(&self, path: &[String]) -> bool {
        self.modules.iter().any(|module| module.path == path)
    }

    /// Follows `segments` from module `here` to the module that defines what they name; `None` if it is in another crate.
    pub fn resolve(&self, here: Vec<String>, segments: &[String]) -> Option<Vec<String>> {
        self.resolve_within(here, segments, 8)
    }

    fn resolve_within(&self, here: Vec<String>, segments: &[String], hops: u32) -> Option<Vec<String>> {
        let Some((first, rest)) = segments.split_first() else { return Some(here) };
        let child: Vec<_> = here.iter().cloned().chain([first.clone()]).collect();
        if self.has(&child) {
            return self.resolve_within(child, rest, hops);
        }
        let Some(used) = self.uses.get(&here).and_then(|names| names.get(first)) else { return Some(here) };
        let (start, used) = match used.first().map(String::as_str)? {
            "crate" => (Vec::new(), &used[1..]),
            "self" => (here.clone(), &used[1..]),
            "super" => (here[..here.len().checked_sub(1)?].to_vec(), &used[1..]),
            name if self.has(&here.iter().cloned().chain([name.to_owned()]).collect::<Vec<_>>()) => {
                (here.clone(), &used[..])
            }
            _ => return None,
        };
        let longer: Vec<_> = used.iter().chain(rest).cloned().collect();
        if hops == 0 { Some(here) } else { self.resolve_within(start, &longer, hops - 1) }
    }
}

/// `a/mod.rs` and `a.rs` are module `a`; `lib.rs` and `main.rs` are the root.
fn module_path(below: &str) -> Vec<String> {
    let mut parts: Vec<_> = below.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if ["mod", "lib", "main"].contains(&parts.last().expect("a path has a part").as_str()) {
        parts.pop();
    }
    parts
}

fn use_names(tree: &UseTree, prefix: Vec<String>, names: &mut BTreeMap<String, Vec<String>>) {
    let longer = |name: &dyn ToString| prefix.iter().cloned().chain([name.to_string()]).collect::<Vec<_>>();
    match tree {
        UseTree::Path(path) => use_names(&path.tree, longer(&path.ident), names),
        UseTree::Name(name) if name.ident == "self" => {
            names.extend(prefix.last().cloned().map(|last| (last, prefix.clone())));
        }
        UseTree::Name(name) => drop(names.insert(name.ident.to_string(), longer(&name.ident))),
        UseTree::Rename(name) => drop(names.insert(name.rename.to_string(), longer(&name.ident))),
        UseTree::Group(group) => group.items.iter().for_each(|item| use_names(item, prefix.clone(), names)),
        UseTree::Glob(_) => {}
    }
}
