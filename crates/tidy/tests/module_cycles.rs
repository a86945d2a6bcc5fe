//! No module cycles: modules that share a parent form an acyclic graph, in every crate.
//!
//! An edge `a → b` exists if a file below module `a` names a path into its sibling `b`: `crate::…`, `super::…`, in a `use`, an
//! expression or a macro. Re-exports are followed to the module that defines the item. A parent and its own children may
//! refer to each other, and test code may refer to anything.

mod source;

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use source::{Module, SourceTree};

/// Where an edge was found: `file:line`.
type Edges = BTreeMap<(String, String), BTreeMap<String, BTreeSet<String>>>;

/// One path that a file mentions, as segments that start with `crate`, `super` or `self`.
struct Mention {
    segments: Vec<String>,
    line: usize,
}

/// Collects every path of `tokens`, also those inside macros; skips items that only tests compile.
fn mentions(tokens: TokenStream, scope: &[String], found: &mut Vec<(Vec<String>, Mention)>) {
    let trees: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    while at < trees.len() {
        match &trees[at] {
            TokenTree::Punct(punct) if punct.as_char() == '#' && is_cfg_test(trees.get(at + 1)) => {
                at = end_of_item(&trees, at + 2);
            }
            TokenTree::Ident(word) if word == "mod" => {
                if let (Some(TokenTree::Ident(name)), Some(TokenTree::Group(body))) =
                    (trees.get(at + 1), trees.get(at + 2))
                {
                    let inner: Vec<_> = scope.iter().cloned().chain([name.to_string()]).collect();
                    mentions(body.stream(), &inner, found);
                    at += 3;
                } else {
                    at += 1;
                }
            }
            TokenTree::Ident(word) if ["crate", "super", "self"].contains(&word.to_string().as_str()) => {
                let line = word.span().start().line;
                at = path(&trees, at + 1, vec![word.to_string()], line, scope, found);
            }
            TokenTree::Group(group) => {
                mentions(group.stream(), scope, found);
                at += 1;
            }
            _ => at += 1,
        }
    }
}

/// Reads on after a segment: `::next`, `::{a, b::c}` or the end of the path. Returns the position behind it.
fn path(
    trees: &[TokenTree],
    mut at: usize,
    mut segments: Vec<String>,
    line: usize,
    scope: &[String],
    found: &mut Vec<(Vec<String>, Mention)>,
) -> usize {
    while is_punct(trees.get(at), ':') && is_punct(trees.get(at + 1), ':') {
        match trees.get(at + 2) {
            Some(TokenTree::Ident(name)) => {
                segments.push(name.to_string());
                at += 3;
            }
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                for branch in inner.split(|tree| is_punct(Some(tree), ',')) {
                    let Some(TokenTree::Ident(first)) = branch.first() else { continue };
                    let mut longer = segments.clone();
                    if first != "self" {
                        longer.push(first.to_string());
                    }
                    path(branch, 1, longer, first.span().start().line, scope, found);
                }
                return at + 3;
            }
            _ => break,
        }
    }
    if segments.len() > 1 {
        found.push((scope.to_vec(), Mention { segments, line }));
    }
    at
}

fn is_punct(tree: Option<&TokenTree>, wanted: char) -> bool {
    matches!(tree, Some(TokenTree::Punct(punct)) if punct.as_char() == wanted)
}

fn is_cfg_test(tree: Option<&TokenTree>) -> bool {
    matches!(tree, Some(TokenTree::Group(group)) if group.to_string().replace(' ', "") == "[cfg(test)]")
}

/// The position behind the item that starts at `at`: after its body or its semicolon.
fn end_of_item(trees: &[TokenTree], mut at: usize) -> usize {
    while at < trees.len() {
        match &trees[at] {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => return at + 1,
            TokenTree::Punct(punct) if punct.as_char() == ';' => return at + 1,
            _ => at += 1,
        }
    }
    at
}

/// The module a mention leads to, as segments below the crate's root.
fn target(tree: &SourceTree, from: &[String], mention: &Mention) -> Option<Vec<String>> {
    let mut segments = mention.segments.iter().map(String::as_str).peekable();
    let mut here = match segments.next()? {
        "crate" => Vec::new(),
        "self" => from.to_vec(),
        _ => from[..from.len().checked_sub(1)?].to_vec(),
    };
    while segments.peek() == Some(&"super") {
        segments.next();
        here.pop()?;
    }
    tree.resolve(here, &segments.map(str::to_owned).collect::<Vec<_>>())
}

/// Records the edge between the two siblings in which `from` and `to` part ways.
fn add_edge(edges: &mut Edges, from: &[String], to: &[String], place: String) {
    let shared = from.iter().zip(to).take_while(|(a, b)| a == b).count();
    if let (Some(a), Some(b)) = (from.get(shared), to.get(shared)) {
        let parent = from[..shared].join("::");
        edges.entry((parent, a.clone())).or_default().entry(b.clone()).or_default().insert(place);
    }
}

fn edges_of(tree: &SourceTree) -> Edges {
    let mut edges = Edges::new();
    for Module { path, file, text } in tree.modules() {
        let tokens: TokenStream = text.parse().unwrap_or_else(|error| panic!("{file}: {error}"));
        let mut found = Vec::new();
        mentions(tokens, path, &mut found);
        for (scope, mention) in found {
            if let Some(to) = target(tree, &scope, &mention) {
                add_edge(&mut edges, path, &to, format!("{file}:{}", mention.line));
            }
        }
    }
    edges
}

/// Every pair of siblings that reach each other, with one place for the edge in either direction.
fn cycles(edges: &Edges) -> Vec<String> {
    let reach = |parent: &str, from: &str| -> BTreeSet<String> {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from.to_owned()]);
        while let Some(next) = open.pop() {
            let out = edges.get(&(parent.to_owned(), next)).into_iter().flat_map(BTreeMap::keys);
            open.extend(out.filter(|to| seen.insert((*to).clone())).cloned().collect::<Vec<_>>());
        }
        seen
    };
    let mut found = Vec::new();
    for ((parent, from), out) in edges {
        for (to, places) in out {
            if to != from && reach(parent, to).contains(from) {
                let places = places.iter().take(3).cloned().collect::<Vec<_>>().join(", ");
                found.push(format!("{parent}: {from} → {to} ({places})"));
            }
        }
    }
    found
}

#[test]
fn no_crate_has_a_module_cycle() {
    let mut found = Vec::new();
    for (name, tree) in source::crates() {
        found.extend(cycles(&edges_of(&tree)).into_iter().map(|cycle| format!("{name} {cycle}")));
    }
    assert!(found.is_empty(), "edges that are part of a module cycle:\n{}", found.join("\n"));
}

#[test]
fn a_cycle_through_a_re_export_is_found() {
    let tree = SourceTree::from_texts(&[
        ("lib.rs", "mod a; mod b; pub use a::Thing;"),
        ("a.rs", "use crate::b::{self, Other}; pub struct Thing;"),
        ("b.rs", "fn f() -> crate::Thing { vec![super::Thing] }"),
    ]);
    assert_eq!(cycles(&edges_of(&tree)), [": a → b (a.rs:1)", ": b → a (b.rs:1)"]);
}

#[test]
fn tests_and_parents_make_no_cycle() {
    let tree = SourceTree::from_texts(&[
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "use crate::b::Other; mod child;"),
        ("a/child.rs", "use super::Own; use crate::a::Own as Same;"),
        ("b.rs", "#[cfg(test)] mod tests { use crate::a::Own; }"),
    ]);
    assert_eq!(cycles(&edges_of(&tree)), Vec::<String>::new());
}
