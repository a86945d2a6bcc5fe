//! `leasehold dev-cluster`: start a local cluster for development.

use std::path::PathBuf;

use serde_json::json;

use crate::global_args::GlobalArgs;
use crate::local_cluster::servers::LocalServers;
use crate::output::{self, CommandError, CommandOutput, CommandResult, document};
use crate::output_format::OutputFormat;
use crate::table::key_values;

/// Start a local cluster for development: several servers over etcd
///
/// The etcd cluster has three members.
///
/// Requires etcd. All processes listen on free loopback ports and end with this command (Ctrl-C). Without --dir all data is
/// removed at the end.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold dev-cluster")]
pub struct Args {
    /// Store all data in this directory, and continue with data that it contains [default: temporary]
    #[arg(long, value_name = "DIRECTORY")]
    dir: Option<PathBuf>,
    /// Number of servers
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(2..=9))]
    servers: u64,
}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| failed(&format!("cannot start: {error}")))?;
    runtime.block_on(async {
        let interrupted = crate::local_cluster::interrupt_signal("dev-cluster")?;
        tokio::pin!(interrupted);
        let count = args.servers as usize;
        let start = async {
            match &args.dir {
                Some(directory) => LocalServers::start_in("dev-cluster", directory, count).await,
                None => LocalServers::start("dev-cluster", &std::env::temp_dir(), count).await,
            }
        };
        // Either way, the processes are dropped at the end.
        let mut servers = tokio::select! {
            servers = start => servers?,
            () = &mut interrupted => return Err(failed("interrupted; all its processes have ended")),
        };
        let leader = servers.wait_leader().await?;
        if output::print_line(&describe(&servers, leader, global.format()))? {
            interrupted.await;
        }
        servers.stop().await;
        Ok(CommandOutput::EMPTY)
    })
}

fn describe(servers: &LocalServers, leader: usize, format: OutputFormat) -> String {
    let (addresses, ids) = (servers.addresses(), servers.ids());
    let etcd = servers.etcd().endpoints();
    if format.is_document() {
        let each = addresses.iter().zip(&ids).map(|(address, id)| json!({ "address": address, "process": id }));
        let each: Vec<_> = each.collect();
        return document(format, &json!({ "servers": each, "leader": addresses[leader], "etcd": etcd }));
    }
    let role = |at: usize| if at == leader { "leader" } else { "standby" };
    let each = addresses.iter().zip(&ids).enumerate();
    let each: Vec<_> = each.map(|(at, (address, id))| format!("{address} (process {id}, {})", role(at))).collect();
    let lines = key_values(&[("etcd", etcd.join(", ")), ("servers", each.join(", "))]);
    format!(
        "{lines}\n\n{}\n\nPress Ctrl-C to end the cluster.",
        walkthrough(&addresses.join(","), ids[leader], ids.len())
    )
}

/// Commands to try, in an order in which each has the effect that its comment names: the process id is the leader's only until
/// another server leads, and the last server has no one to step down to.
fn walkthrough(addresses: &str, leader: u32, servers: usize) -> String {
    let mut lines = vec![
        ("Try it in another terminal:".to_owned(), ""),
        (format!("  export LEASEHOLD_ADDR={addresses}"), ""),
        ("  leasehold cluster status".to_owned(), ""),
        ("  leasehold acquire jobs/settle --holder me --ttl 5m".to_owned(), ""),
        (format!("  kill -9 {leader}"), "the leader; another server takes over after about 3 s"),
        ("  leasehold show jobs/settle".to_owned(), "still held"),
    ];
    if servers > 2 {
        lines.push(("  leasehold step-down".to_owned(), "another server takes over immediately"));
        lines.push(("  leasehold show jobs/settle".to_owned(), "still held"));
    }
    let text = |(command, comment): &(String, &str)| match *comment {
        "" => command.clone(),
        comment => format!("{command:<30} # {comment}"),
    };
    lines.iter().map(text).collect::<Vec<_>>().join("\n")
}

fn failed(message: &str) -> CommandError {
    CommandError::Other(format!("dev-cluster: {message}"))
}

#[cfg(test)]
mod tests {
    use super::walkthrough;

    #[test]
    fn the_walkthrough_kills_the_leader_before_another_server_leads() {
        let text = walkthrough("a:1,b:1,c:1", 17, 3);
        let at = |command: &str| text.find(command).unwrap_or_else(|| panic!("{command}: {text}"));
        assert!(at("leasehold acquire") < at("kill -9 17") && at("kill -9 17") < at("leasehold show"), "{text}");
        assert!(at("leasehold show") < at("leasehold step-down"), "{text}");
        assert!(!walkthrough("a:1,b:1", 17, 2).contains("step-down"), "the last server has no successor");
    }
}
