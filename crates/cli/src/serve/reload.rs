//! SIGHUP and changed files: reloads the configuration file and applies settings that can change at run time.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use leasehold_seal::wall_ms;
use leasehold_server::bearer::{BearerSettingsError, BearerVerifier};
use leasehold_server::sealing::TokenSealer;
use leasehold_server::transport::ConnectionLimit;
use leasehold_server::transport::RateLimit;
use leasehold_server::transport::tls::{TlsError, TlsHandle, TlsReload};

use super::access_rules::AccessRulesFile;
use super::log::LogLevelHandle;
use super::notify;
use super::settings::{ServeSettings, SettingsArgs};

/// Settings that change without a restart.
const RELOADABLE: [&str; 4] = ["max_connections", "max_request_rate", "max_request_rate_per_address", "log_level"];
/// Settings that change without a restart while TLS stays on.
const RELOADABLE_TLS: [&str; 4] = ["tls_cert", "tls_key", "client_ca", "client_crl"];

/// Everything that a reload needs.
pub struct Reload {
    flags: SettingsArgs,
    config: Option<PathBuf>,
    /// Settings in effect.
    settings: ServeSettings,
    level: LogLevelHandle,
    connection_limit: Arc<ConnectionLimit>,
    rate_limit: Arc<RateLimit>,
    tls: Option<Arc<TlsHandle>>,
    rules: Option<AccessRulesFile>,
    bearers: Option<Arc<BearerVerifier>>,
    sealer: Arc<TokenSealer>,
    /// Time between two looks at the times of files.
    pub file_check: Duration,
}

impl Reload {
    #[allow(clippy::too_many_arguments, reason = "everything that can change while serving")]
    pub fn new(
        flags: SettingsArgs,
        config: Option<PathBuf>,
        settings: ServeSettings,
        level: LogLevelHandle,
        (connection_limit, rate_limit): (Arc<ConnectionLimit>, Arc<RateLimit>),
        tls: Option<Arc<TlsHandle>>,
        (rules, sealer): (Option<AccessRulesFile>, Arc<TokenSealer>),
        file_check: u32,
    ) -> Self {
        let file_check = Duration::from_secs(file_check.max(1).into());
        let bearers = None;
        Self { flags, config, settings, level, connection_limit, rate_limit, tls, rules, bearers, sealer, file_check }
    }

    /// Reloads these bearer tokens too.
    #[must_use]
    pub fn with_bearers(self, bearers: Option<Arc<BearerVerifier>>) -> Self {
        Self { bearers, ..self }
    }

    /// Reloads the configuration file, the certificates, the bearer tokens and the access file. An invalid file changes nothing.
    pub fn run(&mut self) {
        notify::reloading();
        if let Some(rules) = &mut self.rules {
            rules.reload();
        }
        if let Some(bearers) = &self.bearers {
            log_bearers(bearers, &bearers.reload());
        }
        self.reload_seal_keys(true);
        match &self.config {
            None => {
                if self.tls.is_none() && self.rules.is_none() && self.bearers.is_none() {
                    tracing::info!("nothing to reload: started without --config");
                }
                self.reload_tls(None);
            }
            Some(path) => match ServeSettings::resolve(&self.flags, Some(path)) {
                Ok(settings) => self.apply(settings),
                Err(error) => tracing::warn!("reload failed, settings unchanged: {error}"),
            },
        }
        notify::ready("serving");
    }

    /// Reads files that changed since they were read last, and warns about certificates that end soon.
    pub fn look_at_files(&mut self) {
        if let Some(rules) = &mut self.rules {
            rules.reload_if_changed();
        }
        if let Some(bearers) = &self.bearers
            && let Some(result) = bearers.reload_if_changed()
        {
            log_bearers(bearers, &result);
        }
        self.reload_seal_keys(false);
        let Some(tls) = &self.tls else { return };
        if let Some(result) = tls.reload_if_changed() {
            log_tls(&result);
        }
        for warning in tls.expiry_warnings() {
            tracing::warn!("{warning}");
        }
    }

