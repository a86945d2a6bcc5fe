//! Settings of `leasehold serve`. Flags override the file; the file overrides the defaults.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use leasehold::duration::HumanDuration;
use leasehold::{Address, Error};
use leasehold_core::limits::TTL_MAX_DEFAULT;
use leasehold_server::audit::Retention;
use leasehold_server::journal::etcd::QUOTA;
use leasehold_server::otlp::CollectorUrl;
use leasehold_server::server::ServerConfig;
use leasehold_server::snapshotter::SnapshotConfig;
use leasehold_server::transport::tls::ClientCa;

use super::access_settings::{AccessSettings, GivenAccess, JwtTable, SocketPath};
use super::byte_size::ByteSize;
use super::collector::ConfiguredCollector;
use super::etcd_credentials::EtcdCredentialFiles;
use super::journal_url::JournalUrl;
use super::log::{LogFormat, LogLevel};
use super::parsers::{
    MAX_BATCHES, MAX_CONNECTIONS, MAX_REQUEST_RATE, deserialize_address, deserialize_audit_age, deserialize_audit_size,
    deserialize_batches, deserialize_client_cas, deserialize_connections, deserialize_host_names, deserialize_listen,
    deserialize_log_size, deserialize_max_ttl, deserialize_quota, deserialize_rate, deserialize_text,
    parse_advertised_address, parse_audit_age, parse_audit_size, parse_client_ca, parse_host_name, parse_listen,
    parse_log_size, parse_max_ttl, parse_quota,
};
use crate::input_file;

