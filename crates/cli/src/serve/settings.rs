//! How a server is set up: by flags, by a file, by default, in this order.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use leasehold::duration::Lasting;
use leasehold::{Address, Error};
use leasehold_core::limits::TTL_MAX_DEFAULT;
use leasehold_server::journal::etcd::QUOTA;
use leasehold_server::keep::Keep;
use leasehold_server::server::Settings;
use leasehold_server::trail::Retention;

use super::kept::{EntryFiles, Kept};
use super::log::{Format, Words};
use super::size::Size;
use super::spelled::{
    BATCHES_MOST, CONNECTIONS_MOST, RATE_MOST, advertised, batches, counted, log_size, longest_ttl, quota_size, rated,
    spelled, spelled_address, spelled_age, spelled_log_size, spelled_quota_size, spelled_trail_size, spelled_ttl,
    trail_age, trail_size,
};
use crate::file;

/// What may be given, as a flag or as a key of a file: one list for both.
#[derive(Clone, Debug, Default, PartialEq, clap::Args, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Given {
    /// Where to listen [default: 127.0.0.1:7421]
    #[arg(long, value_name = "ADDRESS")]
    #[serde(deserialize_with = "spelled")]
    pub listen: Option<SocketAddr>,
    /// Where others reach this server, HOST:PORT, if not where it listens
    #[arg(long, value_name = "ADDRESS", value_parser = advertised)]
    #[serde(deserialize_with = "spelled_address")]
    pub advertise: Option<Address>,
    /// Listen beyond this machine although there is no TLS
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub insecure_listen: Option<bool>,
    /// Where facts are kept: file, memory or etcd://HOST:PORT[,HOST:PORT...]/PREFIX [default: file]
    #[arg(long, value_name = "JOURNAL")]
    #[serde(deserialize_with = "spelled")]
    pub journal: Option<Kept>,
    /// The directory of the file journal, or of what a server on etcd keeps for itself; created if its parent is there
    /// [default: ./leasehold-data]
    #[arg(long, value_name = "DIRECTORY")]
    pub data: Option<PathBuf>,
    /// The directory was copied or moved here, and the original will never run again
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub accept_copy: Option<bool>,
    /// etcd was set back to a snapshot: begin a new life of the cluster from what is left
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub accept_restored: Option<bool>,
    /// Who this server is to etcd, if etcd asks
    #[arg(long, value_name = "NAME")]
    pub etcd_user: Option<String>,
    /// The file with that user's password
    #[arg(long, value_name = "FILE")]
    pub etcd_password_file: Option<PathBuf>,
    /// Whom to trust to be etcd, PEM; with it the connection is encrypted
    #[arg(long, value_name = "FILE")]
    pub etcd_ca: Option<PathBuf>,
    /// This server's own certificate for etcd, PEM
    #[arg(long, value_name = "FILE")]
    pub etcd_cert: Option<PathBuf>,
    /// The key of that certificate, PEM
    #[arg(long, value_name = "FILE")]
    pub etcd_key: Option<PathBuf>,
    /// How large etcd's database may become, where etcd does not say so itself [default: 2GiB]
    #[arg(long, value_name = "SIZE", value_parser = quota_size)]
    #[serde(deserialize_with = "spelled_quota_size")]
    pub etcd_quota: Option<Size>,
    /// The longest ttl of a new cluster, for good [default: 10m]
    #[arg(long, value_name = "DURATION", value_parser = longest_ttl)]
    #[serde(deserialize_with = "spelled_ttl")]
    pub max_ttl: Option<Lasting>,
    /// Connections that may be open at the same time [default: 10000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=CONNECTIONS_MOST))]
    #[serde(deserialize_with = "counted")]
    pub connections: Option<u32>,
    /// Requests a second that one connection may bring, renewals and releases not counted; without, as many as come
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=RATE_MOST))]
    #[serde(deserialize_with = "rated")]
    pub request_rate: Option<u32>,
    /// A snapshot is taken when the log behind the newest has so many bytes [default: 64MiB]
    #[arg(long, value_name = "SIZE", value_parser = log_size)]
    #[serde(deserialize_with = "spelled_log_size")]
    pub log_bytes: Option<Size>,
    /// Or so many batches: appends that were synced together [default: 1048576]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=BATCHES_MOST))]
    #[serde(deserialize_with = "batches")]
    pub log_batches: Option<u64>,
    /// How much of the audit trail is kept; the oldest goes first [default: 1GiB]
    #[arg(long, value_name = "SIZE", value_parser = trail_size)]
    #[serde(deserialize_with = "spelled_trail_size")]
    pub trail_bytes: Option<Size>,
    /// How long the audit trail is kept; without, only its size bounds it
    #[arg(long, value_name = "DURATION", value_parser = trail_age)]
    #[serde(deserialize_with = "spelled_age")]
    pub trail_age: Option<Lasting>,
    /// How to log: text or json [default: text]
    #[arg(long, value_name = "FORMAT")]
    #[serde(deserialize_with = "spelled")]
    pub log: Option<Format>,
    /// What to log: error, warn, info, debug or trace [default: info]
    #[arg(long, value_name = "LEVEL", env = "LEASEHOLD_LOG_LEVEL", hide_env_values = true)]
    #[serde(deserialize_with = "spelled")]
    pub log_level: Option<Words>,
}