    /// Reads the seal keys again. Keys that cannot be used change nothing.
    fn reload_seal_keys(&self, requested: bool) {
        match self.sealer.reload() {
            Ok(true) => {
                let ring = self.sealer.ring();
                let signs = ring.signing_key(wall_ms()).map_or_else(|| "none".to_owned(), |key| key.kid().to_string());
                let stamp_keys = ring.stamp_keys().len();
                tracing::info!(keys = ring.keys().len(), signs, stamp_keys, "seal keys reloaded");
            }
            Ok(false) if requested => tracing::debug!("seal keys reloaded; nothing changed"),
            Ok(false) => {}
            Err(error) => tracing::warn!("seal keys unchanged, because they cannot be loaded: {error}"),
        }
    }

    /// Reads the certificates again, from other files if the settings changed. True if they are in effect.
    fn reload_tls(&self, new: Option<&ServeSettings>) -> bool {
        let Some(tls) = &self.tls else { return true };
        let mut settings = new.and_then(|new| new.access.tls.clone());
        if let Some(settings) = &mut settings {
            // Which tokens are accepted changes at a restart, and with it whether a certificate is required.
            settings.certificate_optional = self.bearers.is_some();
        }
        let result = tls.reload(settings);
        log_tls(&result);
        result.is_ok()
    }

    fn apply(&mut self, new: ServeSettings) {
        let (before, after) = (self.settings.entries(), new.entries());
        let changed = before.iter().zip(&after).filter(|(before, after)| before != after);
        let keeps_tls = self.settings.access.tls.is_some() == new.access.tls.is_some();
        let tls_loaded = keeps_tls && self.reload_tls(Some(&new));
        let changed = changed.filter(|((key, _), _)| tls_loaded || !keeps_tls || !RELOADABLE_TLS.contains(key));
        let is_applied = |key: &&str| RELOADABLE.contains(key) || (keeps_tls && RELOADABLE_TLS.contains(key));
        let (applied, deferred): (Vec<_>, Vec<_>) = changed.partition(|((key, _), _)| is_applied(key));
        self.connection_limit.resize(new.max_connections as usize);
        self.rate_limit.set(new.max_request_rate, new.max_request_rate_per_address);
        for ((key, before), (_, after)) in &applied {
            tracing::info!("{key} changed from {before} to {after}");
        }
        for ((key, before), (_, after)) in &deferred {
            match *key {
                "max_ttl" => {
                    tracing::warn!("max_ttl stays {before}; change it with: leasehold cluster set-max-ttl {after}")
                }
                _ => tracing::warn!("{key} stays {before}; restart the server to change it to {after}"),
            }
        }
        // The entry of `jwt` lists only the issuers.
        let (old, new_jwt) = (&self.settings.access.bearers.jwt, &new.access.bearers.jwt);
        let changes_jwt = old != new_jwt && !deferred.iter().any(|((key, _), _)| *key == "jwt");
        if changes_jwt {
            tracing::warn!("the audience and keys of [[jwt]] stay as they are; restart the server to change them");
        }
        // Other files, such as the access file, have lines of their own.
        if before == after && !changes_jwt {
            tracing::info!("configuration file reloaded; no setting changed");
        }
        // Last, because a lower level could suppress the lines above.
        self.level.set(new.log_level);
        // Deferred settings keep their old values here, so that the next reload reports them again.
        let mut settings = ServeSettings {
            max_connections: new.max_connections,
            max_request_rate: new.max_request_rate,
            max_request_rate_per_address: new.max_request_rate_per_address,
            log_level: new.log_level,
            ..self.settings.clone()
        };
        if tls_loaded {
            settings.access.tls = new.access.tls;
            if let Some(tls) = &mut settings.access.tls {
                tls.certificate_optional = self.bearers.is_some();
            }
        }
        self.settings = settings;
    }
}

fn log_bearers(bearers: &BearerVerifier, result: &Result<(), BearerSettingsError>) {
    match result {
        Ok(()) => tracing::info!(valid = bearers.valid_tokens(SystemTime::now()), "bearer tokens reloaded"),
        Err(error) => tracing::warn!("bearer tokens unchanged, because a file is invalid: {error}"),
    }
}

fn log_tls(result: &Result<TlsReload, TlsError>) {
    match result {
        Ok(TlsReload::Certificate) => tracing::info!("certificates reloaded"),
        Ok(TlsReload::Trust) => {
            tracing::info!(
                "certificates reloaded; open connections are verified again, because client_ca or client_crl changed"
            );
        }
        Err(error) => tracing::warn!("certificates unchanged, because they cannot be loaded: {error}"),
    }
}