/// Settings as written by the user. Every field is a flag and, under the same name, a key of the configuration file.
#[derive(Clone, Debug, Default, PartialEq, clap::Args, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SettingsArgs {
    /// IP address and port to listen on, or localhost:PORT [default: 127.0.0.1:7421]
    #[arg(long, value_name = "ADDRESS", value_parser = parse_listen)]
    #[serde(deserialize_with = "deserialize_listen")]
    pub listen: Option<SocketAddr>,
    /// Address at which clients and other servers reach this server [default: the listen address]
    #[arg(long, value_name = "ADDRESS", value_parser = parse_advertised_address)]
    #[serde(deserialize_with = "deserialize_address")]
    pub advertise: Option<Address>,
    /// Names under which clients may address this server, besides IP addresses, localhost and the advertised host
    /// [default: none]
    #[arg(long, value_name = "HOST", value_delimiter = ',', value_parser = parse_host_name)]
    #[serde(deserialize_with = "deserialize_host_names")]
    pub allowed_hosts: Option<Vec<String>>,
    /// Allow listening on a non-loopback address without TLS. Every caller is then anonymous, and may do only what the access
    /// file grants to it
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub insecure_listen: Option<bool>,
    /// Certificate of the server (PEM), with its intermediate certificates; enables TLS 1.3
    #[arg(long, value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of the server's certificate (PEM); readable by its owner only
    #[arg(long, value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// CA certificates that verify clients (PEM): DOMAIN=FILE for the SPIFFE ids of a trust domain, FILE for DNS names
    #[arg(long, value_name = "[DOMAIN=]FILE", value_delimiter = ',', value_parser = parse_client_ca)]
    #[serde(deserialize_with = "deserialize_client_cas")]
    pub client_ca: Option<Vec<ClientCa>>,
    /// Certificate revocation lists for client certificates (PEM) [default: none]
    #[arg(long, value_name = "FILE", value_delimiter = ',')]
    pub client_crl: Option<Vec<PathBuf>>,
    /// File that grants rights to identities; without it, callers on this machine may do everything
    #[arg(long, value_name = "FILE")]
    pub access: Option<PathBuf>,
    /// Directory with the keys of the cluster, mode 0700; servers on etcd have the same files [default: keys in the directory
    /// of a file journal]
    #[arg(long, value_name = "DIRECTORY")]
    pub keys: Option<PathBuf>,
    /// File with the digests of bearer tokens, as `leasehold bearer` writes it; clients may then present a token instead of a
    /// certificate [default: none]
    #[arg(long, value_name = "FILE")]
    pub bearers: Option<PathBuf>,
    /// Issuers of JWT that clients may present as bearer tokens. Tables of the file only: an issuer, its audience and its keys
    /// belong together.
    #[arg(skip)]
    pub jwt: Option<Vec<JwtTable>>,
    /// Path of the unix socket, '' for none [default: leasehold.sock in the directory of a file journal]
    #[arg(long, value_name = "PATH")]
    #[serde(deserialize_with = "deserialize_text")]
    pub socket: Option<SocketPath>,
    /// Where to store the journal: file, memory or etcd://HOST:PORT[,HOST:PORT...]/PREFIX [default: file]
    #[arg(long, value_name = "JOURNAL")]
    #[serde(deserialize_with = "deserialize_text")]
    pub journal: Option<JournalUrl>,
    /// Directory for the file journal, or for local files of a server on etcd; created if its parent exists
    /// [default: ./leasehold-data]
    #[arg(long, value_name = "DIRECTORY")]
    pub data: Option<PathBuf>,
    /// Accept a data directory that was copied or moved; the original must never run again
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub accept_copy: Option<bool>,
    /// Accept an etcd that was restored from a snapshot, and start a new incarnation of the cluster
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub accept_restored: Option<bool>,
    /// User name for etcd
    #[arg(long, value_name = "NAME")]
    pub etcd_user: Option<String>,
    /// File that contains the password for etcd
    #[arg(long, value_name = "FILE")]
    pub etcd_password_file: Option<PathBuf>,
    /// CA certificate that signs the certificates of etcd (PEM); enables TLS
    #[arg(long, value_name = "FILE")]
    pub etcd_ca: Option<PathBuf>,
    /// Client certificate for etcd (PEM)
    #[arg(long, value_name = "FILE")]
    pub etcd_cert: Option<PathBuf>,
    /// Private key of the client certificate (PEM)
    #[arg(long, value_name = "FILE")]
    pub etcd_key: Option<PathBuf>,
    /// Allow a password for etcd without TLS to other machines, and an etcd with authentication whose version lets others bypass it
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub insecure_etcd: Option<bool>,
    /// Size limit of the etcd database, if etcd does not report its own [default: 2GiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_quota)]
    #[serde(deserialize_with = "deserialize_quota")]
    pub etcd_quota: Option<ByteSize>,
    /// Maximum ttl of a new cluster; later, `leasehold cluster set-max-ttl` changes it [default: 10m]
    #[arg(long, value_name = "DURATION", value_parser = parse_max_ttl)]
    #[serde(deserialize_with = "deserialize_max_ttl")]
    pub max_ttl: Option<HumanDuration>,
    /// Maximum number of open connections [default: 10000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MAX_CONNECTIONS))]
    #[serde(deserialize_with = "deserialize_connections")]
    pub max_connections: Option<u32>,
    /// Maximum requests per second on one connection; renewals and releases do not count [default: unlimited]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MAX_REQUEST_RATE))]
    #[serde(deserialize_with = "deserialize_rate")]
    pub max_request_rate: Option<u32>,
    /// Maximum requests per second of one peer address, over all its connections [default: max-request-rate]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MAX_REQUEST_RATE))]
    #[serde(deserialize_with = "deserialize_rate")]
    pub max_request_rate_per_address: Option<u32>,
    /// Take a snapshot when the log has grown by this size since the last one [default: 64MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_log_size)]
    #[serde(deserialize_with = "deserialize_log_size")]
    pub snapshot_after_bytes: Option<ByteSize>,
    /// Take a snapshot when the log has grown by N batches (appends synced together) [default: 1048576]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MAX_BATCHES))]
    #[serde(deserialize_with = "deserialize_batches")]
    pub snapshot_after_batches: Option<u64>,
    /// Maximum size of the audit log; the oldest entries are deleted first [default: 1GiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_audit_size)]
    #[serde(deserialize_with = "deserialize_audit_size")]
    pub audit_max_bytes: Option<ByteSize>,
    /// Maximum age of audit entries [default: unlimited]
    #[arg(long, value_name = "DURATION", value_parser = parse_audit_age)]
    #[serde(deserialize_with = "deserialize_audit_age")]
    pub audit_max_age: Option<HumanDuration>,
    /// Base URL of an OpenTelemetry collector; one span for each hold is exported to it, over OTLP (http/protobuf)
    /// [default: $OTEL_EXPORTER_OTLP_ENDPOINT, or none]
    #[arg(long, value_name = "URL")]
    #[serde(deserialize_with = "deserialize_text")]
    pub otlp_endpoint: Option<CollectorUrl>,
    /// File with headers for the collector, one NAME: VALUE per line; readable by its owner only
    #[arg(long, value_name = "FILE")]
    pub otlp_headers_file: Option<PathBuf>,
    /// CA certificates that verify the collector (PEM); required for https://
    #[arg(long, value_name = "FILE")]
    pub otlp_ca: Option<PathBuf>,
    /// Log format: text or json [default: text]
    #[arg(long, value_name = "FORMAT")]
    #[serde(deserialize_with = "deserialize_text")]
    pub log_format: Option<LogFormat>,
    /// Log level: error, warn, info, debug or trace [default: info]
    #[arg(long, value_name = "LEVEL", env = "LEASEHOLD_LOG_LEVEL", hide_env_values = true)]
    #[serde(deserialize_with = "deserialize_text")]
    pub log_level: Option<LogLevel>,
}

