//! `leasehold serve --journal etcd://…`: runs one of several servers that share a journal in etcd.

use std::path::PathBuf;
use std::sync::Arc;

use leasehold::Error;
use leasehold_core::lease::Validity;
use leasehold_server::cluster;
use leasehold_server::driver::StopReason;
use leasehold_server::journal::etcd::EtcdLocation;
use leasehold_server::server::ServerConfig;
use leasehold_server::status::ServerRole;

use super::access_rules;
use super::journal_url::JournalUrl;
use super::log::LogLevelHandle;
use super::reload::Reload;
use super::settings::{ServeSettings, SettingsArgs};
use super::{ServeSignals, log_start, notify, server_config, start_error, stop_result};
use crate::output::{CommandResult, error_with_code};

/// Runs a server that leads or stands by until a signal stops it.
pub async fn serve(
    flags: SettingsArgs,
    config: Option<PathBuf>,
    settings: ServeSettings,
    level: LogLevelHandle,
    lease_seconds: u32,
    file_check: u32,
) -> CommandResult {
    let JournalUrl::Etcd { endpoints, prefix } = &settings.journal else { unreachable!("the caller matched on etcd") };
    if settings.advertise.is_none() && settings.listen.ip().is_unspecified() {
        let message = "advertise is required when a cluster server listens on all addresses; set it to an address that \
                       clients can reach";
        return Err(Error::config("advertise", message).into());
    }
    let endpoints = settings.etcd.read(endpoints)?;
    let signals = ServeSignals::listen();
    let (access, rules) = access_rules::load(settings.access.access.as_deref())?;
    let bearers = settings.access.load_bearers()?;
    let sealer = Arc::new(settings.access.sealer()?);
    let server = ServerConfig {
        validity: Validity::Quorum,
        access,
        bearers: bearers.clone(),
        sealer: sealer.clone(),
        collector: settings.collector.load()?,
        ..server_config(&settings)
    };
    let listener = server.bind().await.map_err(|error| start_error(&error))?;
    let address = settings.advertise.as_ref().map_or_else(|| listener.address.to_string(), ToString::to_string);
    let location = EtcdLocation::new(endpoints, prefix, &address, &settings.data);
    let location = location.map_err(|error| error_with_code(error.code(), &error))?;
    let location = location.with_quota(settings.etcd.quota.0);
    let location = location.with_accept_restored(settings.accept_restored).with_lease(lease_seconds);
    let location = location.with_insecure(settings.etcd.insecure);
    let limits = (listener.connection_limit.clone(), listener.rate_limit.clone());
    let started_with = settings.clone();
    let at = listener.address;
    let mut on_role = move |role: ServerRole, running: Option<&_>| match (role, running) {
        (ServerRole::Leader, Some(running)) => {
            log_start(running, &started_with);
            notify::ready(&format!("leading on {at}"));
        }
        _ => {
            tracing::info!("standing by on {at}, journal {}", started_with.journal);
            notify::ready(&format!("standing by on {at}"));
        }
    };
    let tls = listener.tls.clone();
    let reload = Reload::new(flags, config, settings, level, limits, tls, (rules, sealer), file_check);
    let reload = reload.with_bearers(bearers);
    let stopped = cluster::serve(&location, &listener, &server, &mut on_role, signals.wait_for_stop(reload)).await;
    match stopped.map_err(|error| start_error(&error))? {
        StopReason::Fenced | StopReason::SteppedDown => unreachable!("a deposed server stands by and does not stop"),
        reason => stop_result(reason),
    }
}
