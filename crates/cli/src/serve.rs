//! `leasehold serve`: runs a server on a local journal, or as one of several servers on etcd.

mod access_rules;
mod access_settings;
mod byte_size;
mod collector;
mod etcd_cluster;
mod etcd_credentials;
mod hardening;
mod journal_url;
pub mod log;
mod malloc;
pub mod notify;
mod parsers;
mod reload;
pub mod settings;

use std::path::PathBuf;
use std::sync::Arc;

use leasehold::Error;
use leasehold_server::driver::StopReason;
use leasehold_server::journal::JournalLocation;
use leasehold_server::journal::file::{Directory, FileOptions, SEGMENT_BYTES};
use leasehold_server::journal::memory::Memory;
use leasehold_server::server::{ServerConfig, ServerError, ServerHandle, start};
use leasehold_server::transport::{ListenError, TransportLimits};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::output::{CommandError, CommandOutput, CommandResult, error_with_code};
use crate::table::format_duration;
use byte_size::ByteSize;
use journal_url::JournalUrl;
use log::LogLevelHandle;
use parsers::parse_segment_size;
pub use parsers::{parse_host_name, parse_listen, parse_max_ttl};
use reload::Reload;
use settings::{ServeSettings, SettingsArgs};

/// Serve leases over gRPC and HTTP
///
/// Every reply is durable before it is sent. SIGTERM or Ctrl-C stops the server after it has answered accepted requests.
/// On loopback the server is plain, unless --tls-cert is set: then every caller on the network proves its identity with a
/// certificate or, with --bearers, a bearer token. On this machine callers can also use the unix socket, and are identified
/// by their user id.
///
/// Every option can also be set in a configuration file (--config), with `_` for `-`. Flags override the file; the file
/// overrides the defaults. SIGHUP reloads the file.
///
/// With --journal etcd://… several servers share one journal: one leads, the others are standbys, and one of them takes
/// over when the leader fails. On SIGTERM the leader hands leadership over first.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  leasehold serve --listen 127.0.0.1:7421 --data /var/lib/leasehold\n  \
                        leasehold serve --listen 0.0.0.0:7421 --tls-cert server.pem --tls-key server.key \\\n    \
                        --client-ca example.com=clients.pem --access access.toml\n  \
                        leasehold serve --journal etcd://h1:2379,h2:2379,h3:2379/leasehold --advertise lease-1:7421")]
pub struct Args {
    /// Configuration file, in TOML
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Store nothing on disk; same as --journal memory
    #[arg(long, conflicts_with_all = ["data", "journal"])]
    ephemeral: bool,
    /// Size of a log segment. For tests only: small segments also shrink the reserve for a full disk
    #[arg(long, value_name = "SIZE", hide = true, value_parser = parse_segment_size)]
    segment_bytes: Option<ByteSize>,
    /// Seconds between two looks at the times of certificate and access files. For tests
    #[arg(long, value_name = "SECONDS", hide = true, default_value_t = 60)]
    file_check: u32,
    /// Seconds that the leader key outlives its server. For tests on busy machines
    #[arg(long, value_name = "SECONDS", hide = true, default_value_t = 1)]
    etcd_lease: u32,
    #[command(flatten)]
    settings: SettingsArgs,
}

pub fn run(args: &Args) -> CommandResult {
    malloc::tune_by_reexec();
    let mut flags = args.settings.clone();
    if args.ephemeral {
        flags.journal = Some(JournalUrl::Memory);
    }
    let settings = ServeSettings::resolve(&flags, args.config.as_deref())?;
    let level = log::init(settings.log_format, settings.log_level).map_err(CommandError::Other)?;
    if settings.access.keys.directory().is_some() {
        hardening::forbid_core_dumps();
    }
    let runtime = tokio::runtime::Runtime::new();
    let runtime = runtime.map_err(|error| CommandError::Other(format!("cannot start the runtime: {error}")))?;
    runtime.block_on(async {
        notify::start_watchdog();
        match &settings.journal {
            JournalUrl::File => {
                let segment_bytes = args.segment_bytes.map_or(SEGMENT_BYTES, |size| size.0);
                let options =
                    FileOptions { accept_copy: settings.accept_copy, segment_bytes, ..FileOptions::default() };
                let location = Directory { path: settings.data.clone(), options };
                serve(location, flags, args.config.clone(), settings, level, args.file_check).await
            }
            JournalUrl::Memory => {
                serve(Memory::new(), flags, args.config.clone(), settings, level, args.file_check).await
            }
            JournalUrl::Etcd { .. } => {
                etcd_cluster::serve(flags, args.config.clone(), settings, level, args.etcd_lease, args.file_check).await
            }
        }
    })
}

async fn serve<L>(
    location: L,
    flags: SettingsArgs,
    config: Option<PathBuf>,
    settings: ServeSettings,
    level: LogLevelHandle,
    file_check: u32,
) -> CommandResult
where
    L: JournalLocation,
    L::Journal: 'static,
{
    // Before the server announces itself: an unhandled signal would end the process.
    let signals = ServeSignals::listen();
    let (access, rules) = access_rules::load(settings.access.access.as_deref())?;
    let bearers = settings.access.load_bearers()?;
    let sealer = Arc::new(settings.access.sealer()?);
    let collector = settings.collector.load()?;
    let config_of_server = ServerConfig {
        access,
        bearers: bearers.clone(),
        sealer: sealer.clone(),
        collector,
        ..server_config(&settings)
    };
    let running = start(location, config_of_server).await.map_err(|error| start_error(&error))?;
    log_start(&running, &settings);
    let limits = (running.connection_limit.clone(), running.rate_limit.clone());
    let reload = Reload::new(flags, config, settings, level, limits, running.tls.clone(), (rules, sealer), file_check);
    let reload = reload.with_bearers(bearers);
    notify::ready(&format!("serving on {}", running.address));
    stop_result(running.run_until(signals.wait_for_stop(reload)).await)
}

