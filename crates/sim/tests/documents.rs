//! Documents are never ahead of the code: what they point at exists, and no promise is lost from them.

mod table;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// How many promises each family has. A promise may be added, never dropped.
const PROMISES: [(&str, u32); 18] = [
    ("T", 9),
    ("L", 12),
    ("N", 1),
    ("E", 1),
    ("F", 9),
    ("W", 4),
    ("D", 3),
    ("P", 2),
    ("C", 4),
    ("Q", 5),
    ("H", 3),
    ("S", 2),
    ("R", 2),
    ("K", 4),
    ("G", 1),
    ("V", 4),
    ("A", 1),
    ("X", 3),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every page of the project: those at the root and those below `docs/`.
fn pages() -> Vec<PathBuf> {
    let mut folders = vec![root().join("docs")];
    let mut pages = pages_in(&root());
    while let Some(folder) = folders.pop() {
        pages.extend(pages_in(&folder));
        folders.extend(entries(&folder).filter(|path| path.is_dir()));
    }
    assert!(pages.len() >= 8, "the project has more pages than {pages:?}");
    pages
}

fn pages_in(folder: &Path) -> Vec<PathBuf> {
    entries(folder).filter(|path| path.extension().is_some_and(|end| end == "md")).collect()
}

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    entries.map(|entry| entry.expect("a folder that opened can be read").path())
}

fn read(page: &Path) -> String {
    fs::read_to_string(page).unwrap_or_else(|error| panic!("{}: {error}", page.display()))
}

/// Every word of the Rust files below a folder.
fn source(folder: &Path) -> BTreeSet<String> {
    let (folders, files): (Vec<_>, Vec<_>) = entries(folder).partition(|path| path.is_dir());
    let text: String = files.iter().map(|file| read(file)).collect();
    let words = text.split(|c: char| !c.is_alphanumeric()).map(str::to_owned);
    words.chain(folders.iter().flat_map(|folder| source(folder))).collect()
}

/// Where the links of a page lead, without those that leave the project or stay on the page.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let links = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    let inside = links.map(|(link, _)| link).filter(|link| !link.contains("://"));
    inside.filter_map(|link| link.split('#').next()).filter(|link| !link.is_empty())
}

#[test]
fn every_link_leads_somewhere() {
    let mut followed = 0;
    for page in pages() {
        for link in links(&read(&page)) {
            let target = page.parent().expect("a page lies in a folder").join(link);
            assert!(target.exists(), "{} links to {link}, which is not there", page.display());
            followed += 1;
        }
    }
    assert!(followed > 0, "no link was found to follow");
}

#[test]
fn every_path_that_a_page_names_exists() {
    let mut found = 0;
    for page in pages() {
        for line in read(&page).lines() {
            let named = line.split('`').skip(1).step_by(2).filter(|name| name.starts_with("crates/"));
            for name in named.filter(|name| !name.contains(['*', '{', ' ', '<'])) {
                assert!(root().join(name).exists(), "{} names {name}, which is not there", page.display());
                found += 1;
            }
        }
    }
    assert!(found > 0, "no path was found to check");
}

#[test]
fn the_map_shows_every_part_of_the_core() {
    let map = read(&root().join("ARCHITECTURE.md"));
    for part in entries(&root().join("crates/core/src")) {
        let name = part.file_name().expect("an entry has a name").to_string_lossy().into_owned();
        let empty = part.is_dir() && entries(&part).next().is_none();
        let row = format!("`crates/core/src/{name}{}`", if part.is_dir() { "/" } else { "" });
        assert!(empty || name == "lib.rs" || map.contains(&row), "ARCHITECTURE.md does not show {row}");
    }
}

#[test]
fn every_promise_stands_once_and_says_who_keeps_it() {
    let text = read(&root().join("docs/guarantees.md"));
    let core = source(&root().join("crates/core/src"));
    let mut server = source(&root().join("crates/server/src"));
    server.extend(source(&root().join("crates/cli/tests/survives")));
    let client = source(&root().join("crates/client/src"));
    let fences = source(&root().join("crates/fence/src"));
    let mut seen = BTreeSet::new();
    for row in text.lines().filter(|line| line.starts_with("| **")) {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [id, promise, kept] = cells[..] else { panic!("not three cells: {row}") };
        let id = id.trim_matches('*');
        assert!(seen.insert(id.to_owned()), "{id} stands twice");
        assert!(!promise.is_empty(), "{id} promises nothing");
        let who = ["core", "server", "client", "fences", "owed: "].iter().any(|who| kept.starts_with(who));
        assert!(who, "{id} is kept by nobody: {kept}");
        assert!(!kept.starts_with("core") || core.contains(id), "{id} is kept by the core, which does not name it");
        let now = kept.split("owed: ").next().unwrap_or_default();
        assert!(!now.contains("client") || client.contains(id), "{id} is kept by the client, which does not name it");
        assert!(!now.contains("fences") || fences.contains(id), "{id} is kept by the fences, which do not name it");
        assert!(!now.contains("server") || server.contains(id), "{id} is kept by the server; nobody there names it");
    }
    for (family, count) in PROMISES {
        for id in (1..=count).map(|number| format!("{family}{number}")) {
            assert!(seen.contains(&id), "{id} is missing");
        }
    }
}

#[test]
fn decisions_are_numbered_without_a_gap() {
    let mut numbers: Vec<_> = pages_in(&root().join("docs/decisions"))
        .iter()
        .map(|page| page.file_name().expect("a page has a name").to_string_lossy()[..4].to_owned())
        .collect();
    numbers.sort();
    let expected: Vec<_> = (1..=numbers.len()).map(|number| format!("{number:04}")).collect();
    assert_eq!(numbers, expected);
}
