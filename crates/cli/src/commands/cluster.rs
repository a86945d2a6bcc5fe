//! `leasehold cluster`: the servers that share one journal, their leader, and the maximum ttl.

use std::time::Duration;

use clap::Subcommand;
use leasehold::Client;
use leasehold::duration::HumanDuration;
use leasehold::json::ClusterBody;
use serde_json::{Value, json};

use super::alone_arg::AloneArg;
use super::comment_arg::parse_comment;
use crate::global_args::GlobalArgs;
use crate::output::{CommandError, CommandResult};
use crate::styled_text::{Style, StyledText};
use crate::table::{Cell, TextTable, format_duration, key_values, or_dash};

/// Inspect the servers that share one journal, and change the maximum ttl
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold cluster status")]
pub struct Args {
    #[command(subcommand)]
    command: ClusterCommand,
}

#[derive(Subcommand)]
enum ClusterCommand {
    /// Show the leader, the lag of each standby, and the health of etcd
    ///
    /// Queries one server for the list of servers, then each of them for its own status. Without TLS only servers in --addr are
    /// queried; with TLS also others whose certificate carries the name of the cluster. A server that does not respond is listed
    /// with its error. Exits with 5 if no server leads.
    #[command(after_help = "Example:\n  leasehold cluster status -o json")]
    Status,
    /// Change the maximum ttl of the cluster
    ///
    /// It is raised at once. It is lowered only if no lease, session, wait, message, cached key or charter has a longer ttl. The
    /// quarantine after a restore or a rollback lasts one maximum ttl. After raising it, also set `max_ttl` in the configuration of
    /// every server and take a new backup: an older state does not know of the change.
    #[command(after_help = "Example:\n  leasehold cluster set-max-ttl 1h --comment \"the nightly batch takes longer\"")]
    SetMaxTtl {
        /// New maximum ttl, from 100ms to 7d
        max_ttl: HumanDuration,
        /// Comment for the audit log
        #[arg(long, value_name = "TEXT", value_parser = parse_comment)]
        comment: String,
        #[command(flatten)]
        alone: AloneArg,
    },
}

/// Time limit for one server's status.
const STATUS_TIMEOUT: Duration = Duration::from_secs(5);
/// Exit code if no server leads.
const EXIT_NO_LEADER: u8 = 5;

/// One server: its own status, or the error.
struct ServerReport {
    address: String,
    status: Result<ClusterBody, String>,
}

/// The replies of all servers.
struct ClusterReport {
    first: ClusterBody,
    servers: Vec<ServerReport>,
}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    if let ClusterCommand::SetMaxTtl { max_ttl, comment, alone } = &args.command {
        global.call(async |client| alone.apply(&client).set_max_ttl(max_ttl.millis(), comment).await)?;
        return Ok(global.done(format!("the maximum ttl is {max_ttl}")));
    }
    let report = global.with_client(async |client| fetch_report(&client).await)?;
    let names = report.servers.iter().map(|server| server.address.clone());
    let output = global.listing(&report_json(&report), names, || report_text(&report, global.is_wide()));
    if report.first.leader.is_some() {
        return Ok(output);
    }
    let note = "no server leads; holders keep their leases until their own deadlines".to_owned();
    Ok(output.with_note(Some(note)).with_exit(EXIT_NO_LEADER))
}

/// Queries one server, then each server that it lists.
async fn fetch_report(client: &Client) -> Result<ClusterReport, CommandError> {
    let first = client.cluster().await?;
    let servers = first.servers.iter().map(|address| async {
        let status = match *address == first.address {
            true => Ok(first.clone()),
            false => fetch_status(client, address).await,
        };
        ServerReport { address: address.clone(), status }
    });
    let servers = futures::future::join_all(servers).await;
    Ok(ClusterReport { first, servers })
}

/// Queries one server of the cluster for its own status, if this client may contact it.
pub async fn fetch_status(client: &Client, address: &str) -> Result<ClusterBody, String> {
    client.cluster_at(address, STATUS_TIMEOUT).await.map_err(|error| error.to_string())
}

impl ClusterReport {
    /// The leader's own status.
    fn leader(&self) -> Option<&ClusterBody> {
        let leader = self.first.leader.as_deref()?;
        self.servers.iter().find(|server| server.address == leader)?.status.as_ref().ok()
    }

    /// Number of batches by which a server lags behind the leader.
    fn lag(&self, server: &ClusterBody) -> Option<u64> {
        self.leader().map(|leader| leader.position.saturating_sub(server.position))
    }
}