/// Parts of a trail, so that a small trail has several too.
const PARTS: u64 = 8;

impl Given {
    /// What a file says.
    pub fn read(path: &Path) -> Result<Self, Error> {
        file::toml(path, &file::read(path)?)
    }

    /// What is given here, and where nothing is, what is given there.
    fn or(self, other: Self) -> Self {
        Self {
            listen: self.listen.or(other.listen),
            advertise: self.advertise.or(other.advertise),
            insecure_listen: self.insecure_listen.or(other.insecure_listen),
            journal: self.journal.or(other.journal),
            data: self.data.or(other.data),
            accept_copy: self.accept_copy.or(other.accept_copy),
            accept_restored: self.accept_restored.or(other.accept_restored),
            etcd_user: self.etcd_user.or(other.etcd_user),
            etcd_password_file: self.etcd_password_file.or(other.etcd_password_file),
            etcd_ca: self.etcd_ca.or(other.etcd_ca),
            etcd_cert: self.etcd_cert.or(other.etcd_cert),
            etcd_key: self.etcd_key.or(other.etcd_key),
            etcd_quota: self.etcd_quota.or(other.etcd_quota),
            max_ttl: self.max_ttl.or(other.max_ttl),
            connections: self.connections.or(other.connections),
            request_rate: self.request_rate.or(other.request_rate),
            log_bytes: self.log_bytes.or(other.log_bytes),
            log_batches: self.log_batches.or(other.log_batches),
            trail_bytes: self.trail_bytes.or(other.trail_bytes),
            trail_age: self.trail_age.or(other.trail_age),
            log: self.log.or(other.log),
            log_level: self.log_level.or(other.log_level),
        }
    }
}

/// What holds after all.
#[derive(Clone, Debug, PartialEq)]
pub struct Chosen {
    pub listen: SocketAddr,
    pub advertise: Option<Address>,
    pub insecure_listen: bool,
    pub journal: Kept,
    pub data: PathBuf,
    pub accept_copy: bool,
    pub accept_restored: bool,
    pub etcd: EntryFiles,
    pub max_ttl: Lasting,
    /// Whether somebody asked for that ttl.
    pub max_ttl_given: bool,
    pub connections: u32,
    pub request_rate: Option<u32>,
    pub log_bytes: Size,
    pub log_batches: u64,
    pub trail_bytes: Size,
    pub trail_age: Option<Lasting>,
    pub log: Format,
    pub log_level: Words,
}

