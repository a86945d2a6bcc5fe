//! The service of all servers together: leader, addresses, etcd, journal, fences, backup.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::TryStreamExt;
use leasehold::{Client, Code, Error};
use leasehold_core::coverage::Hole;

use super::finding::Finding;
use super::http_probe::within;
use super::metrics_page::MetricsPage;
use super::server_answers::ServerAnswers;
use crate::shell_text::quote;
use crate::table::format_duration;

/// The checks of this file.
const CHECKS: [&str; 4] = ["leader", "journal", "coverage", "backup"];
/// Age of a backup that needs attention: a nightly one that did not run.
const BACKUP_AGE: Duration = Duration::from_secs(36 * 3_600);
/// Most resources whose coverage is read.
const MAX_RESOURCES: usize = 200;
/// Share of the etcd quota, in percent, from which nothing new is granted.
const QUOTA_PERCENT: u64 = 90;

/// The findings if no server can be called.
pub fn not_checked() -> impl Iterator<Item = Finding> {
    CHECKS.into_iter().map(unreachable)
}

fn unreachable(check: &'static str) -> Finding {
    Finding::not_checked(check, "no server answers", "solve the problem of the connection, then run this again")
}

pub async fn check(client: &Client, answers: &[ServerAnswers], limit: Duration) -> Vec<Finding> {
    if answers.iter().all(|answer| answer.cluster.is_none()) {
        return not_checked().collect();
    }
    let (leader, has_leader) = leader(answers);
    let mut findings = vec![leader];
    findings.extend(addresses(answers));
    findings.extend(etcd(answers));
    if !has_leader {
        findings.extend(CHECKS[1..].iter().map(|check| {
            Finding::not_checked(check, "no leader answers", "solve the problem of the leader, then run this again")
        }));
        return findings;
    }
    findings.extend(quarantine(client, limit).await);
    let is_leader = |answer: &&ServerAnswers| {
        answer.cluster.as_ref().is_some_and(|cluster| cluster.role != "standby") && answer.metrics.is_some()
    };
    let metrics = answers.iter().find(is_leader).and_then(|answer| answer.metrics.as_ref());
    findings.push(journal(metrics));
    findings.push(coverage(client, limit).await);
    findings.push(backup(metrics));
    findings
}

/// Whether a server leads, and whether it answers.
fn leader(answers: &[ServerAnswers]) -> (Finding, bool) {
    const CHECK: &str = "leader";
    let clusters = || answers.iter().filter_map(|answer| Some((answer, answer.cluster.as_ref()?)));
    if let Some((answer, _)) = clusters().find(|(_, cluster)| matches!(cluster.role.as_str(), "leader" | "standalone"))
    {
        return (Finding::ok(CHECK, format!("{} leads", answer.address)), true);
    }
    match clusters().find_map(|(_, cluster)| cluster.leader.clone()) {
        Some(leader) => {
            let message = format!("{leader} leads, and is none of the servers that answered");
            (Finding::error(CHECK, message, "add it to --addr, or check its connection"), false)
        }
        None => {
            let message = "no server leads, so that nothing is granted or renewed";
            let next = "run leasehold cluster status; start a server, or restore the majority of etcd";
            (Finding::error(CHECK, message, next), false)
        }
    }
}

/// Servers that a client would not find when the others fail.
fn addresses(answers: &[ServerAnswers]) -> Option<Finding> {
    if answers.iter().any(|answer| answer.address.unix_path().is_some()) {
        return None;
    }
    let known = answers.iter().flat_map(|answer| {
        [Some(answer.address.to_string()), answer.cluster.as_ref().map(|cluster| cluster.address.clone())]
    });
    let known: Vec<String> = known.flatten().collect();
    let listed = answers.iter().filter_map(|answer| answer.cluster.as_ref()).flat_map(|cluster| &cluster.servers);
    let mut missing: Vec<_> = listed.filter(|address| !known.contains(address)).cloned().collect();
    missing.sort();
    missing.dedup();
    (!missing.is_empty()).then(|| {
        let message = format!("--addr lacks servers of the cluster: {}", missing.join(", "));
        Finding::warning("addresses", message, "list all servers, so that a client finds the next leader")
    })
}