/// Minimum number of files of an audit log, so that a small one can be trimmed too.
const MIN_AUDIT_FILES: u64 = 8;

impl SettingsArgs {
    /// Reads a configuration file.
    pub fn read(path: &Path) -> Result<Self, Error> {
        input_file::toml(path, &input_file::read(path)?)
    }

    /// Fills unset fields from `other`.
    fn or(self, other: Self) -> Self {
        Self {
            listen: self.listen.or(other.listen),
            advertise: self.advertise.or(other.advertise),
            allowed_hosts: self.allowed_hosts.or(other.allowed_hosts),
            insecure_listen: self.insecure_listen.or(other.insecure_listen),
            tls_cert: self.tls_cert.or(other.tls_cert),
            tls_key: self.tls_key.or(other.tls_key),
            client_ca: self.client_ca.or(other.client_ca),
            client_crl: self.client_crl.or(other.client_crl),
            access: self.access.or(other.access),
            keys: self.keys.or(other.keys),
            bearers: self.bearers.or(other.bearers),
            jwt: self.jwt.or(other.jwt),
            socket: self.socket.or(other.socket),
            journal: self.journal.or(other.journal),
            data: self.data.or(other.data),
            accept_copy: self.accept_copy.or(other.accept_copy),
            accept_restored: self.accept_restored.or(other.accept_restored),
            etcd_user: self.etcd_user.or(other.etcd_user),
            etcd_password_file: self.etcd_password_file.or(other.etcd_password_file),
            etcd_ca: self.etcd_ca.or(other.etcd_ca),
            etcd_cert: self.etcd_cert.or(other.etcd_cert),
            etcd_key: self.etcd_key.or(other.etcd_key),
            insecure_etcd: self.insecure_etcd.or(other.insecure_etcd),
            etcd_quota: self.etcd_quota.or(other.etcd_quota),
            max_ttl: self.max_ttl.or(other.max_ttl),
            max_connections: self.max_connections.or(other.max_connections),
            max_request_rate: self.max_request_rate.or(other.max_request_rate),
            max_request_rate_per_address: self.max_request_rate_per_address.or(other.max_request_rate_per_address),
            snapshot_after_bytes: self.snapshot_after_bytes.or(other.snapshot_after_bytes),
            snapshot_after_batches: self.snapshot_after_batches.or(other.snapshot_after_batches),
            audit_max_bytes: self.audit_max_bytes.or(other.audit_max_bytes),
            audit_max_age: self.audit_max_age.or(other.audit_max_age),
            otlp_endpoint: self.otlp_endpoint.or(other.otlp_endpoint),
            otlp_headers_file: self.otlp_headers_file.or(other.otlp_headers_file),
            otlp_ca: self.otlp_ca.or(other.otlp_ca),
            log_format: self.log_format.or(other.log_format),
            log_level: self.log_level.or(other.log_level),
        }
    }
}

