//! Addresses of targets: parsing, who named them, and how they are shown without secrets.

use std::ffi::OsStr;
use std::path::PathBuf;

use clap::builder::{StringValueParser, TypedValueParser};
use clap::error::ErrorKind;
use leasehold::{Code, Error};

/// The supported schemes, for error messages.
pub const SCHEMES: &str = "postgres://USER@HOST/DATABASE, redis://HOST[:PORT][/DB], \
                           etcd://HOST:PORT[,HOST:PORT][/PREFIX], \
                           nats://HOST[:PORT]/STREAM[/SUBJECT], sqlite:PATH, file:PATH, and for probes \
                           http://HOST[:PORT]";
/// Last parameter of a database address: its protected tables.
const TABLES: &str = "tables=";

/// The address of a target that stores the marks of its fences.
#[derive(Clone, Debug)]
pub struct TargetAddress {
    pub(super) location: Location,
    /// The tables that a forced target must protect, if the address lists them.
    pub(super) tables: Vec<String>,
    pub(super) source: AddressSource,
}

/// Where a target is.
#[derive(Clone, Debug)]
pub(super) enum Location {
    #[cfg(feature = "etcd")]
    Etcd(String),
    File(PathBuf),
    /// Can only be probed.
    Http(String),
    #[cfg(feature = "nats")]
    Nats(String),
    Postgres(String),
    #[cfg(feature = "redis")]
    Redis(String),
    Sqlite(PathBuf),
}

/// Who named an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressSource {
    /// The operator, on the command line.
    Operator,
    /// The author of a charter, who must not receive the operator's secrets.
    Charter,
}

impl TargetAddress {
    /// Parses an address that the operator named.
    pub fn parse(text: &str) -> Result<Self, Error> {
        Self::parse_from(text, AddressSource::Operator)
    }

    /// Parses an address from a charter. It is used without secrets of the operator's environment.
    pub fn from_charter(text: &str) -> Result<Self, Error> {
        Self::parse_from(text, AddressSource::Charter)
    }

    fn parse_from(text: &str, source: AddressSource) -> Result<Self, Error> {
        let Some((scheme, rest)) = text.split_once(':') else {
            return Err(invalid(format!("not the address of a target; supported are {SCHEMES}")));
        };
        let (text, rest, tables) = match split_tables(text) {
            None => (text, rest, Vec::new()),
            Some((address, list)) if is_database(scheme) => {
                (address, address.get(scheme.len() + 1..).unwrap_or_default(), parse_tables(list)?)
            }
            Some(_) => return Err(invalid(format!("{scheme}: has no tables; only a database can list them"))),
        };
        let path = || PathBuf::from(rest.strip_prefix("//").unwrap_or(rest));
        let location = match scheme {
            "sqlite" | "file" if rest.trim_start_matches('/').is_empty() => {
                return Err(invalid(format!("{scheme}: has no path")));
            }
            "sqlite" => Location::Sqlite(path()),
            "file" => Location::File(path()),
            "s3" | "dynamodb" => {
                return Err(Error::new(Code::InvalidArgument, no_client(scheme)).with_next_step(NO_CLIENT_ADVICE));
            }
            "postgres" | "postgresql" | "redis" | "etcd" | "nats" | "http" if !rest.starts_with("//") => {
                return Err(invalid(format!("{scheme}: is not followed by //; supported are {SCHEMES}")));
            }
            "postgres" | "postgresql" => Location::Postgres(text.to_owned()),
            #[cfg(feature = "redis")]
            "redis" => Location::Redis(text.to_owned()),
            #[cfg(feature = "etcd")]
            "etcd" => Location::Etcd(text.to_owned()),
            #[cfg(feature = "nats")]
            "nats" => Location::Nats(text.to_owned()),
            "http" => Location::Http(text.to_owned()),
            #[cfg(not(all(feature = "etcd", feature = "nats", feature = "redis")))]
            "etcd" | "nats" | "redis" => {
                let message = format!(
                    "{scheme}: this binary was built without its client; build leasehold-cli with --features {scheme}"
                );
                return Err(Error::new(Code::InvalidArgument, message).with_next_step("Use a binary with this client."));
            }
            other => {
                let scheme: String = other.chars().filter(|c| c.is_ascii_alphanumeric()).take(16).collect();
                return Err(invalid(format!("{scheme}: is not supported; supported are {SCHEMES}")));
            }
        };
        Ok(Self { location, tables, source })
    }