impl Chosen {
    /// Flags first, then the file, then what is usual.
    pub fn from(flags: &Given, config: Option<&Path>) -> Result<Self, Error> {
        let written = config.map(Given::read).transpose()?.unwrap_or_default();
        let given = flags.clone().or(written);
        let usual = Settings::default();
        let etcd = EntryFiles {
            user: given.etcd_user,
            password: given.etcd_password_file,
            ca: given.etcd_ca,
            own: EntryFiles::pair(given.etcd_cert, given.etcd_key)?,
            quota: given.etcd_quota.unwrap_or(Size(QUOTA)),
        };
        etcd.check()?;
        Ok(Self {
            listen: given.listen.unwrap_or(usual.listen),
            advertise: given.advertise,
            insecure_listen: given.insecure_listen.unwrap_or(false),
            journal: given.journal.unwrap_or(Kept::File),
            data: given.data.unwrap_or_else(|| PathBuf::from("./leasehold-data")),
            accept_copy: given.accept_copy.unwrap_or(false),
            accept_restored: given.accept_restored.unwrap_or(false),
            etcd,
            max_ttl: given.max_ttl.unwrap_or(Lasting::from_millis(TTL_MAX_DEFAULT)),
            max_ttl_given: given.max_ttl.is_some(),
            connections: given.connections.unwrap_or(usual.bounds.connections as u32),
            request_rate: given.request_rate,
            log_bytes: given.log_bytes.unwrap_or(Size(usual.keep.log_bytes)),
            log_batches: given.log_batches.unwrap_or(usual.keep.log_batches),
            trail_bytes: given.trail_bytes.unwrap_or(Size(usual.keep.trail.bytes)),
            trail_age: given.trail_age,
            log: given.log.unwrap_or(Format::Text),
            log_level: given.log_level.unwrap_or(Words::Info),
        })
    }

    /// How much is kept of the past.
    pub fn keep(&self) -> Keep {
        let usual = Retention::default();
        let trail = Retention {
            bytes: self.trail_bytes.0,
            age_ms: self.trail_age.map(Lasting::millis),
            part_bytes: usual.part_bytes.min(self.trail_bytes.0 / PARTS),
        };
        Keep {
            log_bytes: self.log_bytes.0,
            log_batches: self.log_batches,
            trail,
            note: |line| tracing::warn!("{line}"),
        }
    }

    /// Every setting by its key, as people read it.
    pub fn told(&self) -> Vec<(&'static str, String)> {
        let told = |path: &Option<PathBuf>| path.as_ref().map_or("none".to_owned(), |path| path.display().to_string());
        let own = |(cert, key): (PathBuf, PathBuf)| (Some(cert), Some(key));
        let (cert, key) = self.etcd.own.clone().map_or((None, None), own);
        let advertise = self.advertise.as_ref().map_or_else(|| self.listen.to_string(), ToString::to_string);
        vec![
            ("listen", self.listen.to_string()),
            ("advertise", advertise),
            ("insecure_listen", self.insecure_listen.to_string()),
            ("journal", self.journal.to_string()),
            ("data", self.data.display().to_string()),
            ("accept_copy", self.accept_copy.to_string()),
            ("accept_restored", self.accept_restored.to_string()),
            ("etcd_user", self.etcd.user.clone().unwrap_or_else(|| "none".to_owned())),
            ("etcd_password_file", told(&self.etcd.password)),
            ("etcd_ca", told(&self.etcd.ca)),
            ("etcd_cert", told(&cert)),
            ("etcd_key", told(&key)),
            ("etcd_quota", self.etcd.quota.to_string()),
            ("max_ttl", self.max_ttl.to_string()),
            ("connections", self.connections.to_string()),
            ("request_rate", self.request_rate.map_or_else(|| "unbounded".to_owned(), |rate| rate.to_string())),
            ("log_bytes", self.log_bytes.to_string()),
            ("log_batches", self.log_batches.to_string()),
            ("trail_bytes", self.trail_bytes.to_string()),
            ("trail_age", self.trail_age.map_or_else(|| "unbounded".to_owned(), |age| age.to_string())),
            ("log", self.log.word().to_owned()),
            ("log_level", self.log_level.word().to_owned()),
        ]
    }
}

#[cfg(test)]
mod tests;
