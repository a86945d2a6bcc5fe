//! Parsers and ranges of settings, shared by flags and the configuration file.

use std::fmt::Display;
use std::net::SocketAddr;
use std::str::FromStr;

use leasehold::Address;
use leasehold::duration::HumanDuration;
use leasehold_core::limits::{TTL_MAX_EVER, TTL_MIN};
use leasehold_server::transport::tls::{ClientCa, is_trust_domain};
use serde::de::{Deserialize, Deserializer, Error as _};

use super::byte_size::ByteSize;

/// More connections than a process can have file descriptors.
pub const MAX_CONNECTIONS: i64 = 1_000_000;
/// A higher rate is not reached on one connection, so it would not limit anything.
pub const MAX_REQUEST_RATE: i64 = 10_000_000;
/// Longest host name in DNS.
const MAX_HOST_NAME: usize = 253;
/// A start replays the log after the last snapshot, so a larger log makes starts slower.
const LOG_SIZES: (ByteSize, ByteSize) = (ByteSize(1 << 10), ByteSize(1 << 40));
pub const MAX_BATCHES: u64 = 1 << 32;
/// A smaller log would not fit a few segments, and the newest segment is always kept.
const AUDIT_SIZES: (ByteSize, ByteSize) = (ByteSize(64 << 10), ByteSize(1 << 50));
/// The range that etcd itself recommends.
const QUOTA_SIZES: (ByteSize, ByteSize) = (ByteSize(16 << 20), ByteSize(64 << 30));
const SEGMENT_SIZES: (ByteSize, ByteSize) = (ByteSize(4 << 10), ByteSize(1 << 30));
const MIN_AUDIT_AGE: HumanDuration = HumanDuration::from_millis(1_000);

pub fn parse_max_ttl(text: &str) -> Result<HumanDuration, String> {
    let ttl: HumanDuration = text.parse().map_err(|error| format!("{error}"))?;
    if (TTL_MIN..=TTL_MAX_EVER).contains(&ttl.millis()) {
        return Ok(ttl);
    }
    let (min, max) = (HumanDuration::from_millis(TTL_MIN), HumanDuration::from_millis(TTL_MAX_EVER));
    Err(format!("{ttl} is not in the range from {min} to {max}; for example 10m"))
}

fn parse_size(text: &str, (min, max): (ByteSize, ByteSize)) -> Result<ByteSize, String> {
    match text.parse()? {
        size if (min..=max).contains(&size) => Ok(size),
        size => Err(format!("{size} is not in the range from {min} to {max}; for example 64MiB")),
    }
}

pub fn parse_log_size(text: &str) -> Result<ByteSize, String> {
    parse_size(text, LOG_SIZES)
}

pub fn parse_audit_size(text: &str) -> Result<ByteSize, String> {
    parse_size(text, AUDIT_SIZES)
}

pub fn parse_quota(text: &str) -> Result<ByteSize, String> {
    parse_size(text, QUOTA_SIZES)
}

pub fn parse_segment_size(text: &str) -> Result<ByteSize, String> {
    parse_size(text, SEGMENT_SIZES)
}

pub fn parse_audit_age(text: &str) -> Result<HumanDuration, String> {
    match text.parse().map_err(|error| format!("{error}"))? {
        age if age >= MIN_AUDIT_AGE => Ok(age),
        age => Err(format!("{age} is less than {MIN_AUDIT_AGE}; for example 90d")),
    }
}

/// Parses an address to listen on. A host name is not resolved, except `localhost`.
pub fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    let (host, port) = text.rsplit_once(':').unwrap_or((text, ""));
    match (host, port) {
        ("localhost", port) if !port.is_empty() => format!("127.0.0.1:{port}").parse().map_err(|_| listen_error(text)),
        ("", port) if !port.is_empty() => Err(format!(
            "{text:?} has no host; write 127.0.0.1:{port} for this machine, or 0.0.0.0:{port} with --insecure-listen for all \
             interfaces"
        )),
        _ => text.parse().map_err(|_| listen_error(text)),
    }
}

fn listen_error(text: &str) -> String {
    format!("{text:?} is not an IP address and a port; for example 127.0.0.1:7421 or [::1]:7421")
}

pub fn deserialize_listen<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SocketAddr>, D::Error> {
    deserialize_with_parser(from, parse_listen)
}