fn stop_result(reason: StopReason) -> CommandResult {
    match reason {
        StopReason::Requested => {
            tracing::info!("stopped");
            Ok(CommandOutput::EMPTY)
        }
        StopReason::Fenced | StopReason::SteppedDown => {
            Err(CommandError::Other("another server took over the journal; this server stopped".to_owned()))
        }
        StopReason::Failed(fault) => Err(error_with_code(fault.code(), &fault)),
    }
}

fn server_config(settings: &ServeSettings) -> ServerConfig {
    ServerConfig {
        listen: settings.listen,
        insecure_listen: settings.insecure_listen,
        tls: settings.access.tls.clone(),
        socket: settings.access.socket.clone(),
        keys: settings.access.keys.clone(),
        // Other servers send clients to the advertised address.
        allowed_hosts: settings
            .allowed_hosts
            .iter()
            .cloned()
            .chain(settings.advertise.iter().map(ToString::to_string))
            .collect(),
        max_ttl_ms: settings.max_ttl_is_set.then(|| settings.max_ttl.millis()),
        limits: TransportLimits {
            connections: settings.max_connections as usize,
            request_rate: settings.max_request_rate,
            address_request_rate: settings.max_request_rate_per_address,
            ..TransportLimits::default()
        },
        snapshots: settings.snapshot_config(),
        ..ServerConfig::default()
    }
}

/// Logs the start and its warnings.
fn log_start(running: &ServerHandle, settings: &ServeSettings) {
    for warning in &running.warnings {
        tracing::warn!("{warning}");
    }
    // Leases were granted under the cluster's own max_ttl, so a start does not change it. A refusal to start would turn a line in a
    // file into an outage.
    if settings.max_ttl_is_set && running.max_ttl_ms != settings.max_ttl.millis() {
        tracing::warn!(
            "max_ttl stays {}; change it with leasehold cluster set-max-ttl, or correct the setting",
            format_duration(running.max_ttl_ms)
        );
    }
    if settings.access.tls.is_none() && !settings.listen.ip().is_loopback() {
        tracing::warn!("reachable from other machines without TLS; callers are anonymous");
    }
    if let Some(collector) = &settings.collector.endpoint {
        tracing::info!("exporting spans to {collector}");
    }
    if let Some(socket) = &running.socket {
        tracing::info!("listening on the unix socket {}", socket.display());
    }
    let journal = match &settings.journal {
        JournalUrl::File => settings.data.display().to_string(),
        JournalUrl::Memory => "in memory".to_owned(),
        etcd @ JournalUrl::Etcd { .. } => etcd.to_string(),
    };
    let advertised =
        settings.advertise.as_ref().map(|address| format!(", advertised as {address}")).unwrap_or_default();
    let tls = if settings.access.tls.is_some() { ", TLS 1.3" } else { "" };
    tracing::info!(
        "serving on {}{tls}, journal {journal}, cluster {}{advertised}",
        running.address,
        running.issuer.cluster
    );
}

/// Adds the name of the flag to an error that a setting can resolve.
fn start_error(error: &ServerError) -> CommandError {
    let with_flag = |flag: &str| error_with_code("CONFIG", &format!("{error} ({flag})"));
    match error {
        ServerError::Listen(ListenError::Bind { .. }) => with_flag("--listen"),
        ServerError::Journal(error) => error_with_code(error.code(), error),
        ServerError::Tenure(_) | ServerError::Listen(ListenError::Insecure { .. }) => error_with_code("CONFIG", error),
        ServerError::Listen(ListenError::Socket(error)) => Error::config("socket", error.to_string()).into(),
        ServerError::Tls(error) => access_settings::tls_error(error).into(),
        ServerError::Keys(error) => access_settings::key_error(error).into(),
        ServerError::Append(fault) => error_with_code(fault.code(), fault),
        ServerError::Fenced => CommandError::Other(error.to_string()),
    }
}

/// Signals that the server handles.
struct ServeSignals {
    term: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl ServeSignals {
    fn listen() -> Self {
        let handler = |kind| signal(kind).expect("a signal handler can be installed");
        Self {
            term: handler(SignalKind::terminate()),
            interrupt: handler(SignalKind::interrupt()),
            hang_up: handler(SignalKind::hangup()),
        }
    }

    /// Waits for SIGTERM or Ctrl-C. Until then, SIGHUP reloads the settings, and changed files are read again.
    async fn wait_for_stop(mut self, mut reload: Reload) {
        let mut look = tokio::time::interval(reload.file_check);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = look.tick() => reload.look_at_files(),
                _ = self.term.recv() => break,
                _ = self.interrupt.recv() => break,
                _ = self.hang_up.recv() => reload.run(),
            }
        }
        tracing::info!("stopping after accepted requests are answered");
        notify::stopping();
    }
}
