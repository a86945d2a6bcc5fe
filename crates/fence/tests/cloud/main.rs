//! Tests of the fences for S3 and DynamoDB, with a moto server and holders in separate processes. A child is this program
//! itself, started with a role.

#[expect(dead_code, reason = "here the proxy kills, at a chosen request")]
#[path = "../processes/child.rs"]
mod child;
mod child_main;
mod delayed_writes;
mod dynamodb_marks;
mod dynamodb_replies;
mod kill;
mod moto;
mod plain_http;
mod proxy;
mod scenarios;
mod subject;
mod target;

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs the tests with the output of the standard test runner, so that they can be listed and filtered.
fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|arg| arg == child_main::CHILD_ARG) {
        return child_main::run(&args[1..]);
    }
    if args.iter().any(|arg| arg == "--list") {
        return scenarios::ALL.iter().for_each(|(name, _)| println!("{name}: test"));
    }
    let filter = args.iter().find(|arg| !arg.starts_with('-'));
    let selected: Vec<_> =
        scenarios::ALL.iter().filter(|(name, _)| filter.is_none_or(|word| name.contains(word.as_str()))).collect();
    println!("\nrunning {} tests", selected.len());
    let (mut passed, mut failed) = (0, 0);
    for (name, test) in &selected {
        let ok = catch_unwind(AssertUnwindSafe(test)).is_ok();
        println!("test {name} ... {}", if ok { "ok" } else { "FAILED" });
        if ok { passed += 1 } else { failed += 1 }
    }
    let result = if failed == 0 { "ok" } else { "FAILED" };
    let filtered = scenarios::ALL.len() - selected.len();
    println!(
        "\ntest result: {result}. {passed} passed; {failed} failed; 0 ignored; 0 measured; {filtered} filtered out\n"
    );
    if failed > 0 {
        std::process::exit(101);
    }
}