    /// Adds the tables that the address of the charter lists, if both are databases. The charter's address is only parsed: nothing
    /// is connected, and its list is no secret.
    pub fn with_tables_of_charter(mut self, charter: &str) -> Self {
        if self.is_database()
            && let Ok(declared) = Self::from_charter(charter)
        {
            for table in declared.tables {
                if !self.tables.contains(&table) {
                    self.tables.push(table);
                }
            }
        }
        self
    }

    /// Whether the target has tables.
    pub const fn is_database(&self) -> bool {
        matches!(self.location, Location::Postgres(_) | Location::Sqlite(_))
    }

    /// Whether the tables that must be protected are known, besides those that the database protects.
    pub const fn lists_tables(&self) -> bool {
        !self.tables.is_empty()
    }

    /// The address without its password.
    pub fn redacted(&self) -> String {
        match &self.location {
            Location::File(path) => format!("file:{}", path.display()),
            Location::Sqlite(path) => format!("sqlite:{}", path.display()),
            Location::Http(url) | Location::Postgres(url) => redact(url),
            #[cfg(feature = "etcd")]
            Location::Etcd(url) => redact(url),
            #[cfg(feature = "nats")]
            Location::Nats(url) => redact(url),
            #[cfg(feature = "redis")]
            Location::Redis(url) => redact(url),
        }
    }
}

/// Whether targets of this kind can refuse a writer that presents no token. `None` if the text is not an address.
pub fn can_be_forced(text: &str) -> Option<bool> {
    match text.split_once(':')?.0 {
        "postgres" | "postgresql" | "sqlite" | "http" | "https" => Some(true),
        "redis" | "rediss" | "etcd" | "nats" | "file" | "s3" | "dynamodb" => Some(false),
        _ => None,
    }
}

/// Parses `NAME=ADDRESS`. A name may contain `=`: it ends before the first text that starts with the scheme of an address.
pub fn parse_named(text: &str) -> Result<(String, TargetAddress), Error> {
    let splits = text.match_indices('=').map(|(at, _)| (&text[..at], &text[at + 1..]));
    let splits: Vec<_> = splits.filter(|(name, _)| !name.is_empty()).collect();
    let split = splits.iter().find(|(_, address)| can_be_forced(address).is_some()).or_else(|| splits.first());
    match split {
        Some((name, address)) => Ok(((*name).to_owned(), TargetAddress::parse(address)?)),
        None => Err(Error::new(Code::InvalidArgument, "expected NAME=ADDRESS, with the target's name in the charter")),
    }
}

fn is_database(scheme: &str) -> bool {
    matches!(scheme, "postgres" | "postgresql" | "sqlite")
}

fn invalid(message: String) -> Error {
    Error::new(Code::InvalidArgument, message).with_next_step("Use a supported scheme.")
}

/// Splits off the list of tables, which is the last parameter.
fn split_tables(text: &str) -> Option<(&str, &str)> {
    let (address, list) = text.rsplit_once(TABLES)?;
    Some((address.strip_suffix(['?', '&'])?, list))
}

/// Parses `TABLE[,TABLE...]`, in which `%2C` is a comma.
fn parse_tables(list: &str) -> Result<Vec<String>, Error> {
    let tables: Option<Vec<String>> = list.split(',').map(decode_percent).collect();
    match tables {
        Some(tables) if tables.iter().all(|table| !table.is_empty()) => Ok(tables),
        _ => Err(invalid("expected ?tables=TABLE[,TABLE...] at the end of the address".to_owned())),
    }
}

