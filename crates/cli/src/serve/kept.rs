//! Where facts are kept, as people write it, and how a server gets into etcd.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use leasehold::{Address, Error};
use leasehold_server::journal::etcd::{Entry, Tls};

use super::size::Size;

/// The longest prefix. Keys are kept in memory by etcd.
const PREFIX_BYTES: usize = 128;
/// The prefix, unless one is named.
const PREFIX: &str = "leasehold";
const SCHEME: &str = "etcd://";

/// Where facts are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// In a directory of this machine.
    File,
    /// Nowhere, once the process ends.
    Memory,
    /// In etcd, under a prefix.
    Etcd {
        /// Where etcd is reached.
        endpoints: Vec<Address>,
        /// What all keys begin with.
        prefix: String,
    },
}

impl FromStr for Kept {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "file" => Ok(Self::File),
            "memory" => Ok(Self::Memory),
            _ => match text.strip_prefix(SCHEME) {
                Some(rest) => etcd(rest),
                None => Err("not a journal; write file, memory or etcd://HOST:PORT/PREFIX".to_owned()),
            },
        }
    }
}

fn etcd(rest: &str) -> Result<Kept, String> {
    const LIKE: &str = "write it like etcd://h1:2379,h2:2379,h3:2379/leasehold";
    let (hosts, prefix) = rest.split_once('/').unwrap_or((rest, PREFIX));
    let mut endpoints: Vec<Address> = Vec::new();
    for host in hosts.split(',') {
        let address = Address::parse(host).map_err(|_| format!("{host:?} is not HOST:PORT; {LIKE}"))?;
        if endpoints.contains(&address) {
            return Err(format!("{address} stands there twice; {LIKE}"));
        }
        endpoints.push(address);
    }
    let segment = |segment: &str| {
        !segment.is_empty() && segment.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
    };
    if prefix.len() > PREFIX_BYTES || !prefix.split('/').all(segment) {
        return Err(format!(
            "the prefix {prefix:?} is not one of letters, digits, - . _ between single slashes, {PREFIX_BYTES} bytes at most; {LIKE}"
        ));
    }
    Ok(Kept::Etcd { endpoints, prefix: prefix.to_owned() })
}

impl fmt::Display for Kept {
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

/// The files that let a server into etcd.
#[derive(Clone, Debug, PartialEq)]
pub struct EntryFiles {
    pub user: Option<String>,
    pub password: Option<PathBuf>,
    pub ca: Option<PathBuf>,
    pub own: Option<(PathBuf, PathBuf)>,
    pub quota: Size,
}

impl EntryFiles {
    /// A certificate and its key, or neither.
    pub fn pair(cert: Option<PathBuf>, key: Option<PathBuf>) -> Result<Option<(PathBuf, PathBuf)>, Error> {
        match (cert, key) {
            (Some(cert), Some(key)) => Ok(Some((cert, key))),
            (None, None) => Ok(None),
            _ => Err(Error::config("etcd_cert", "etcd_cert: a certificate and its key go together; name both files")),
        }
    }

    /// What cannot be meant is refused.
    pub fn check(&self) -> Result<(), Error> {
        if self.user.is_some() != self.password.is_some() {
            let told = "etcd_user: a user and its password go together; name the user and etcd_password_file";
            return Err(Error::config("etcd_user", told));
        }
        if self.own.is_some() && self.ca.is_none() {
            let told = "etcd_ca: a certificate is shown only on an encrypted connection; name whom to trust";
            return Err(Error::config("etcd_ca", told));
        }
        Ok(())
    }

    /// Reads what is needed to enter.
    pub fn read(&self, endpoints: &[Address]) -> Result<Entry, Error> {
        let password = |path: &PathBuf| {
            let read = std::fs::read_to_string(path);
            let told = |error| format!("etcd_password_file: {}: {error}; name a file that can be read", path.display());
            read.map(|text| text.trim_end_matches(['\r', '\n']).to_owned())
                .map_err(|error| Error::config("etcd_password_file", told(error)))
        };
        let login = match (&self.user, &self.password) {
            (Some(user), Some(path)) => Some((user.clone(), password(path)?)),
            _ => None,
        };
        let tls = self.ca.clone().map(|ca| Tls { ca, own: self.own.clone() });
        Ok(Entry { endpoints: endpoints.iter().map(ToString::to_string).collect(), login, tls })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_is_read_as_it_is_written() {
        for text in ["file", "memory", "etcd://h1:2379,h2:2379/a/b", "etcd://[::1]:2379/leasehold"] {
            assert_eq!(text.parse::<Kept>().expect(text).to_string(), text);
        }
        assert_eq!("etcd://h:2379".parse::<Kept>().expect("a prefix is usual").to_string(), "etcd://h:2379/leasehold");
    }

    #[test]
    fn what_is_no_journal_is_refused_with_an_example() {
        let long = format!("etcd://h:2379/{}", "x".repeat(PREFIX_BYTES + 1));
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
            let refused = text.parse::<Kept>().expect_err(text);
            assert!(refused.contains("etcd://"), "{text}: {refused}");
        }
    }
}
