//! `leasehold dev-cluster`: servers over an etcd of three members on this machine, for a try-out.

use std::path::PathBuf;

use serde_json::json;

use crate::connection::Everywhere;
use crate::own::servers::Servers;
use crate::table::block;
use crate::told::{self, Answer, Failure, Outcome, json as spelled};

/// Start servers over an etcd of three members on this machine, for a try-out
///
/// etcd must be installed. Everything listens on loopback, on free ports, and ends with this command; without --dir nothing
/// is left behind. Ctrl-C ends it.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold dev-cluster")]
pub struct Args {
    /// Keep everything in this directory, and go on from what is there
    #[arg(long, value_name = "DIRECTORY")]
    dir: Option<PathBuf>,
    /// How many servers
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(2..=9))]
    servers: u64,
}

pub fn run(args: &Args, ask: &Everywhere) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| failed(&format!("cannot start: {error}")))?;
    runtime.block_on(async {
        let interrupted = crate::own::interrupted("dev-cluster")?;
        tokio::pin!(interrupted);
        let count = args.servers as usize;
        let begun = async {
            match &args.dir {
                Some(directory) => Servers::start_in("dev-cluster", directory, count).await,
                None => Servers::start("dev-cluster", &std::env::temp_dir(), count).await,
            }
        };
        // Whichever way it ends, its processes end with it.
        let mut servers = tokio::select! {
            servers = begun => servers?,
            () = &mut interrupted => return Err(failed("interrupted; nothing of it runs any more")),
        };
        let leader = servers.leader().await?;
        if told::write(&in_words(&servers, leader, ask.json))? {
            interrupted.await;
        }
        servers.stop().await;
        Ok(Answer::WRITTEN)
    })
}

fn in_words(servers: &Servers, leader: usize, in_json: bool) -> String {
    let (addresses, ids) = (servers.addresses(), servers.ids());
    let etcd = servers.etcd().endpoints();
    if in_json {
        let each = addresses.iter().zip(&ids).map(|(address, id)| json!({ "address": address, "process": id }));
        let each: Vec<_> = each.collect();
        return spelled(&json!({ "servers": each, "leader": addresses[leader], "etcd": etcd }));
    }
    let role = |at: usize| if at == leader { "leads" } else { "stands by" };
    let each = addresses.iter().zip(&ids).enumerate();
    let each: Vec<_> = each.map(|(at, (address, id))| format!("{address} (process {id}, {})", role(at))).collect();
    let lines = block(&[("etcd", etcd.join(", ")), ("servers", each.join(", "))]);
    format!(
        "{lines}\n\nTry it in another terminal:\n  export LEASEHOLD_ADDR={}\n  leasehold cluster status\n  \
         leasehold acquire jobs/settle --holder me --ttl 60s\n  leasehold step-down          # another one leads at once\n  \
         kill -9 {}           # and about three seconds after this\n  leasehold show jobs/settle   # still held\n\n\
         Ctrl-C ends all of it.",
        addresses.join(","),
        ids[leader]
    )
}

fn failed(why: &str) -> Failure {
    Failure::Other(format!("dev-cluster: {why}"))
}