/// Resolved settings of a server.
#[derive(Clone, Debug, PartialEq)]
pub struct ServeSettings {
    pub listen: SocketAddr,
    pub advertise: Option<Address>,
    pub allowed_hosts: Vec<String>,
    pub insecure_listen: bool,
    pub access: AccessSettings,
    pub journal: JournalUrl,
    pub data: PathBuf,
    pub accept_copy: bool,
    pub accept_restored: bool,
    pub etcd: EtcdCredentialFiles,
    pub max_ttl: HumanDuration,
    /// Whether `max_ttl` was set by a flag or by the file.
    pub max_ttl_is_set: bool,
    pub max_connections: u32,
    pub max_request_rate: Option<u32>,
    pub max_request_rate_per_address: Option<u32>,
    pub snapshot_after_bytes: ByteSize,
    pub snapshot_after_batches: u64,
    pub audit_max_bytes: ByteSize,
    pub audit_max_age: Option<HumanDuration>,
    pub collector: ConfiguredCollector,
    pub log_format: LogFormat,
    pub log_level: LogLevel,
}

impl ServeSettings {
    /// Whether nothing is stored.
    pub const fn is_in_memory(&self) -> bool {
        matches!(self.journal, JournalUrl::Memory)
    }

    /// Resolves settings. Flags override the file; the file overrides the defaults.
    pub fn resolve(flags: &SettingsArgs, config: Option<&Path>) -> Result<Self, Error> {
        let file = config.map(SettingsArgs::read).transpose()?.unwrap_or_default();
        let given = flags.clone().or(file);
        let defaults = ServerConfig::default();
        let etcd = EtcdCredentialFiles {
            user: given.etcd_user,
            password: given.etcd_password_file,
            ca: given.etcd_ca,
            client_cert: EtcdCredentialFiles::pair(given.etcd_cert, given.etcd_key)?,
            quota: given.etcd_quota.unwrap_or(ByteSize(QUOTA)),
            insecure: given.insecure_etcd.unwrap_or(false),
        };
        etcd.validate()?;
        let journal = given.journal.unwrap_or(JournalUrl::File);
        let data = given.data.unwrap_or_else(|| PathBuf::from("./leasehold-data"));
        let access = GivenAccess {
            tls_cert: given.tls_cert,
            tls_key: given.tls_key,
            client_ca: given.client_ca.unwrap_or_default(),
            client_crl: given.client_crl.unwrap_or_default(),
            access: given.access,
            keys: given.keys,
            bearers: given.bearers,
            jwt: given.jwt.unwrap_or_default(),
            socket: given.socket,
        };
        let access = AccessSettings::resolve(access, &journal, &data)?;
        let collector = ConfiguredCollector::resolve(given.otlp_endpoint, given.otlp_headers_file, given.otlp_ca)?;
        Ok(Self {
            access,
            listen: given.listen.unwrap_or(defaults.listen),
            advertise: given.advertise,
            allowed_hosts: given.allowed_hosts.unwrap_or_default(),
            insecure_listen: given.insecure_listen.unwrap_or(false),
            journal,
            data,
            accept_copy: given.accept_copy.unwrap_or(false),
            accept_restored: given.accept_restored.unwrap_or(false),
            etcd,
            max_ttl: given.max_ttl.unwrap_or(HumanDuration::from_millis(TTL_MAX_DEFAULT)),
            max_ttl_is_set: given.max_ttl.is_some(),
            max_connections: given.max_connections.unwrap_or(defaults.limits.connections as u32),
            max_request_rate: given.max_request_rate,
            max_request_rate_per_address: given.max_request_rate_per_address.or(given.max_request_rate),
            snapshot_after_bytes: given.snapshot_after_bytes.unwrap_or(ByteSize(defaults.snapshots.log_bytes)),
            snapshot_after_batches: given.snapshot_after_batches.unwrap_or(defaults.snapshots.log_batches),
            audit_max_bytes: given.audit_max_bytes.unwrap_or(ByteSize(defaults.snapshots.audit.bytes)),
            audit_max_age: given.audit_max_age,
            collector,
            log_format: given.log_format.unwrap_or(LogFormat::Text),
            log_level: given.log_level.unwrap_or(LogLevel::Info),
        })
    }

