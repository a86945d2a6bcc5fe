//! Stores of the cloud under a fence, with holders that are real processes. A child is this program itself, started with its part.

#[expect(dead_code, reason = "here the way kills, at a chosen request")]
#[path = "../processes/child.rs"]
mod child;
mod killed;
mod late;
mod moto;
mod part;
mod plain;
mod stories;
mod target;
mod way;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

/// What is run, by name, in the words of the test runner, so that it can be counted and chosen like any other test.
fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.first().is_some_and(|word| word == part::PLAY) {
        return part::play(&words[1..]);
    }
    if words.iter().any(|word| word == "--list") {
        return stories::ALL.iter().for_each(|(name, _)| println!("{name}: test"));
    }
    let wanted = words.iter().find(|word| !word.starts_with('-'));
    let chosen: Vec<_> =
        stories::ALL.iter().filter(|(name, _)| wanted.is_none_or(|word| name.contains(word.as_str()))).collect();
    println!("\nrunning {} tests", chosen.len());
    let (mut passed, mut failed) = (0, 0);
    for (name, story) in &chosen {
        let held = catch_unwind(AssertUnwindSafe(story)).is_ok();
        println!("test {name} ... {}", if held { "ok" } else { "FAILED" });
        if held { passed += 1 } else { failed += 1 }
    }
    let result = if failed == 0 { "ok" } else { "FAILED" };
    let left = stories::ALL.len() - chosen.len();
    println!("\ntest result: {result}. {passed} passed; {failed} failed; 0 ignored; 0 measured; {left} filtered out\n");
    if failed > 0 {
        std::process::exit(101);
    }
}