fn decode_percent(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(part.get(..2)?, 16).ok()?);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).ok()
}

/// The URL with its user and without its password and parameters. If it is unclear where a password ends, only the scheme.
fn redact(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or((url, ""));
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at(end);
    // A password with one of these characters ends at an `@` behind them.
    if rest.contains('@') {
        return format!("{scheme}://(not shown)");
    }
    let path = rest.split(['?', '#']).next().unwrap_or_default();
    match authority.rsplit_once('@') {
        Some((user, host)) => {
            let user = user.split(':').next().unwrap_or_default();
            format!("{scheme}://{user}@{host}{path}")
        }
        None => format!("{scheme}://{authority}{path}"),
    }
}

/// Next step for a target that this binary has no client for.
const NO_CLIENT_ADVICE: &str = "Read its marks with that function, then restore with --token-floor NUMBER.";

fn no_client(scheme: &str) -> String {
    let module = if scheme == "s3" { "objects" } else { "dynamodb" };
    format!(
        "{scheme}: this binary has no client for it; call leasehold_fence::{module}::list_marks in your program; supported \
         are {SCHEMES}"
    )
}

/// Parses an address on the command line. Unlike other arguments it is not repeated in errors: it may contain a password.
#[derive(Clone)]
pub struct AddressParser<T> {
    parse: fn(&str) -> Result<T, Error>,
}

impl<T> AddressParser<T> {
    pub const fn new(parse: fn(&str) -> Result<T, Error>) -> Self {
        Self { parse }
    }
}