fn report_json(report: &ClusterReport) -> Value {
    let servers = report.servers.iter().map(|server| match &server.status {
        Ok(status) => json!({
            "address": server.address, "role": status.role, "role_age_ms": status.role_age_ms, "position": status.position,
            "behind": report.lag(status),
        }),
        Err(error) => json!({ "address": server.address, "problem": error }),
    });
    let leader = report.leader();
    json!({
        "leader": report.first.leader,
        "since_ms": leader.map(|leader| leader.role_age_ms),
        "position": leader.map(|leader| leader.position),
        "servers": servers.collect::<Vec<_>>(),
        "etcd": report.first.etcd,
        "database_bytes": report.first.database_bytes,
        "quota_bytes": report.first.quota_bytes,
        "problem": report.first.problem,
    })
}

fn report_text(report: &ClusterReport, is_wide: bool) -> StyledText {
    let since =
        report.leader().map(|leader| format!(", for {}", format_duration(leader.role_age_ms))).unwrap_or_default();
    let leader = report.first.leader.as_ref().map_or_else(|| "none".to_owned(), |at| format!("{at}{since}"));
    let mut lines = vec![("leader", leader)];
    if let Some(leader) = report.leader() {
        lines.push(("position", leader.position.to_string()));
    }
    if report.first.role == "standalone" {
        lines.push(("journal", "on this machine; there are no other servers".to_owned()));
        return key_values(&lines).into();
    }
    let (used, quota) = (report.first.database_bytes, report.first.quota_bytes);
    lines.push(("database", format!("{} of {}", mebibytes(used), mebibytes(quota))));
    if let Some(problem) = &report.first.problem {
        lines.push(("problem", problem.clone()));
    }
    // An error is a sentence; in a cell it would widen its column for every server.
    let mut problems = Vec::new();
    let mut servers =
        TextTable::new(["SERVER", "ROLE", "SINCE", "POSITION", "BEHIND"]).with_wide(is_wide, ["SEES LEADER"]);
    for server in &report.servers {
        let address = server.address.clone();
        match &server.status {
            Ok(status) => {
                let role = status.role.clone();
                let lag = report.lag(status).map_or_else(|| "?".to_owned(), |lag| lag.to_string());
                let since = format_duration(status.role_age_ms);
                let cells = [address.into(), role.into(), since.into(), status.position.to_string().into(), lag.into()];
                servers.row_with::<5, 1, Cell, String>(cells, [or_dash(status.leader.as_ref())]);
            }
            Err(error) => {
                let dash = || Cell::from("-");
                problems.push(format!("{address}: {error}"));
                servers
                    .row_with([address.into(), Cell::styled("no reply", Style::Bad), dash(), dash(), dash()], [dash()]);
            }
        }
    }
    let mut etcd = TextTable::new(["ETCD", "HEALTH", "VERSION", "DATABASE", "IN USE"]);
    for member in &report.first.etcd {
        let health = match &member.problem {
            Some(problem) => {
                problems.push(format!("etcd {}: {problem}", member.endpoint));
                Cell::styled("failing", Style::Bad)
            }
            None if member.is_leader => "healthy, leader".into(),
            None => "healthy".into(),
        };
        let (size, used) = (mebibytes(member.database_bytes), mebibytes(member.in_use_bytes));
        etcd.row([member.endpoint.clone().into(), health, member.version.clone().into(), size.into(), used.into()]);
    }
    let problems: Vec<_> = problems.iter().map(|problem| ("problem", problem.clone())).collect();
    let problems = (!problems.is_empty()).then(|| key_values(&problems).into());
    let parts = [key_values(&lines).into(), servers.text(), etcd.text()];
    StyledText::join(parts.into_iter().chain(problems), "\n\n")
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(address: &str, role: &str) -> ClusterBody {
        let servers = vec!["a:1".to_owned(), "b:1".to_owned()];
        ClusterBody {
            address: address.into(),
            role: role.into(),
            leader: Some("a:1".into()),
            servers,
            ..Default::default()
        }
    }

    #[test]
    fn a_dead_server_does_not_widen_the_table() {
        let error = "UNAVAILABLE: no server answered (b:1: connection refused); check that a server is running";
        let first = status("a:1", "leader");
        let servers = vec![
            ServerReport { address: "a:1".into(), status: Ok(first.clone()) },
            ServerReport { address: "b:1".into(), status: Err(error.to_owned()) },
        ];
        let text = report_text(&ClusterReport { first, servers }, false).render(false).into_owned();
        let row = text.lines().find(|line| line.starts_with("b:1")).expect("the dead server is listed");
        assert_eq!(row, "b:1     no reply  -      -         -");
        assert!(text.ends_with(&format!("problem  b:1: {error}")), "{text}");
    }
}