    /// When to take snapshots, and how much of the audit log to keep.
    pub fn snapshot_config(&self) -> SnapshotConfig {
        let defaults = Retention::default();
        let audit = Retention {
            bytes: self.audit_max_bytes.0,
            age_ms: self.audit_max_age.map(HumanDuration::millis),
            file_bytes: defaults.file_bytes.min(self.audit_max_bytes.0 / MIN_AUDIT_FILES),
        };
        SnapshotConfig {
            log_bytes: self.snapshot_after_bytes.0,
            log_batches: self.snapshot_after_batches,
            audit,
            warn: |line| tracing::warn!("{line}"),
        }
    }

    /// Every setting by its key, as text.
    pub fn entries(&self) -> Vec<(&'static str, String)> {
        let path_text =
            |path: &Option<PathBuf>| path.as_ref().map_or("none".to_owned(), |path| path.display().to_string());
        let split = |(cert, key): (PathBuf, PathBuf)| (Some(cert), Some(key));
        let (cert, key) = self.etcd.client_cert.clone().map_or((None, None), split);
        let advertise = self.advertise.as_ref().map_or_else(|| self.listen.to_string(), ToString::to_string);
        let hosts = &self.allowed_hosts;
        let rate_text = |rate: Option<u32>| rate.map_or_else(|| "unlimited".to_owned(), |rate| rate.to_string());
        let mut entries = vec![
            ("listen", self.listen.to_string()),
            ("advertise", advertise),
            ("allowed_hosts", if hosts.is_empty() { "none".to_owned() } else { hosts.join(",") }),
            ("insecure_listen", self.insecure_listen.to_string()),
        ];
        entries.extend(self.access.entries());
        entries.extend([
            ("journal", self.journal.to_string()),
            ("data", self.data.display().to_string()),
            ("accept_copy", self.accept_copy.to_string()),
            ("accept_restored", self.accept_restored.to_string()),
            ("etcd_user", self.etcd.user.clone().unwrap_or_else(|| "none".to_owned())),
            ("etcd_password_file", path_text(&self.etcd.password)),
            ("etcd_ca", path_text(&self.etcd.ca)),
            ("etcd_cert", path_text(&cert)),
            ("etcd_key", path_text(&key)),
            ("insecure_etcd", self.etcd.insecure.to_string()),
            ("etcd_quota", self.etcd.quota.to_string()),
            ("max_ttl", self.max_ttl.to_string()),
            ("max_connections", self.max_connections.to_string()),
            ("max_request_rate", rate_text(self.max_request_rate)),
            ("max_request_rate_per_address", rate_text(self.max_request_rate_per_address)),
            ("snapshot_after_bytes", self.snapshot_after_bytes.to_string()),
            ("snapshot_after_batches", self.snapshot_after_batches.to_string()),
            ("audit_max_bytes", self.audit_max_bytes.to_string()),
            ("audit_max_age", self.audit_max_age.map_or_else(|| "unlimited".to_owned(), |age| age.to_string())),
            ("otlp_endpoint", self.collector.endpoint.as_ref().map_or("none".to_owned(), ToString::to_string)),
            ("otlp_headers_file", path_text(&self.collector.headers_file)),
            ("otlp_ca", path_text(&self.collector.ca)),
            ("log_format", self.log_format.word().to_owned()),
            ("log_level", self.log_level.word().to_owned()),
        ]);
        entries
    }
}

#[cfg(test)]
mod tests;
