//! How a server is set up: by flags, by a file, by default, in this order.

use std::fmt::Display;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use leasehold::duration::Lasting;
use leasehold::{Address, Error};
use leasehold_core::limits::{TTL_MAX_DEFAULT, TTL_MAX_EVER, TTL_MIN};
use leasehold_server::server::Settings;
use serde::de::{Deserialize, Deserializer, Error as _};

use super::log::{Format, Words};
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
    /// Where facts are kept: file, memory or etcd://… [default: file]
    #[arg(long, value_name = "JOURNAL")]
    #[serde(deserialize_with = "spelled")]
    pub journal: Option<Journal>,
    /// The directory of the file journal; created if its parent is there [default: ./leasehold-data]
    #[arg(long, value_name = "DIRECTORY")]
    pub data: Option<PathBuf>,
    /// The directory was copied or moved here, and the original will never run again
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub accept_copy: Option<bool>,
    /// The longest ttl of a new cluster, for good [default: 10m]
    #[arg(long, value_name = "DURATION", value_parser = longest_ttl)]
    #[serde(deserialize_with = "spelled_ttl")]
    pub max_ttl: Option<Lasting>,
    /// Connections that may be open at the same time [default: 10000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=CONNECTIONS_MOST))]
    #[serde(deserialize_with = "counted")]
    pub connections: Option<u32>,
    /// How to log: text or json [default: text]
    #[arg(long, value_name = "FORMAT")]
    #[serde(deserialize_with = "spelled")]
    pub log: Option<Format>,
    /// What to log: error, warn, info, debug or trace [default: info]
    #[arg(long, value_name = "LEVEL", env = "LEASEHOLD_LOG_LEVEL", hide_env_values = true)]
    #[serde(deserialize_with = "spelled")]
    pub log_level: Option<Words>,
}

/// More connections than a process has file handles for help nobody.
const CONNECTIONS_MOST: i64 = 1_000_000;

/// Which journal somebody asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Journal {
    /// One that is there.
    Here(Kept),
    /// The one on etcd.
    Etcd,
}

/// Where facts are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// In a directory of this machine.
    File,
    /// Nowhere, once the process ends.
    Memory,
}

impl FromStr for Journal {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "file" => Ok(Self::Here(Kept::File)),
            "memory" => Ok(Self::Here(Kept::Memory)),
            _ if text.starts_with("etcd://") => Ok(Self::Etcd),
            _ => Err("not a journal; write file, memory or etcd://HOST:PORT"),
        }
    }
}

fn longest_ttl(text: &str) -> Result<Lasting, String> {
    let ttl: Lasting = text.parse().map_err(|error| format!("{error}"))?;
    if (TTL_MIN..=TTL_MAX_EVER).contains(&ttl.millis()) {
        return Ok(ttl);
    }
    let (least, most) = (Lasting::from_millis(TTL_MIN), Lasting::from_millis(TTL_MAX_EVER));
    Err(format!("from {least} to {most}, not {ttl}; write it like 10m"))
}

fn advertised(text: &str) -> Result<Address, String> {
    Address::parse(text).map_err(|error| error.message().trim_start_matches("addr: ").to_owned())
}

fn spelled<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(from: D) -> Result<Option<T>, D::Error> {
    String::deserialize(from)?.parse().map(Some).map_err(D::Error::custom)
}

fn spelled_ttl<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Lasting>, D::Error> {
    longest_ttl(&String::deserialize(from)?).map(Some).map_err(D::Error::custom)
}

fn spelled_address<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Address>, D::Error> {
    advertised(&String::deserialize(from)?).map(Some).map_err(D::Error::custom)
}

fn counted<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    match u32::deserialize(from)? {
        count if (1..=CONNECTIONS_MOST).contains(&i64::from(count)) => Ok(Some(count)),
        count => Err(D::Error::custom(format!("from 1 to {CONNECTIONS_MOST}, not {count}; write it like 10000"))),
    }
}

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
            max_ttl: self.max_ttl.or(other.max_ttl),
            connections: self.connections.or(other.connections),
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
    pub max_ttl: Lasting,
    /// Whether somebody asked for that ttl.
    pub max_ttl_given: bool,
    pub connections: u32,
    pub log: Format,
    pub log_level: Words,
}

impl Chosen {
    /// Flags first, then the file, then what is usual.
    pub fn from(flags: &Given, config: Option<&Path>) -> Result<Self, Error> {
        let written = config.map(Given::read).transpose()?.unwrap_or_default();
        let given = flags.clone().or(written);
        let usual = Settings::default();
        let journal = match given.journal.unwrap_or(Journal::Here(Kept::File)) {
            Journal::Here(kept) => kept,
            Journal::Etcd => {
                let told = "journal: the one on etcd is not built in this version; write file or memory";
                return Err(Error::config("journal", told));
            }
        };
        Ok(Self {
            listen: given.listen.unwrap_or(usual.listen),
            advertise: given.advertise,
            insecure_listen: given.insecure_listen.unwrap_or(false),
            journal,
            data: given.data.unwrap_or_else(|| PathBuf::from("./leasehold-data")),
            accept_copy: given.accept_copy.unwrap_or(false),
            max_ttl: given.max_ttl.unwrap_or(Lasting::from_millis(TTL_MAX_DEFAULT)),
            max_ttl_given: given.max_ttl.is_some(),
            connections: given.connections.unwrap_or(usual.bounds.connections as u32),
            log: given.log.unwrap_or(Format::Text),
            log_level: given.log_level.unwrap_or(Words::Info),
        })
    }

    /// Every setting by its key, as people read it.
    pub fn told(&self) -> Vec<(&'static str, String)> {
        let journal = match self.journal {
            Kept::File => "file",
            Kept::Memory => "memory",
        };
        let advertise = self.advertise.as_ref().map_or_else(|| self.listen.to_string(), ToString::to_string);
        vec![
            ("listen", self.listen.to_string()),
            ("advertise", advertise),
            ("insecure_listen", self.insecure_listen.to_string()),
            ("journal", journal.to_owned()),
            ("data", self.data.display().to_string()),
            ("accept_copy", self.accept_copy.to_string()),
            ("max_ttl", self.max_ttl.to_string()),
            ("connections", self.connections.to_string()),
            ("log", self.log.word().to_owned()),
            ("log_level", self.log_level.word().to_owned()),
        ]
    }
}
