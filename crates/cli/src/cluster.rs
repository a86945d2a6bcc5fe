//! `leasehold cluster status` and `step-down`: the servers over one journal, and who of them leads.

use std::time::{Duration, Instant};

use clap::Subcommand;
use leasehold::json::ClusterBody;
use leasehold::{Client, Endpoints, Options};
use serde_json::{Value, json};

use crate::connection::Everywhere;
use crate::table::{Table, block, lasting};
use crate::told::{Answer, Failure, Outcome};

/// The servers over one journal
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold cluster status")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Tell who leads, since when, how far each standby is behind, and how etcd is
    ///
    /// Any server can be asked. It names the others, and each is asked for its own part; one that does not answer is told
    /// as such. Exit code 5 if nobody leads.
    #[command(after_help = "Example:\n  leasehold cluster status --json")]
    Status,
}

/// How long one server may take to tell its part.
const PART: Duration = Duration::from_secs(5);
/// How long it may take until another server leads.
const HANDING_OVER: Duration = Duration::from_secs(30);
/// The exit code of a cluster that nobody leads.
const NOBODY: u8 = 5;

/// One server: its own word, or why there is none.
struct Server {
    address: String,
    told: Result<ClusterBody, String>,
}

/// What all of them say.
struct Seen {
    first: ClusterBody,
    servers: Vec<Server>,
}

pub fn run(args: &Args, ask: &Everywhere) -> Outcome {
    let What::Status = args.what;
    let seen = ask.run(async |client| seen(&client).await)?;
    let answer = |seen: &Seen| ask.answer(&in_json(seen), || for_people(seen));
    match seen.first.leader {
        Some(_) => Ok(answer(&seen)),
        None => {
            let text = if ask.json { in_json(&seen).to_string() } else { for_people(&seen) };
            Ok(Answer::but(
                text,
                "nobody leads; holders keep what they have until their own deadlines".to_owned(),
                NOBODY,
            ))
        }
    }
}

/// Asks one server, and then each one that it names.
async fn seen(client: &Client) -> Result<Seen, Failure> {
    let first = client.cluster().await?;
    let asked = first.servers.iter().map(|address| async {
        let told = match *address == first.address {
            true => Ok(first.clone()),
            false => part(address).await,
        };
        Server { address: address.clone(), told }
    });
    let servers = futures::future::join_all(asked).await;
    Ok(Seen { first, servers })
}

async fn part(address: &str) -> Result<ClusterBody, String> {
    let endpoints = Endpoints::parse(address).map_err(|error| error.to_string())?;
    let options = Options { connect: PART, request: PART, ..Options::default() };
    Client::with(endpoints, options).cluster().await.map_err(|error| error.to_string())
}

impl Seen {
    /// What the leader itself says.
    fn leader(&self) -> Option<&ClusterBody> {
        let leader = self.first.leader.as_deref()?;
        self.servers.iter().find(|server| server.address == leader)?.told.as_ref().ok()
    }

    /// How many batches a server is behind the leader.
    fn behind(&self, server: &ClusterBody) -> Option<u64> {
        self.leader().map(|leader| leader.position.saturating_sub(server.position))
    }
}

fn in_json(seen: &Seen) -> Value {
    let servers = seen.servers.iter().map(|server| match &server.told {
        Ok(told) => json!({
            "address": server.address, "role": told.role, "since_ms": told.since_ms, "position": told.position,
            "behind": seen.behind(told),
        }),
        Err(why) => json!({ "address": server.address, "problem": why }),
    });
    let leader = seen.leader();
    json!({
        "leader": seen.first.leader,
        "since_ms": leader.map(|leader| leader.since_ms),
        "position": leader.map(|leader| leader.position),
        "servers": servers.collect::<Vec<_>>(),
        "etcd": seen.first.etcd,
        "database_bytes": seen.first.database_bytes,
        "quota_bytes": seen.first.quota_bytes,
        "problem": seen.first.problem,
    })
}

fn for_people(seen: &Seen) -> String {
    let since = seen.leader().map(|leader| format!(", for {}", lasting(leader.since_ms))).unwrap_or_default();
    let leader = seen.first.leader.as_ref().map_or_else(|| "nobody".to_owned(), |at| format!("{at}{since}"));
    let mut lines = vec![("leads", leader)];
    if let Some(leader) = seen.leader() {
        lines.push(("position", leader.position.to_string()));
    }
    if seen.first.role == "alone" {
        lines.push(("journal", "on this machine; there are no other servers".to_owned()));
        return block(&lines);
    }
    let (used, quota) = (seen.first.database_bytes, seen.first.quota_bytes);
    lines.push(("database", format!("{} of {}", mebibytes(used), mebibytes(quota))));
    if let Some(why) = &seen.first.problem {
        lines.push(("problem", why.clone()));
    }
    let mut servers = Table::new(["SERVER", "ROLE", "SINCE", "POSITION", "BEHIND"]);
    for server in &seen.servers {
        let address = server.address.clone();
        match &server.told {
            Ok(told) => {
                let role = if told.role == "leads" { "leads" } else { "stands by" };
                let behind = seen.behind(told).map_or_else(|| "?".to_owned(), |behind| behind.to_string());
                servers.row([address, role.to_owned(), lasting(told.since_ms), told.position.to_string(), behind]);
            }
            Err(why) => servers.row([address, why.clone(), "-".to_owned(), "-".to_owned(), "-".to_owned()]),
        }
    }
    let mut etcd = Table::new(["ETCD", "HEALTH", "VERSION", "DATABASE", "IN USE"]);
    for member in &seen.first.etcd {
        let health = match &member.problem {
            Some(why) => why.clone(),
            None if member.leads => "healthy, leads".to_owned(),
            None => "healthy".to_owned(),
        };
        let (size, used) = (mebibytes(member.database_bytes), mebibytes(member.in_use_bytes));
        etcd.row([member.endpoint.clone(), health, member.version.clone(), size, used]);
    }
    format!("{}\n\n{}\n\n{}", block(&lines), servers.text(), etcd.text())
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

/// Let another server lead
///
/// The leader answers what it has taken in, gives its place to a standby in one transaction, and stands by. Nothing that is
/// held ends. Refused where the journal is on one machine, and where nobody stands by.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold step-down")]
pub struct StepDown {}

pub fn step_down(ask: &Everywhere) -> Outcome {
    let (old, new) = ask.run(async |client| {
        let before = client.cluster().await?;
        let old = before.leader.clone().unwrap_or_default();
        client.step_down().await?;
        let began = Instant::now();
        loop {
            // Whoever leads says so itself: then it decides already.
            for address in before.servers.iter().filter(|address| **address != old) {
                if part(address).await.is_ok_and(|told| told.role == "leads") {
                    return Ok((old, Some(address.clone())));
                }
            }
            if began.elapsed() > HANDING_OVER {
                return Ok((old, None));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })?;
    let body = json!({ "done": true, "before": old, "leader": new });
    let note = new.is_none().then(|| "nobody says yet that it leads; look at leasehold cluster status".to_owned());
    let words = || match &new {
        Some(new) => format!("{old} stepped down; {new} leads"),
        None => format!("{old} stepped down"),
    };
    Ok(ask.answer(&body, words).noting(note))
}
