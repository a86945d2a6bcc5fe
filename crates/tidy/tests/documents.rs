//! Documentation never runs ahead of the code: links and paths exist, and no promise or decision is lost.

mod source;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use source::{entries, file_name, files, read, root};

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

/// Every page of the project: those at the root and those below `docs/`.
fn pages() -> Vec<PathBuf> {
    let mut pages: Vec<_> =
        entries(&root()).into_iter().filter(|path| path.extension().is_some_and(|end| end == "md")).collect();
    pages.extend(files(&root().join("docs"), &[".md"]));
    assert!(pages.len() >= 8, "the project has more pages than {pages:?}");
    pages
}

/// Every word of the Rust files below a folder.
fn words(folder: &str) -> BTreeSet<String> {
    let text: String = files(&root().join(folder), &[".rs", ".sql", ".lua"]).iter().map(|file| read(file)).collect();
    text.split(|c: char| !c.is_alphanumeric()).map(str::to_owned).collect()
}

/// Links of a page that stay inside the project, as (path, anchor).
fn links(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let links = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    let inside = links.map(|(link, _)| link).filter(|link| !link.contains("://"));
    inside.map(|link| link.split_once('#').unwrap_or((link, "")))
}

/// The anchors of a page's headings, as GitHub and mdBook make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut fenced = false;
    let mut found = BTreeSet::new();
    for line in text.lines() {
        fenced ^= line.starts_with("```");
        if let (false, Some(heading)) = (fenced, line.strip_prefix('#')) {
            let heading = heading.trim_start_matches('#').trim().to_lowercase();
            let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            found.insert(kept.map(|c| if c == ' ' { '-' } else { c }).collect());
        }
    }
    found
}

#[test]
fn every_link_leads_to_a_page_and_a_heading() {
    let mut followed = 0;
    for page in pages() {
        let text = read(&page);
        for (link, anchor) in links(&text) {
            let target = if link.is_empty() { page.clone() } else { folder_of(&page).join(link) };
            assert!(target.exists(), "{} links to {link}, which does not exist", page.display());
            if !anchor.is_empty() && target.extension().is_some_and(|end| end == "md") {
                assert!(
                    anchors(&read(&target)).contains(anchor),
                    "{} links to {link}#{anchor}: no such heading",
                    page.display()
                );
            }
            followed += 1;
        }
    }
    assert!(followed > 0, "no link was found to follow");
}

fn folder_of(page: &Path) -> &Path {
    page.parent().expect("a page is in a folder")
}

#[test]
fn every_path_that_a_page_names_exists() {
    let mut found = 0;
    for page in pages() {
        for line in read(&page).lines() {
            let named = line.split('`').skip(1).step_by(2).filter(|name| name.starts_with("crates/"));
            for name in named.filter(|name| !name.contains(['*', '{', ' ', '<'])) {
                assert!(root().join(name).exists(), "{} names {name}, which does not exist", page.display());
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
        let name = file_name(&part);
        let empty = part.is_dir() && entries(&part).is_empty();
        let row = format!("`crates/core/src/{name}{}`", if part.is_dir() { "/" } else { "" });
        assert!(empty || name == "lib.rs" || map.contains(&row), "ARCHITECTURE.md does not show {row}");
    }
}

#[test]
fn every_promise_is_listed_once_with_the_part_that_keeps_it() {
    let text = read(&root().join("docs/explanation/guarantees.md"));
    let parts = [
        ("core", words("crates/core/src")),
        ("server", &words("crates/server/src") | &words("crates/cli/tests")),
        ("client", words("crates/client/src")),
        ("fences", words("crates/fence/src")),
    ];
    let mut seen = BTreeSet::new();
    for row in text.lines().filter(|line| line.starts_with("| **")) {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [id, promise, kept_by] = cells[..] else { panic!("not three cells: {row}") };
        let id = id.trim_matches('*');
        assert!(seen.insert(id.to_owned()), "{id} is listed twice");
        assert!(!promise.is_empty(), "{id} has no text");
        let named = ["core", "server", "client", "fences", "owed: "].iter().any(|part| kept_by.starts_with(part));
        assert!(named, "{id} names no part that keeps it: {kept_by}");
        let today = kept_by.split("owed: ").next().unwrap_or_default();
        for (part, words) in &parts {
            let claims = if *part == "core" { today.starts_with(part) } else { today.contains(part) };
            assert!(!claims || words.contains(id), "{id} is kept by {part}, whose source does not name it");
        }
    }
    for (family, count) in PROMISES {
        for id in (1..=count).map(|number| format!("{family}{number}")) {
            assert!(seen.contains(&id), "{id} is missing");
        }
    }
}

#[test]
fn decision_records_are_numbered_without_a_gap() {
    let pages = files(&root().join("docs"), &[".md"]);
    let records = pages.iter().filter(|page| folder_of(page).ends_with("decisions") && file_name(page) != "index.md");
    let mut numbers: Vec<_> = records.map(|page| file_name(page)[..4].to_owned()).collect();
    numbers.sort();
    assert!(numbers.len() >= 35, "decision records are missing: {numbers:?}");
    let expected: Vec<_> = (1..=numbers.len()).map(|number| format!("{number:04}")).collect();
    assert_eq!(numbers, expected);
}
