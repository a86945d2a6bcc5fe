//! What a setting may say, the same in a flag and in a file.

use std::fmt::Display;
use std::str::FromStr;

use leasehold::Address;
use leasehold::duration::Lasting;
use leasehold_core::limits::{TTL_MAX_EVER, TTL_MIN};
use serde::de::{Deserialize, Deserializer, Error as _};

use super::size::Size;

/// More connections than a process has file handles for help nobody.
pub const CONNECTIONS_MOST: i64 = 1_000_000;
/// What nobody reaches on one connection bounds nothing.
pub const RATE_MOST: i64 = 10_000_000;
/// A start reads the log again: what is behind a snapshot costs time there.
const LOG_SIZES: (Size, Size) = (Size(1 << 10), Size(1 << 40));
pub const BATCHES_MOST: u64 = 1 << 32;
/// Less than this has no room for a few parts, and the newest part is always kept.
const TRAIL_SIZES: (Size, Size) = (Size(64 << 10), Size(1 << 50));
/// What etcd itself advises against is refused here too.
const QUOTA_SIZES: (Size, Size) = (Size(16 << 20), Size(64 << 30));
const SEGMENT_SIZES: (Size, Size) = (Size(4 << 10), Size(1 << 30));
const AGE_LEAST: Lasting = Lasting::from_millis(1_000);

pub fn longest_ttl(text: &str) -> Result<Lasting, String> {
    let ttl: Lasting = text.parse().map_err(|error| format!("{error}"))?;
    if (TTL_MIN..=TTL_MAX_EVER).contains(&ttl.millis()) {
        return Ok(ttl);
    }
    let (least, most) = (Lasting::from_millis(TTL_MIN), Lasting::from_millis(TTL_MAX_EVER));
    Err(format!("from {least} to {most}, not {ttl}; write it like 10m"))
}

fn size(text: &str, (least, most): (Size, Size)) -> Result<Size, String> {
    match text.parse()? {
        size if (least..=most).contains(&size) => Ok(size),
        size => Err(format!("from {least} to {most}, not {size}; write it like 64MiB")),
    }
}

pub fn log_size(text: &str) -> Result<Size, String> {
    size(text, LOG_SIZES)
}

pub fn trail_size(text: &str) -> Result<Size, String> {
    size(text, TRAIL_SIZES)
}

pub fn quota_size(text: &str) -> Result<Size, String> {
    size(text, QUOTA_SIZES)
}

pub fn segment_size(text: &str) -> Result<Size, String> {
    size(text, SEGMENT_SIZES)
}

pub fn trail_age(text: &str) -> Result<Lasting, String> {
    match text.parse().map_err(|error| format!("{error}"))? {
        age if age >= AGE_LEAST => Ok(age),
        age => Err(format!("at least {AGE_LEAST}, not {age}; write it like 90d")),
    }
}

pub fn advertised(text: &str) -> Result<Address, String> {
    Address::parse(text).map_err(|error| error.message().trim_start_matches("addr: ").to_owned())
}

pub fn spelled<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(from: D) -> Result<Option<T>, D::Error> {
    String::deserialize(from)?.parse().map(Some).map_err(D::Error::custom)
}

/// A text of a file, read as the flag of the same name is.
fn as_flag<'de, D: Deserializer<'de>, T>(from: D, read: fn(&str) -> Result<T, String>) -> Result<Option<T>, D::Error> {
    read(&String::deserialize(from)?).map(Some).map_err(D::Error::custom)
}

pub fn spelled_ttl<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Lasting>, D::Error> {
    as_flag(from, longest_ttl)
}

pub fn spelled_address<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Address>, D::Error> {
    as_flag(from, advertised)
}

pub fn spelled_log_size<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Size>, D::Error> {
    as_flag(from, log_size)
}

pub fn spelled_quota_size<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Size>, D::Error> {
    as_flag(from, quota_size)
}

pub fn spelled_trail_size<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Size>, D::Error> {
    as_flag(from, trail_size)
}

pub fn spelled_age<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Lasting>, D::Error> {
    as_flag(from, trail_age)
}

pub fn batches<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    match u64::deserialize(from)? {
        count if (1..=BATCHES_MOST).contains(&count) => Ok(Some(count)),
        count => Err(D::Error::custom(format!("from 1 to {BATCHES_MOST}, not {count}; write it like 1000000"))),
    }
}

pub fn counted<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    from_one_to(CONNECTIONS_MOST, from)
}

pub fn rated<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    from_one_to(RATE_MOST, from)
}

fn from_one_to<'de, D: Deserializer<'de>>(most: i64, from: D) -> Result<Option<u32>, D::Error> {
    match u32::deserialize(from)? {
        count if (1..=most).contains(&i64::from(count)) => Ok(Some(count)),
        count => Err(D::Error::custom(format!("from 1 to {most}, not {count}; write it like 10000"))),
    }
}