fn etcd(answers: &[ServerAnswers]) -> Option<Finding> {
    const CHECK: &str = "etcd";
    let cluster =
        answers.iter().filter_map(|answer| answer.cluster.as_ref()).find(|cluster| !cluster.etcd.is_empty())?;
    let failing = cluster.etcd.iter().filter(|member| !member.healthy);
    let failing: Vec<_> = failing.map(|member| member.endpoint.clone()).collect();
    let percent = cluster.database_bytes.saturating_mul(100).checked_div(cluster.quota_bytes).unwrap_or(0);
    Some(if percent >= QUOTA_PERCENT {
        let message = format!("the database of etcd has used {percent} % of its quota");
        Finding::error(CHECK, message, "defragment etcd, or raise its quota")
    } else if failing.is_empty() {
        Finding::ok(CHECK, format!("all {} members are healthy", cluster.etcd.len()))
    } else {
        let message = format!("members of etcd do not respond or raise an alarm: {}", failing.join(", "));
        Finding::warning(CHECK, message, "run leasehold cluster status, and repair them before another one fails")
    })
}

async fn quarantine(client: &Client, limit: Duration) -> Option<Finding> {
    let status = within(limit, async { Ok(client.status().await) }).await.ok()?.ok()?;
    let remaining = status.quarantine_ms?;
    let message = format!("nothing is granted for another {}", format_duration(remaining));
    let next = "wait, or run leasehold quarantine waive when all earlier holders have stopped";
    Some(Finding::warning("quarantine", message, next))
}

const METRICS_NEXT: &str = "use an identity with the role observer for all resources";

fn journal(metrics: Option<&MetricsPage>) -> Finding {
    const CHECK: &str = "journal";
    match metrics.and_then(|page| page.value("leasehold_journal_reserve_only")) {
        Some(0.0) => Finding::ok(CHECK, "the journal has space"),
        Some(_) => Finding::error(
            CHECK,
            "the journal has space only for the ends of leases, so that nothing new is granted",
            "free space on the disk of the leader",
        ),
        None => Finding::not_checked(CHECK, "the leader does not show its metrics", METRICS_NEXT),
    }
}

