//! `leasehold acquire`: acquires a lease, immediately or after a wait.

use std::path::PathBuf;
use std::time::Duration;

use leasehold::duration::HumanDuration;
use leasehold::json::GrantBody;
use leasehold::{Client, Code, Error, GrantedLease, HeldLease};
use leasehold_core::command::{Acquire, AcquireOptions};
use leasehold_core::lease::Access;
use tokio::signal::unix::{SignalKind, signal};

use super::secret_arg::SecretFile;
use crate::global_args::GlobalArgs;
use crate::output::{CommandError, CommandOutput, CommandResult};
use crate::table::{format_duration, key_values, or_dash};

/// Acquire a lease and print its token
///
/// The token proves the grant to fences. Renew the lease with `leasehold renew` before its ttl ends, and return it with
/// `leasehold release`. With --wait, the command continues at the next leader when the leader fails; pass the addresses of all
/// servers. Without --wait it does not retry: after exit code 5 (outcome unknown), run `leasehold show RESOURCE` first.
///
/// A server with access rules requires the secret of the lease for every later command about it. Set LEASEHOLD_SECRET_FILE, or pass
/// --secret-file to each command.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  leasehold acquire jobs/settle --holder worker-1 --ttl 30s --wait 5s\n  \
                        TOKEN=$(leasehold acquire jobs/settle --holder worker-1 --ttl 30s --quiet)")]
pub struct Args {
    /// Resource to acquire
    resource: String,
    /// Name shown to others as the holder
    #[arg(long, value_name = "NAME")]
    holder: String,
    /// Time until the lease expires unless renewed, for example 30s
    #[arg(long, value_name = "DURATION")]
    ttl: HumanDuration,
    /// Wait this long if the lease is held; fail immediately if omitted
    #[arg(long, value_name = "DURATION")]
    wait: Option<HumanDuration>,
    /// Acquire a shared (read) lease
    #[arg(long, group = "access")]
    shared: bool,
    /// Acquire one of N numbered slots
    #[arg(long, group = "access", value_name = "N")]
    slots: Option<u32>,
    /// Reserve N units of the resource's capacity
    #[arg(long, group = "access", value_name = "N")]
    units: Option<u32>,
    /// Waiters with a higher priority are served first
    #[arg(long, value_name = "0-255", default_value_t = AcquireOptions::DEFAULT_PRIORITY)]
    priority: u8,
    /// Write the secret of the lease to this file, mode 0600, instead of printing it; renew and release read it there
    #[arg(long, env = "LEASEHOLD_SECRET_FILE", value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// Print only the token; where the server has access rules, with --secret-file, because the secret is not printed
    #[arg(long, short, conflicts_with_all = ["json", "output"])]
    quiet: bool,
}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    let access = match (args.shared, args.slots, args.units) {
        (true, ..) => Access::Shared,
        (_, Some(_), _) => Access::Slot,
        (_, _, Some(units)) => Access::Units(units),
        _ => Access::Exclusive,
    };
    let wait_ms = args.wait.map_or(0, HumanDuration::millis);
    let acquire = Acquire {
        access,
        slots: args.slots,
        options: AcquireOptions { wait_ms, priority: args.priority, ..AcquireOptions::DEFAULT },
        ..Acquire::exclusive(&args.resource, &args.holder, args.ttl.millis())
    };
    let secret_file = args.secret_file.as_deref().map(SecretFile::prepare).transpose()?;
    let is_hidden = secret_file.is_some();
    let granted = global.with_client(async |client| {
        let granted = acquire_or_cancel(&client, &acquire).await?;
        keep_secret(&client, &granted, secret_file, args.quiet).await?;
        Ok(granted)
    })?;
    let mut grant = granted.body();
    if is_hidden {
        grant.secret = None;
    }
    if args.quiet {
        return Ok(CommandOutput::from(grant.token));
    }
    Ok(global.output(&grant, || grant_text(&grant)))
}

/// Writes the secret of a granted lease. If that fails, or if the secret would be dropped, no one could act on the lease, so it is
/// released.
async fn keep_secret(
    client: &Client,
    granted: &GrantedLease,
    file: Option<SecretFile>,
    is_quiet: bool,
) -> Result<(), CommandError> {
    let Some(secret) = granted.secret() else { return Ok(()) };
    let kept = match file {
        Some(file) => file.write(secret),
        None if is_quiet && granted.is_secret_required() => {
            let message = "this server has access rules, so later commands need the secret of the lease, which --quiet does not \
                           print; pass --secret-file FILE or set LEASEHOLD_SECRET_FILE; the lease is released";
            Err(Error::config("secret_file", message).into())
        }
        None => Ok(()),
    };
    let Err(error) = kept else { return Ok(()) };
    let held = HeldLease::new(granted.resource(), granted.token());
    // If this fails too, the lease ends with its ttl.
    let _ = client.with_lease_secret(secret).release(&held).await;
    Err(error)
}

/// Acquires the lease. An interrupt withdraws the wait, so that the lease is not granted to a process that has ended.
async fn acquire_or_cancel(client: &Client, acquire: &Acquire<'_>) -> Result<GrantedLease, Error> {
    let signals = [SignalKind::interrupt(), SignalKind::terminate()].map(signal);
    let [Ok(mut interrupt), Ok(mut terminate)] = signals else { return client.acquire(acquire).await };
    tokio::select! {
        granted = client.acquire(acquire) => return granted,
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    // The dropped call withdraws its wait in the background.
    tokio::time::sleep(WITHDRAW_TIME).await;
    Err(Error::new(Code::Cancelled, "interrupted; the wait is withdrawn"))
}

/// Time for a wait to be withdrawn after an interrupt.
const WITHDRAW_TIME: Duration = Duration::from_millis(500);

fn grant_text(grant: &GrantBody) -> String {
    let mut lines = vec![
        ("resource", grant.resource.clone()),
        ("holder", grant.holder.clone()),
        ("lease", grant.lease.clone()),
        ("token", grant.token.clone()),
        ("number", grant.token_number.clone()),
        ("slot", or_dash(grant.slot)),
        ("ttl", format_duration(grant.ttl_ms)),
        ("remaining", format_duration(grant.remaining_ms)),
        ("validity", grant.validity.clone()),
    ];
    if let Some(secret) = &grant.secret {
        lines.push(("secret", secret.clone()));
    }
    for (target, token) in &grant.stamped_tokens {
        lines.push(("stamped", format!("{target} {token}")));
    }
    if let Some(ms) = grant.overlaps_ms {
        lines.push(("overlap", format!("the predecessor drains for {}", format_duration(ms))));
    }
    key_values(&lines)
}
