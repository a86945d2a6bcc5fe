//! The main function of a child process: a holder with a given token number.

use std::io::{BufRead, Write, stdin, stdout};

use leasehold_fence::Error;
use leasehold_fence::conformance::token;

use crate::target::{KINDS, Target, TargetAddress};

/// First argument of a child process.
pub const CHILD_ARG: &str = "play";

pub fn run(args: &[String]) {
    let [role, kind, at, number] = args else { panic!("a role, a target, an address and a number: {args:?}") };
    let (url, name) = at.rsplit_once('/').expect("the name follows the server");
    let kind = KINDS.into_iter().find(|known| known == kind).expect("a target");
    let address = TargetAddress { kind, url: url.to_owned(), name: name.to_owned() };
    let number = number.parse().expect("a number");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let target = address.open().await;
        match role.as_str() {
            "on_command" => on_command(target, number).await,
            "twice" => twice(target, number).await,
            other => panic!("unknown role: {other}"),
        }
    });
}

fn print_line(line: &str) {
    let mut out = stdout().lock();
    // The parent has ended.
    if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}

fn describe<T>(outcome: Result<T, Error>) -> String {
    match outcome {
        Ok(_) => "written".to_owned(),
        Err(error) => format!("{} {error}", error.code()),
    }
}

/// Claims, then writes on command.
async fn on_command(target: Target, number: u64) {
    print_line(&describe(target.claim(&token(number)).await));
    for command in stdin().lock().lines() {
        print_line(&describe(target.write(&token(number), &command.expect("a command")).await));
    }
}

/// Claims and writes twice.
async fn twice(target: Target, number: u64) {
    print_line(&describe(target.claim(&token(number)).await));
    for value in ["first", "second"] {
        print_line(&describe(target.write(&token(number), value).await));
    }
}
