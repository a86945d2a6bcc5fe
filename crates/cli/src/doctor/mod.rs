//! `leasehold doctor`: checks what leases depend on, on this machine and at the servers, and names the next step for each problem.
//!
//! Checks of the machine run without a server. A check that cannot be made is reported as such, and never as passed.

mod certificates;
mod clocks;
mod cluster_checks;
mod configuration;
mod data_directory;
mod finding;
mod http_probe;
mod limits;
mod metrics_page;
mod server_answers;
mod servers;

use std::path::PathBuf;
use std::time::Duration;

use leasehold::duration::HumanDuration;
use serde_json::json;

use crate::global_args::GlobalArgs;
use crate::output::{CommandError, CommandResult};
use crate::serve::settings::ServeSettings;
use crate::styled_text::{Style, StyledText};
use finding::{Finding, FindingStatus};

/// Check clocks, disk, limits, servers and fences
///
/// Each problem has a next step. Run it where a server or a holder runs, and as the same user. Without options it checks the
/// clocks and limits of this machine and the servers of --addr. --config also checks the configuration of a server, its data
/// directory and its certificates.
///
/// Each line is ok, warning, error or not checked. The exit code is 8 if there is an error. To measure the disk, it writes a
/// temporary file of 4 KiB to the data directory.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  leasehold doctor\n  leasehold doctor --config /etc/leasehold/leasehold.toml\n  \
                        leasehold --as admin doctor -o json")]
pub struct Args {
    /// Configuration file of `leasehold serve` to check, with its files
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Data directory to check [default: that of --config]
    #[arg(long, value_name = "DIRECTORY")]
    data: Option<PathBuf>,
    /// Process whose limits are checked, for example that of the server [default: this process]
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pid: Option<u32>,
    /// Longest time for each step of a connection
    #[arg(long, value_name = "DURATION", default_value = "5s")]
    timeout: HumanDuration,
}

/// Exit code if there is an error.
const EXIT_ERROR: u8 = 8;

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    let mut findings = clocks::check();
    let settings = args.config.as_deref().map(configuration::check);
    let settings: Option<ServeSettings> = settings.and_then(|(found, settings)| {
        findings.extend(found);
        settings
    });
    let data = args.data.clone().or_else(|| settings.as_ref().and_then(configuration::data_directory));
    findings.extend(data_directory::check(data.as_deref(), settings.as_ref()));
    findings.extend(limits::check(args.pid, settings.as_ref()));
    let timeout = Duration::from_millis(args.timeout.millis());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| CommandError::Other(format!("cannot start the runtime: {error}")))?;
    let of_servers = runtime.block_on(servers::check(global, timeout));
    // A name that is still being resolved must not delay the result.
    runtime.shutdown_background();
    findings.extend(certificates::check_client(global));
    findings.extend(of_servers?);

    let count = |status| findings.iter().filter(|finding| finding.status == status).count();
    let (errors, warnings) = (count(FindingStatus::Error), count(FindingStatus::Warning));
    let not_checked = count(FindingStatus::NotChecked);
    let body = json!({
        "checks": findings.iter().map(Finding::body).collect::<Vec<_>>(),
        "errors": errors,
        "warnings": warnings,
        "not_checked": not_checked,
    });
    let output = global.output(&body, || findings_text(&findings));
    let plural = |count: usize, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
    let summary = format!("{}, {}, {not_checked} not checked", plural(errors, "error"), plural(warnings, "warning"));
    let output = output.with_note(global.format().is_text().then_some(summary));
    Ok(if errors > 0 { output.with_exit(EXIT_ERROR) } else { output })
}

/// One line for each finding.
fn findings_text(findings: &[Finding]) -> StyledText {
    let width = findings.iter().map(|finding| finding.title().chars().count()).max().unwrap_or(0);
    let line = |finding: &Finding| {
        let style = match finding.status {
            FindingStatus::Ok => Style::Good,
            FindingStatus::Warning => Style::Warning,
            FindingStatus::Error => Style::Bad,
            FindingStatus::NotChecked => Style::Dim,
        };
        let status = StyledText::styled(&format!("{:<11}", finding.status.label()), Some(style));
        let next = finding.next_step.as_ref().map(|next| format!("; {next}")).unwrap_or_default();
        let text = format!("  {:<width$}  {}{next}", finding.title(), finding.message);
        StyledText::join([status, StyledText::styled(&text, None)], "")
    };
    StyledText::join(findings.iter().map(line), "\n")
}
