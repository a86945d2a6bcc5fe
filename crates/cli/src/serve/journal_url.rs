//! `--journal`: where a server stores its journal.

use std::fmt;
use std::str::FromStr;

use leasehold::Address;

/// Maximum length of the prefix. etcd keeps all keys in memory.
const MAX_PREFIX_BYTES: usize = 128;
/// Default prefix.
const DEFAULT_PREFIX: &str = "leasehold";
const SCHEME: &str = "etcd://";

/// Where a server stores its journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JournalUrl {
    /// In a local directory.
    File,
    /// In memory only; lost when the process ends.
    Memory,
    /// In etcd, under a prefix.
    Etcd {
        /// Addresses of the etcd members.
        endpoints: Vec<Address>,
        /// Prefix of all keys.
        prefix: String,
    },
}

impl FromStr for JournalUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "file" => Ok(Self::File),
            "memory" => Ok(Self::Memory),
            _ => match text.strip_prefix(SCHEME) {
                Some(rest) => parse_etcd(rest),
                None => Err("not a journal; write file, memory or etcd://HOST:PORT/PREFIX".to_owned()),
            },
        }
    }
}

fn parse_etcd(rest: &str) -> Result<JournalUrl, String> {
    const EXAMPLE: &str = "for example etcd://h1:2379,h2:2379,h3:2379/leasehold";
    let (hosts, prefix) = rest.split_once('/').unwrap_or((rest, DEFAULT_PREFIX));
    let mut endpoints: Vec<Address> = Vec::new();
    for host in hosts.split(',') {
        let address = Address::parse(host).map_err(|_| format!("{host:?} is not HOST:PORT; {EXAMPLE}"))?;
        if endpoints.contains(&address) {
            return Err(format!("{address} is listed twice; {EXAMPLE}"));
        }
        endpoints.push(address);
    }
    let is_valid = |segment: &str| {
        !segment.is_empty() && segment.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
    };
    if prefix.len() > MAX_PREFIX_BYTES || !prefix.split('/').all(is_valid) {
        return Err(format!(
            "invalid prefix {prefix:?}: use letters, digits, - . _ and single slashes, at most {MAX_PREFIX_BYTES} bytes; {EXAMPLE}"
        ));
    }
    Ok(JournalUrl::Etcd { endpoints, prefix: prefix.to_owned() })
}

impl fmt::Display for JournalUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File => f.write_str("file"),
            Self::Memory => f.write_str("memory"),
            Self::Etcd { endpoints, prefix } => {
                let endpoints: Vec<_> = endpoints.iter().map(Address::as_str).collect();
                write!(f, "{SCHEME}{}/{prefix}", endpoints.join(","))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn journal_urls_round_trip() {
        for text in ["file", "memory", "etcd://h1:2379,h2:2379/a/b", "etcd://[::1]:2379/leasehold"] {
            assert_eq!(text.parse::<JournalUrl>().expect(text).to_string(), text);
        }
        assert_eq!(
            "etcd://h:2379".parse::<JournalUrl>().expect("the prefix has a default").to_string(),
            "etcd://h:2379/leasehold"
        );
    }

    #[test]
    fn invalid_journal_urls_are_rejected_with_an_example() {
        let long = format!("etcd://h:2379/{}", "x".repeat(MAX_PREFIX_BYTES + 1));
        for text in [
            "",
            "tape",
            "etcd",
            "etcd://",
            "etcd://h",
            "etcd://h:0/x",
            "etcd://h:1,h:1/x",
            "etcd://h:1,/x",
            "etcd://h:1/",
            "etcd://h:1/a//b",
            "etcd://h:1//a",
            "etcd://h:1/a/",
            "etcd://h:1/a b",
            "etcd://u:p@h:1/a",
            &long,
        ] {
            let error = text.parse::<JournalUrl>().expect_err(text);
            assert!(error.contains("etcd://"), "{text}: {error}");
        }
    }
}
