//! SIGHUP: reloads the configuration file and applies settings that can change at run time.

use std::path::PathBuf;
use std::sync::Arc;

use leasehold_server::transport::ConnectionLimit;
use leasehold_server::transport::RateLimit;

use super::log::LogLevelHandle;
use super::notify;
use super::settings::{ServeSettings, SettingsArgs};

/// Settings that change without a restart.
const RELOADABLE: [&str; 4] = ["max_connections", "max_request_rate", "max_request_rate_per_address", "log_level"];

/// Everything that a reload needs.
pub struct Reload {
    pub flags: SettingsArgs,
    pub config: Option<PathBuf>,
    /// Settings in effect.
    pub settings: ServeSettings,
    pub level: LogLevelHandle,
    pub connection_limit: Arc<ConnectionLimit>,
    pub rate_limit: Arc<RateLimit>,
}

impl Reload {
    /// Reloads the file. An invalid file changes nothing.
    pub fn run(&mut self) {
        notify::reloading();
        match &self.config {
            None => tracing::info!("nothing to reload: started without --config"),
            Some(path) => match ServeSettings::resolve(&self.flags, Some(path)) {
                Ok(settings) => self.apply(settings),
                Err(error) => tracing::warn!("reload failed, settings unchanged: {error}"),
            },
        }
        notify::ready("serving");
    }

    fn apply(&mut self, new: ServeSettings) {
        let (before, after) = (self.settings.entries(), new.entries());
        let changed = before.iter().zip(&after).filter(|(before, after)| before != after);
        let (applied, deferred): (Vec<_>, Vec<_>) = changed.partition(|((key, _), _)| RELOADABLE.contains(key));
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
        if applied.is_empty() && deferred.is_empty() {
            tracing::info!("settings reloaded; nothing changed");
        }
        // Last, because a lower level could suppress the lines above.
        self.level.set(new.log_level);
        // Deferred settings keep their old values here, so that the next reload reports them again.
        self.settings = ServeSettings {
            max_connections: new.max_connections,
            max_request_rate: new.max_request_rate,
            max_request_rate_per_address: new.max_request_rate_per_address,
            log_level: new.log_level,
            ..self.settings.clone()
        };
    }
}
