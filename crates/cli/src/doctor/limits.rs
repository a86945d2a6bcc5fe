//! Limits of the kernel for a process: open files, core dumps and processes.

use std::fs;

use leasehold_server::server::ServerConfig;

use super::finding::Finding;
use crate::serve::settings::ServeSettings;

/// Files that a server opens besides its connections.
const OWN_FILES: u64 = 200;
/// Files with which nothing works.
const FEW_FILES: u64 = 128;
/// Processes that a server or a holder may start as threads.
const FEW_PROCESSES: u64 = 256;

pub fn check(pid: Option<u32>, settings: Option<&ServeSettings>) -> Vec<Finding> {
    let (of, path) = match pid {
        Some(pid) => (format!("process {pid}"), format!("/proc/{pid}/limits")),
        None => ("this process".to_owned(), "/proc/self/limits".to_owned()),
    };
    let connections = match settings {
        Some(settings) => u64::from(settings.max_connections),
        None => ServerConfig::default().limits.connections as u64,
    };
    let page = match fs::read_to_string(&path) {
        Ok(page) => page,
        Err(error) => {
            let message = format!("cannot read {path}: {error}");
            let next = "pass --pid of a process that runs, as its user";
            return CHECKS.map(|(check, _)| Finding::not_checked(check, message.clone(), next).about(&of)).to_vec();
        }
    };
    let limits = CHECKS.map(|(check, name)| (check, soft_limit(&page, name)));
    let judged = limits.map(|(check, limit)| match limit {
        Some(limit) => judge(check, limit, connections),
        None => Finding::not_checked(check, format!("{path} does not show this limit"), "update the kernel"),
    });
    judged.map(|finding| finding.about(&of)).to_vec()
}

/// The checks, and the names of their limits.
const CHECKS: [(&str, &str); 3] =
    [("open_files", "Max open files"), ("core_dumps", "Max core file size"), ("processes", "Max processes")];

/// The limit that applies; the highest number if there is none.
fn soft_limit(page: &str, name: &str) -> Option<u64> {
    let value = page.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?;
    if value == "unlimited" { Some(u64::MAX) } else { value.parse().ok() }
}

fn judge(check: &'static str, limit: u64, connections: u64) -> Finding {
    let shown = if limit == u64::MAX { "unlimited".to_owned() } else { limit.to_string() };
    match check {
        "open_files" => {
            let needed = connections + OWN_FILES;
            let message = format!("{shown} open files");
            let next = format!("set LimitNOFILE={needed} in the unit, or ulimit -n {needed}");
            if limit < FEW_FILES {
                Finding::error(check, message, next)
            } else if limit < needed {
                Finding::warning(check, format!("{message}, and a server accepts {connections} connections"), next)
            } else {
                Finding::ok(check, message)
            }
        }
        "core_dumps" if limit > 0 => {
            let message = "a core file may be written, with the tokens and secrets of leases in it";
            Finding::warning(check, message, "set LimitCORE=0 in the unit, or ulimit -c 0")
        }
        "core_dumps" => Finding::ok(check, "no core file is written"),
        _ if limit < FEW_PROCESSES => {
            let message = format!("{shown} processes and threads of this user");
            Finding::warning(check, message, "set LimitNPROC=4096 in the unit, or ulimit -u 4096")
        }
        _ => Finding::ok(check, format!("{shown} processes and threads of this user")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::FindingStatus;
    use super::*;

    const PAGE: &str = "\
Limit                     Soft Limit           Hard Limit           Units
Max core file size        0                    unlimited            bytes
Max processes             unlimited            unlimited            processes
Max open files            1024                 524288               files
";

    #[test]
    fn the_soft_limit_applies() {
        assert_eq!(soft_limit(PAGE, "Max open files"), Some(1_024));
        assert_eq!(soft_limit(PAGE, "Max processes"), Some(u64::MAX));
        assert_eq!(soft_limit(PAGE, "Max realtime priority"), None);
    }

    #[test]
    fn limits_are_judged_by_what_a_server_uses() {
        let status = |check, limit| judge(check, limit, 1_000).status;
        assert_eq!(status("open_files", 1_200), FindingStatus::Ok);
        assert_eq!(status("open_files", 1_199), FindingStatus::Warning);
        assert_eq!(status("open_files", 127), FindingStatus::Error);
        assert_eq!((status("core_dumps", 0), status("core_dumps", 1)), (FindingStatus::Ok, FindingStatus::Warning));
        assert_eq!((status("processes", 256), status("processes", 255)), (FindingStatus::Ok, FindingStatus::Warning));
    }
}
