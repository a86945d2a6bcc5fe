//! `leasehold cluster status`: the servers that share one journal, and their leader.

use std::time::Duration;

use clap::Subcommand;
use leasehold::json::ClusterBody;
use leasehold::{Client, ClientBuilder, Endpoints};
use serde_json::{Value, json};

use crate::global_args::GlobalArgs;
use crate::output::{CommandError, CommandOutput, CommandResult};
use crate::table::{TextTable, format_duration, key_values};

/// Inspect the servers that share one journal
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
    /// Queries one server for the list of servers, then each of them for its own status. A server that does not respond is
    /// listed with its error. Exits with 5 if no server leads.
    #[command(after_help = "Example:\n  leasehold cluster status --json")]
    Status,
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
    let ClusterCommand::Status = args.command;
    let report = global.with_client(async |client| fetch_report(&client).await)?;
    let body = report_json(&report);
    if report.first.leader.is_some() {
        return Ok(global.output(&body, || report_text(&report)));
    }
    let text = if global.json { body.to_string() } else { report_text(&report) };
    let note = "no server leads; holders keep their leases until their own deadlines".to_owned();
    Ok(CommandOutput::with_exit_code(text, note, EXIT_NO_LEADER))
}

/// Queries one server, then each server that it lists.
async fn fetch_report(client: &Client) -> Result<ClusterReport, CommandError> {
    let first = client.cluster().await?;
    let servers = first.servers.iter().map(|address| async {
        let status = match *address == first.address {
            true => Ok(first.clone()),
            false => fetch_status(address).await,
        };
        ServerReport { address: address.clone(), status }
    });
    let servers = futures::future::join_all(servers).await;
    Ok(ClusterReport { first, servers })
}

/// Queries one server for its own status.
pub async fn fetch_status(address: &str) -> Result<ClusterBody, String> {
    let endpoints = Endpoints::parse(address).map_err(|error| error.to_string())?;
    let client = ClientBuilder::from(endpoints).connect_timeout(STATUS_TIMEOUT).request_timeout(STATUS_TIMEOUT).build();
    client.cluster().await.map_err(|error| error.to_string())
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

fn report_text(report: &ClusterReport) -> String {
    let since =
        report.leader().map(|leader| format!(", for {}", format_duration(leader.role_age_ms))).unwrap_or_default();
    let leader = report.first.leader.as_ref().map_or_else(|| "none".to_owned(), |at| format!("{at}{since}"));
    let mut lines = vec![("leader", leader)];
    if let Some(leader) = report.leader() {
        lines.push(("position", leader.position.to_string()));
    }
    if report.first.role == "standalone" {
        lines.push(("journal", "on this machine; there are no other servers".to_owned()));
        return key_values(&lines);
    }
    let (used, quota) = (report.first.database_bytes, report.first.quota_bytes);
    lines.push(("database", format!("{} of {}", mebibytes(used), mebibytes(quota))));
    if let Some(problem) = &report.first.problem {
        lines.push(("problem", problem.clone()));
    }
    let mut servers = TextTable::new(["SERVER", "ROLE", "SINCE", "POSITION", "BEHIND"]);
    for server in &report.servers {
        let address = server.address.clone();
        match &server.status {
            Ok(status) => {
                let role = status.role.clone();
                let lag = report.lag(status).map_or_else(|| "?".to_owned(), |lag| lag.to_string());
                let since = format_duration(status.role_age_ms);
                servers.row([address, role, since, status.position.to_string(), lag]);
            }
            Err(error) => servers.row([address, error.clone(), "-".to_owned(), "-".to_owned(), "-".to_owned()]),
        }
    }
    let mut etcd = TextTable::new(["ETCD", "HEALTH", "VERSION", "DATABASE", "IN USE"]);
    for member in &report.first.etcd {
        let health = match &member.problem {
            Some(problem) => problem.clone(),
            None if member.is_leader => "healthy, leader".to_owned(),
            None => "healthy".to_owned(),
        };
        let (size, used) = (mebibytes(member.database_bytes), mebibytes(member.in_use_bytes));
        etcd.row([member.endpoint.clone(), health, member.version.clone(), size, used]);
    }
    format!("{}\n\n{}\n\n{}", key_values(&lines), servers.text(), etcd.text())
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}