fn backup(metrics: Option<&MetricsPage>) -> Finding {
    const CHECK: &str = "backup";
    let Some(taken) = metrics.and_then(|page| page.value("leasehold_last_backup_timestamp_seconds")) else {
        return Finding::not_checked(CHECK, "the leader does not show its metrics", METRICS_NEXT);
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    judge_backup(taken, now)
}

fn judge_backup(taken: f64, now: Duration) -> Finding {
    const CHECK: &str = "backup";
    const NEXT: &str = "run leasehold backup FILE every night, for example with leasehold-backup.timer";
    if taken <= 0.0 {
        return Finding::warning(CHECK, "the leader has sent no backup since its start", NEXT);
    }
    let age = (now.as_secs_f64() - taken).max(0.0);
    let message = format!("the last backup is {} old", format_duration((age * 1e3) as u64));
    if age > BACKUP_AGE.as_secs_f64() { Finding::warning(CHECK, message, NEXT) } else { Finding::ok(CHECK, message) }
}

/// What was found in the coverage of some resources.
#[derive(Default)]
struct Holes {
    resources: usize,
    has_more: bool,
    /// The number of holes, and the first resource that has one, by kind.
    kinds: BTreeMap<String, (usize, String)>,
}

async fn coverage(client: &Client, limit: Duration) -> Finding {
    const CHECK: &str = "coverage";
    match within(limit * 10, async { Ok(read_holes(client).await) }).await {
        Ok(Ok(holes)) => judge_holes(&holes),
        Ok(Err(error)) => {
            let next = match error.code() {
                Some(Code::PermissionDenied) => METRICS_NEXT,
                _ => error.next_step(),
            };
            Finding::not_checked(CHECK, format!("the coverage cannot be read: {}", error.message()), next)
        }
        Err(error) => {
            Finding::not_checked(CHECK, format!("the coverage cannot be read: {error}"), "pass a longer --timeout")
        }
    }
}

async fn read_holes(client: &Client) -> Result<Holes, Error> {
    let mut holes = Holes::default();
    let mut pages = client.list("");
    while let Some(page) = pages.try_next().await? {
        for resource in page.resources {
            if holes.resources == MAX_RESOURCES {
                holes.has_more = true;
                return Ok(holes);
            }
            let targets = match client.coverage(&resource.resource).await {
                Ok(coverage) => coverage.targets,
                // It was released in between.
                Err(error) if error.code() == Some(Code::NotFound) => continue,
                Err(error) => return Err(error),
            };
            holes.resources += 1;
            for hole in targets.into_iter().filter_map(|target| target.hole) {
                holes.kinds.entry(hole).or_insert_with(|| (0, resource.resource.clone())).0 += 1;
            }
        }
    }
    Ok(holes)
}

fn judge_holes(holes: &Holes) -> Finding {
    const CHECK: &str = "coverage";
    let of = match (holes.resources, holes.has_more) {
        (0, _) => "no resource has a lease or a waiter now".to_owned(),
        (count, true) => format!("among the first {count} resources"),
        (count, false) => format!("among {count} resources"),
    };
    let declared = |kind: &str| !matches!(Hole::from_word(kind), Some(Hole::NoTarget | Hole::Undeclared));
    let first = |is_declared: bool| holes.kinds.iter().find(|(kind, _)| declared(kind) == is_declared);
    let counts = holes.kinds.iter().map(|(kind, (count, _))| format!("{count} {kind}"));
    let message = format!("holes {of}: {}", counts.collect::<Vec<_>>().join(", "));
    let next = |resource: &str| format!("run leasehold coverage {}", quote(resource));
    match (first(true), first(false)) {
        (Some((_, (_, resource))), _) => Finding::error(CHECK, message, next(resource)),
        (None, Some((_, (_, resource)))) => {
            Finding::warning(CHECK, message, format!("{}, and declare targets in a charter", next(resource)))
        }
        (None, None) if holes.resources == 0 => Finding::ok(CHECK, of),
        (None, None) => Finding::ok(CHECK, format!("no holes {of}")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::FindingStatus;
    use super::*;

    #[test]
    fn an_old_backup_needs_attention() {
        let now = Duration::from_secs(1_000_000);
        let status = |taken: f64| judge_backup(taken, now).status;
        assert_eq!((status(0.0), status(999_999.0)), (FindingStatus::Warning, FindingStatus::Ok));
        let oldest = 1_000_000.0 - BACKUP_AGE.as_secs_f64();
        assert_eq!((status(oldest), status(oldest - 1.0)), (FindingStatus::Ok, FindingStatus::Warning));
    }

    #[test]
    fn a_declared_target_without_a_fence_is_an_error() {
        let holes = |kinds: &[&str]| {
            let kinds = kinds.iter().map(|kind| ((*kind).to_owned(), (1, "jobs/a b".to_owned()))).collect();
            judge_holes(&Holes { resources: 1, has_more: false, kinds })
        };
        assert_eq!(holes(&[]).status, FindingStatus::Ok);
        assert_eq!(holes(&["no_target"]).status, FindingStatus::Warning);
        assert_eq!(holes(&["undeclared", "weaker"]).status, FindingStatus::Error);
        assert_eq!(holes(&["of_the_future"]).status, FindingStatus::Error);
        assert_eq!(holes(&["weaker"]).next_step.as_deref(), Some("run leasehold coverage 'jobs/a b'"));
    }

    #[test]
    fn a_full_journal_is_an_error() {
        let page = |value: u8| MetricsPage::new(format!("leasehold_journal_reserve_only {value}\n"));
        assert_eq!(journal(Some(&page(0))).status, FindingStatus::Ok);
        assert_eq!(journal(Some(&page(1))).status, FindingStatus::Error);
        assert_eq!(journal(None).status, FindingStatus::NotChecked);
    }
}
