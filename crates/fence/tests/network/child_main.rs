//! The main function of a child process: a holder with a given token number, at the address of a server.

use std::io::{BufRead, Write, stdin, stdout};

use async_nats::jetstream;
use leasehold_fence::Error;
use leasehold_fence::conformance::{FenceWriter, fence_id, token};

use crate::{etcd, nats, redis_server};

/// First argument of a child process.
pub const CHILD_ARG: &str = "play";

pub async fn run(args: &[String]) {
    let [_role, kind, at, number] = args else { panic!("a role, a target, an address and a number: {args:?}") };
    let token = token(number.parse().expect("a number"));
    match kind.as_str() {
        "redis" => {
            let fence = leasehold_fence::redis::Fence::new(&fence_id());
            on_command(
                redis_server::RedisWriter {
                    fence,
                    db: redis_server::connect(&format!("redis://{at}")).await.expect("a connection"),
                },
                &token,
            )
            .await;
        }
        "etcd" => {
            let channel = etcd::channel(&format!("http://{at}"));
            on_command(etcd::EtcdWriter(leasehold_fence::etcd::Fence::new(channel, &fence_id())), &token).await;
        }
        _ => {
            // The last stream of the parent, which numbers its streams.
            let jetstream = jetstream::new(async_nats::connect(at).await.expect("a connection"));
            let mut stream = String::new();
            for name in (0..8).map(|n| format!("WRITES{n}")) {
                if jetstream.get_stream(&name).await.is_ok() {
                    stream = name;
                }
            }
            on_command(nats::NatsWriter::open(at, &stream).await.expect("a connection"), &token).await;
        }
    }
}

/// Claims, then writes on command.
async fn on_command(mut writer: impl FenceWriter, token: &str) {
    print_line(&describe(writer.claim(token).await.map(|_| ())));
    for command in stdin().lock().lines() {
        print_line(&describe(writer.write(token, &command.expect("a command")).await));
    }
}

fn print_line(line: &str) {
    let mut out = stdout().lock();
    // The parent has ended.
    if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}

fn describe(outcome: Result<(), Error>) -> String {
    match outcome {
        Ok(()) => "written".to_owned(),
        Err(error) => format!("{} {error}", error.code()),
    }
}
