//! One type name, one idea: no two structs, enums, traits or aliases of the workspace share a name.

mod source;

use std::collections::BTreeMap;

use syn::{Attribute, Item};

/// Names that may repeat, and why each repetition is one idea.
const MAY_REPEAT: [(&str, &str); 3] = [
    ("Args", "the arguments of one command of a command line, one type in each command's file"),
    ("Error", "the error of a library crate, at its root, as in `std::io::Error`"),
    ("Fence", "the fence of one target, one type in each target's module"),
];

/// Modules whose types mirror others on purpose.
const MIRRORS: [(&str, &str); 1] = [("crates/client/src/blocking.rs", "blocking forms of the async types")];

/// Participles and verbs that say nothing as the name of a type: a type is a noun that answers "a what?".
const NOT_A_NOUN: [&str; 44] = [
    "Answered", "Asked", "Asking", "Came", "Began", "Begun", "Behind", "Carried", "Chosen", "Counted", "Found",
    "Given", "Goes", "Granting", "Heard", "Hearing", "Held", "Holding", "Kept", "Keeping", "Killed", "Lasting",
    "Leading", "Left", "Looked", "Lost", "Made", "Met", "Opened", "Over", "Passed", "Planted", "Said", "Saying",
    "Seen", "Shown", "Spoken", "Standing", "Surveyed", "Taken", "Told", "Under", "Wanted", "Woke",
];

fn only_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.meta.require_list().is_ok_and(|list| list.tokens.to_string() == "test")
    })
}

fn types_of(items: &[Item], found: &mut Vec<(String, usize)>) {
    for item in items {
        let ident = match item {
            Item::Struct(item) => &item.ident,
            Item::Enum(item) => &item.ident,
            Item::Trait(item) => &item.ident,
            Item::Type(item) => &item.ident,
            Item::Union(item) => &item.ident,
            Item::Mod(item) => {
                if let (false, Some((_, inner))) = (only_for_tests(&item.attrs), &item.content) {
                    types_of(inner, found);
                }
                continue;
            }
            _ => continue,
        };
        found.push((ident.to_string(), ident.span().start().line));
    }
}

fn repeated(modules: &[(String, String)]) -> Vec<String> {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (file, text) in modules {
        let parsed = syn::parse_file(text).unwrap_or_else(|error| panic!("{file}: {error}"));
        let mut found = Vec::new();
        types_of(&parsed.items, &mut found);
        for (name, line) in found {
            if !MAY_REPEAT.iter().any(|(free, _)| *free == name) {
                places.entry(name).or_default().push(format!("{file}:{line}"));
            }
        }
    }
    let twice = places.into_iter().filter(|(_, places)| places.len() > 1);
    twice.map(|(name, places)| format!("{name}: {}", places.join(", "))).collect()
}

#[test]
fn no_type_name_is_used_for_two_ideas() {
    let mut modules = Vec::new();
    for (_, tree) in source::crates() {
        let own = tree.modules().iter().filter(|module| !MIRRORS.iter().any(|(file, _)| *file == module.file));
        modules.extend(own.map(|module| (module.file.clone(), module.text.clone())));
    }
    let found = repeated(&modules);
    assert!(found.is_empty(), "{} type names are defined more than once:\n{}", found.len(), found.join("\n"));
}

#[test]
fn no_type_is_named_by_a_bare_participle() {
    let mut found = Vec::new();
    for (_, tree) in source::crates() {
        for module in tree.modules() {
            let parsed = syn::parse_file(&module.text).unwrap_or_else(|error| panic!("{}: {error}", module.file));
            let mut types = Vec::new();
            types_of(&parsed.items, &mut types);
            let bare = types.into_iter().filter(|(name, _)| NOT_A_NOUN.contains(&name.as_str()));
            found.extend(bare.map(|(name, line)| format!("{}:{line}: {name}", module.file)));
        }
    }
    assert!(found.is_empty(), "types that no reader can guess:\n{}", found.join("\n"));
}

#[test]
fn a_repeated_name_is_found_and_test_types_are_not() {
    let file = |name: &str, text: &str| (name.to_owned(), text.to_owned());
    let found = repeated(&[
        file("a.rs", "struct Seen; impl X for Y { type Z = u8; }"),
        file("b.rs", "mod inner { pub enum Seen {} } #[cfg(test)] mod tests { struct Args; struct Seen; }"),
        file("c.rs", "struct Args; type Z = u8;"),
    ]);
    assert_eq!(found, ["Seen: a.rs:1, b.rs:1"]);
}
