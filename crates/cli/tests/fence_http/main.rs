//! Tests of `leasehold fence http` as a real process in front of a real service, with stopped, killed and late holders.
//!
//! Child processes are this program itself, started with a role. Only child processes open mark files.

mod child;
mod clients;
mod conformance;
mod holder;
mod http_client;
mod overhead;
mod process_faults;
mod proxy;
mod proxying;
mod sealed;
mod spellings;
#[path = "../support/mod.rs"]
mod support;
mod upstream;

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs a role, or the tests with the output format of the standard test runner.
fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.first().map(String::as_str) {
        Some(upstream::ROLE) => return upstream::run(),
        Some(holder::ROLE) => return holder::run(&args[1..]),
        Some(overhead::ROLE) => return overhead::measure(),
        Some("--list") => return process_faults::ALL.iter().for_each(|(name, _)| println!("{name}: test")),
        _ => {}
    }
    let filter = args.iter().find(|arg| !arg.starts_with('-'));
    let selected: Vec<_> =
        process_faults::ALL.iter().filter(|(name, _)| filter.is_none_or(|text| name.contains(text.as_str()))).collect();
    println!("\nrunning {} tests", selected.len());
    let (mut passed, mut failed) = (0, 0);
    for (name, test) in &selected {
        let ok = catch_unwind(AssertUnwindSafe(test)).is_ok();
        println!("test {name} ... {}", if ok { "ok" } else { "FAILED" });
        if ok { passed += 1 } else { failed += 1 }
    }
    let result = if failed == 0 { "ok" } else { "FAILED" };
    let others = process_faults::ALL.len() - selected.len();
    println!(
        "\ntest result: {result}. {passed} passed; {failed} failed; 0 ignored; 0 measured; {others} filtered out\n"
    );
    if failed > 0 {
        std::process::exit(101);
    }
}