impl<T: Clone + Send + Sync + 'static> TypedValueParser for AddressParser<T> {
    type Value = T;

    fn parse_ref(&self, cmd: &clap::Command, arg: Option<&clap::Arg>, value: &OsStr) -> Result<T, clap::Error> {
        let text = StringValueParser::new().parse_ref(cmd, arg, value)?;
        (self.parse)(&text).map_err(|error| {
            let name = arg.map_or_else(|| "TARGET".to_owned(), ToString::to_string);
            clap::Error::raw(ErrorKind::ValueValidation, format!("invalid value for '{name}': {error}\n")).with_cmd(cmd)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redacted_address_contains_no_password() {
        let table = [
            ("postgres://app:hunter2@db:5432/ledger?password=x", "postgres://app@db:5432/ledger"),
            ("postgres://db/ledger", "postgres://db/ledger"),
            ("postgres://app:hunter2@[::1]:5432/ledger", "postgres://app@[::1]:5432/ledger"),
            ("redis://:hunter2@cache:6379/3", "redis://@cache:6379/3"),
            ("redis://cache", "redis://cache"),
            ("redis://[::1]:6379/3", "redis://[::1]:6379/3"),
            ("etcd://a:2379,b:2379/app/", "etcd://a:2379,b:2379/app/"),
            ("sqlite:/var/ledger.db", "sqlite:/var/ledger.db"),
            ("sqlite:///var/ledger.db", "sqlite:/var/ledger.db"),
            ("sqlite:/var/ledger.db?tables=paid", "sqlite:/var/ledger.db"),
            ("http://user:hunter2@gate:7422", "http://user@gate:7422"),
        ];
        for (text, redacted) in table {
            assert_eq!(TargetAddress::parse(text).unwrap().redacted(), redacted);
        }
    }

    #[test]
    fn a_password_with_any_character_is_not_shown() {
        for special in ["@", "/", "?", "#", ":", "%", "&", "=", "//", "@@", "?a@", "#b/", "/x?y#z"] {
            for password in [format!("{special}hunter2"), format!("hunter2{special}"), format!("hun{special}ter2")] {
                for url in [
                    format!("postgres://app:{password}@db/ledger"),
                    format!("redis://:{password}@cache/3"),
                    format!("nats://app:{password}@log/STREAM/subject"),
                    format!("postgres://db/ledger?user=a@b&password={password}"),
                    format!("postgres://db/ledger?password={password}"),
                ] {
                    let redacted = TargetAddress::parse(&url).unwrap().redacted();
                    assert!(!redacted.contains("hun") && !redacted.contains("ter2"), "{url}: {redacted}");
                }
            }
        }
    }

    #[test]
    fn the_error_for_an_unsupported_address_lists_the_supported_schemes() {
        for text in ["", "ledger.db", "mysql://db/x", "sqlite:", "sqlite://", "postgres:host=db", "redis:/x", "http:x"]
        {
            let error = TargetAddress::parse(text).unwrap_err();
            assert_eq!(error.code(), Some(Code::InvalidArgument), "{text}");
        }
        let error = TargetAddress::parse("mysql://db/x").unwrap_err().to_string();
        for scheme in ["postgres://", "redis://", "etcd://", "nats://", "sqlite:", "file:"] {
            assert!(error.contains(scheme), "{error}");
        }
    }

    #[test]
    fn the_error_for_a_target_without_a_client_names_the_library_function() {
        for (text, function) in [("s3://bucket/x", "objects::list_marks"), ("dynamodb://table", "dynamodb::list_marks")]
        {
            let error = TargetAddress::parse(text).unwrap_err();
            assert_eq!(error.code(), Some(Code::InvalidArgument), "{text}");
            assert!(error.to_string().contains(function), "{error}");
        }
    }

    #[test]
    fn a_database_address_can_list_its_tables() {
        let tables = |text: &str| TargetAddress::parse(text).map(|address| address.tables);
        assert_eq!(tables("sqlite:/a?b.db?tables=paid,it%27s%2C%20odd").unwrap(), ["paid", "it's, odd"]);
        let address = TargetAddress::parse("postgres://app@db/shop?connect_timeout=3&tables=public.paid").unwrap();
        assert_eq!(address.tables, ["public.paid"]);
        assert!(
            matches!(&address.location, Location::Postgres(url) if url == "postgres://app@db/shop?connect_timeout=3")
        );
        for text in [
            "sqlite:/a?tables=",
            "sqlite:/a?tables=a,,b",
            "sqlite:/a?tables=%zz",
            "redis://h?tables=a",
            "sqlite:?tables=a",
        ] {
            assert!(tables(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_tables_of_the_charters_address_are_added() {
        let tables =
            |own: &str, charter: &str| TargetAddress::parse(own).unwrap().with_tables_of_charter(charter).tables;
        assert_eq!(tables("sqlite:/a", "sqlite:/b?tables=paid,refunds"), ["paid", "refunds"]);
        assert_eq!(tables("sqlite:/a?tables=paid,sold", "sqlite:/b?tables=paid,refunds"), ["paid", "sold", "refunds"]);
        assert_eq!(tables("postgres://app@db/s", "postgres://db/s?x=y&tables=shop.paid"), ["shop.paid"]);
        assert!(tables("redis://cache", "sqlite:/b?tables=paid").is_empty());
        assert!(tables("sqlite:/a", "our ledger?tables=paid").is_empty());
    }

    #[test]
    fn only_databases_and_gates_can_be_forced() {
        let table = [
            ("postgres://db/x", Some(true)),
            ("sqlite:/x", Some(true)),
            ("http://gate", Some(true)),
            ("redis://cache", Some(false)),
            ("etcd://a:2379", Some(false)),
            ("nats://log/S", Some(false)),
            ("file:/x", Some(false)),
            ("s3://bucket", Some(false)),
            ("dynamodb://table", Some(false)),
            ("the grantor", None),
            ("our printer: second floor", None),
        ];
        for (text, expected) in table {
            assert_eq!(can_be_forced(text), expected, "{text}");
        }
    }
}
