//! What a child does: it holds a token of the number it is given, at a target behind an address.

use std::io::{BufRead, Write, stdin, stdout};

use async_nats::jetstream;
use leasehold_fence::Error;
use leasehold_fence::conformance::{CLUSTER, Writer, name, token};

use crate::{etcd, nats, redis_server};

/// The word by which a child knows that it is one.
pub const PLAY: &str = "play";

pub async fn play(words: &[String]) {
    let [_late, kind, at, number] = words else { panic!("a part, a target, an address and a number: {words:?}") };
    let token = token(number.parse().expect("a number"));
    match kind.as_str() {
        "redis" => {
            let fence = leasehold_fence::redis::Fence::new(CLUSTER, name(), 0);
            late(
                redis_server::Way {
                    fence,
                    db: redis_server::connect(&format!("redis://{at}")).await.expect("it answers"),
                },
                &token,
            )
            .await;
        }
        "etcd" => {
            let way = etcd::channel(&format!("http://{at}"));
            late(etcd::Way(leasehold_fence::etcd::Fence::new(way, CLUSTER, name(), 0)), &token).await;
        }
        _ => {
            // The stream that the parent made last: it counts them.
            let jetstream = jetstream::new(async_nats::connect(at).await.expect("it answers"));
            let mut stream = String::new();
            for name in (0..8).map(|n| format!("GHOST{n}")) {
                if jetstream.get_stream(&name).await.is_ok() {
                    stream = name;
                }
            }
            late(nats::Way::open(at, &stream).await.expect("it answers"), &token).await;
        }
    }
}

/// Claims, then writes only when told to: however late that is.
async fn late(mut way: impl Writer, token: &str) {
    say(&told(way.claim(token).await.map(|_| ())));
    for order in stdin().lock().lines() {
        say(&told(way.write(token, &order.expect("an order")).await));
    }
}

fn say(line: &str) {
    let mut out = stdout().lock();
    // Who does not listen any more has heard enough.
    if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}

fn told(outcome: Result<(), Error>) -> String {
    match outcome {
        Ok(()) => "written".to_owned(),
        Err(error) => format!("{} {error}", error.code()),
    }
}
