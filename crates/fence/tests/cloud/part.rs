//! What a child does: it holds a token of the number it is given, at a target.

use std::io::{BufRead, Write, stdin, stdout};

use leasehold_fence::Error;
use leasehold_fence::conformance::token;

use crate::target::{KINDS, Place, Target};

/// The word by which a child knows that it is one.
pub const PLAY: &str = "play";

pub fn play(words: &[String]) {
    let [part, kind, at, number] = words else { panic!("a part, a target, where it is, and a number: {words:?}") };
    let (url, name) = at.rsplit_once('/').expect("the name behind the server");
    let kind = KINDS.into_iter().find(|known| known == kind).expect("a target");
    let place = Place { kind, url: url.to_owned(), name: name.to_owned() };
    let number = number.parse().expect("a number");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let target = place.open().await;
        match part.as_str() {
            "late" => late(target, number).await,
            "once" => once(target, number).await,
            other => panic!("no such part: {other}"),
        }
    });
}

fn say(line: &str) {
    let mut out = stdout().lock();
    // Who does not listen any more has heard enough.
    if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}

fn told<T>(outcome: Result<T, Error>) -> String {
    match outcome {
        Ok(_) => "written".to_owned(),
        Err(error) => format!("{} {error}", error.code()),
    }
}

/// Claims, then writes only when told to: however late that is.
async fn late(target: Target, number: u64) {
    say(&told(target.claim(&token(number)).await));
    for order in stdin().lock().lines() {
        say(&told(target.write(&token(number), &order.expect("an order")).await));
    }
}

/// Claims and writes twice.
async fn once(target: Target, number: u64) {
    say(&told(target.claim(&token(number)).await));
    for value in ["first", "second"] {
        say(&told(target.write(&token(number), value).await));
    }
}