pub fn parse_advertised_address(text: &str) -> Result<Address, String> {
    Address::parse(text).map_err(|error| error.message().trim_start_matches("addr: ").to_owned())
}

/// A host name without a scheme, a port or a wildcard.
pub fn parse_host_name(text: &str) -> Result<String, String> {
    let is_host = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
    if is_host && !text.trim_matches('.').is_empty() && text.len() <= MAX_HOST_NAME {
        return Ok(text.to_ascii_lowercase());
    }
    Err(format!("{text:?} is not a host name; write the name alone, for example leases.example.com"))
}

pub fn deserialize_text<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(from: D) -> Result<Option<T>, D::Error> {
    String::deserialize(from)?.parse().map(Some).map_err(D::Error::custom)
}

/// Parses a string of the file with the parser of the flag of the same name.
fn deserialize_with_parser<'de, D: Deserializer<'de>, T>(
    from: D,
    read: fn(&str) -> Result<T, String>,
) -> Result<Option<T>, D::Error> {
    read(&String::deserialize(from)?).map(Some).map_err(D::Error::custom)
}

pub fn deserialize_max_ttl<'de, D: Deserializer<'de>>(from: D) -> Result<Option<HumanDuration>, D::Error> {
    deserialize_with_parser(from, parse_max_ttl)
}

pub fn deserialize_address<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Address>, D::Error> {
    deserialize_with_parser(from, parse_advertised_address)
}

pub fn deserialize_host_names<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<String>>, D::Error> {
    let names = Vec::<String>::deserialize(from)?;
    names.iter().map(|name| parse_host_name(name)).collect::<Result<_, _>>().map(Some).map_err(D::Error::custom)
}

/// Parses `FILE.pem` or `TRUST-DOMAIN=FILE.pem`.
pub fn parse_client_ca(text: &str) -> Result<ClientCa, String> {
    let (domain, file) = match text.split_once('=') {
        Some((domain, file)) => (Some(domain), file),
        None => (None, text),
    };
    if let Some(domain) = domain.filter(|domain| !is_trust_domain(domain)) {
        let rule = "a trust domain has only lower-case letters, digits, '-', '.' and '_'";
        return Err(format!("{domain:?} is not a trust domain: {rule}; for example example.com=clients.pem"));
    }
    if file.is_empty() {
        return Err(format!("{text:?} names no file; for example clients.pem or example.com=clients.pem"));
    }
    Ok(ClientCa { domain: domain.map(str::to_owned), file: file.into() })
}

pub fn deserialize_client_cas<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<ClientCa>>, D::Error> {
    let bundles = Vec::<String>::deserialize(from)?;
    bundles.iter().map(|bundle| parse_client_ca(bundle)).collect::<Result<_, _>>().map(Some).map_err(D::Error::custom)
}

pub fn deserialize_log_size<'de, D: Deserializer<'de>>(from: D) -> Result<Option<ByteSize>, D::Error> {
    deserialize_with_parser(from, parse_log_size)
}

pub fn deserialize_quota<'de, D: Deserializer<'de>>(from: D) -> Result<Option<ByteSize>, D::Error> {
    deserialize_with_parser(from, parse_quota)
}

pub fn deserialize_audit_size<'de, D: Deserializer<'de>>(from: D) -> Result<Option<ByteSize>, D::Error> {
    deserialize_with_parser(from, parse_audit_size)
}

pub fn deserialize_audit_age<'de, D: Deserializer<'de>>(from: D) -> Result<Option<HumanDuration>, D::Error> {
    deserialize_with_parser(from, parse_audit_age)
}

pub fn deserialize_batches<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    match u64::deserialize(from)? {
        count if (1..=MAX_BATCHES).contains(&count) => Ok(Some(count)),
        count => {
            Err(D::Error::custom(format!("{count} is not in the range from 1 to {MAX_BATCHES}; for example 1000000")))
        }
    }
}

pub fn deserialize_connections<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    deserialize_count(MAX_CONNECTIONS, from)
}

pub fn deserialize_rate<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    deserialize_count(MAX_REQUEST_RATE, from)
}

fn deserialize_count<'de, D: Deserializer<'de>>(max: i64, from: D) -> Result<Option<u32>, D::Error> {
    match u32::deserialize(from)? {
        count if (1..=max).contains(&i64::from(count)) => Ok(Some(count)),
        count => Err(D::Error::custom(format!("{count} is not in the range from 1 to {max}; for example 10000"))),
    }
}
