//! Profiles of the command line: `--as NAME` reads `~/.config/leasehold/NAME/profile.toml`.
//!
//! A profile holds the address of the servers and the files of one identity. Paths are relative to the profile, so that its directory
//! can be copied to another machine. Flags and their environment variables override a profile.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use leasehold::{Endpoints, Error};
use serde::Deserialize;

use crate::file_set::FileSet;
use crate::input_file;
use crate::pki::parse_credential_name;

/// The file in the directory of a profile.
pub const PROFILE_FILE: &str = "profile.toml";

/// Address and credentials of one identity.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Profile {
    pub addr: Option<String>,
    pub tls_ca: Option<PathBuf>,
    pub tls_cert: Option<PathBuf>,
    pub tls_key: Option<PathBuf>,
    /// File with a bearer token.
    pub bearer: Option<PathBuf>,
}

impl Profile {
    /// Reads the profile of this name.
    pub fn load(name: &str) -> Result<Self, Error> {
        Self::read(&directory(name)?.join(PROFILE_FILE))
    }

    fn read(path: &Path) -> Result<Self, Error> {
        let file = path.display().to_string();
        if !path.exists() {
            let reason = format!("{file} does not exist; create the profile with leasehold ca issue, or correct --as");
            return Err(Error::config_in_file(&file, None, "", reason));
        }
        let mut profile: Self = input_file::toml(path, &input_file::read(path)?)?;
        let refused = |key: &str, reason: String| Error::config_in_file(&file, None, key, format!("{key}: {reason}"));
        if let Some(Err(error)) = profile.addr.as_deref().map(Endpoints::parse) {
            return Err(refused("addr", error.message().trim_start_matches("addr: ").to_owned()));
        }
        if profile.tls_cert.is_some() != profile.tls_key.is_some() {
            let missing = if profile.tls_key.is_none() { "tls_key" } else { "tls_cert" };
            return Err(refused(missing, "a certificate and its key belong together; set both".to_owned()));
        }
        let folder = path.parent().unwrap_or(Path::new("."));
        let files = [
            ("tls_ca", &mut profile.tls_ca),
            ("tls_cert", &mut profile.tls_cert),
            ("tls_key", &mut profile.tls_key),
            ("bearer", &mut profile.bearer),
        ];
        for (key, value) in files {
            let Some(relative) = value else { continue };
            *relative = folder.join(&*relative);
            if !relative.is_file() {
                return Err(refused(key, format!("{} is not a file; correct the path", relative.display())));
            }
        }
        Ok(profile)
    }

    /// Fills values that no flag gave. An identity comes from one place: if a flag gives a certificate, a key or a bearer token, the
    /// profile gives none of them.
    pub fn fill(self, explicit: &mut Self) {
        if explicit.tls_cert.is_none() && explicit.tls_key.is_none() && explicit.bearer.is_none() {
            (explicit.tls_cert, explicit.tls_key, explicit.bearer) = (self.tls_cert, self.tls_key, self.bearer);
        }
        explicit.addr = explicit.addr.take().or(self.addr);
        explicit.tls_ca = explicit.tls_ca.take().or(self.tls_ca);
    }

    /// The text of a profile for the certificate `name`. Without a directory, its files are next to the profile.
    pub fn text(profile: &str, addr: &str, name: &str, directory: Option<&Path>) -> String {
        let file = |name: &str| directory.map_or_else(|| PathBuf::from(name), |directory| directory.join(name));
        let quoted = |text: &str| toml::Value::from(text).to_string();
        let line = |key: &str, name: &str| format!("{key} = {}\n", quoted(&file(name).to_string_lossy()));
        let head =
            format!("# Used by leasehold --as {profile}; paths are relative to this file.\naddr = {}\n", quoted(addr));
        let (cert, key) = (format!("{name}.pem"), format!("{name}.key"));
        head + &line("tls_ca", "ca.pem") + &line("tls_cert", &cert) + &line("tls_key", &key)
    }
}

/// The directory of a profile.
pub fn directory(name: &str) -> Result<PathBuf, Error> {
    let name = parse_credential_name(name).map_err(|reason| Error::config("as", format!("as: {reason}")))?;
    let [.., root] = roots()?;
    Ok(root.join(name))
}

/// The names of all profiles.
pub fn names() -> Result<BTreeSet<String>, Error> {
    let [.., root] = roots()?;
    let Ok(entries) = fs::read_dir(root) else { return Ok(BTreeSet::new()) };
    let profiles = entries.flatten().filter(|entry| entry.path().join(PROFILE_FILE).is_file());
    Ok(profiles.filter_map(|entry| entry.file_name().into_string().ok()).collect())
}

/// Adds the directory of a profile to files that are written together, and returns it.
pub fn add_directory(files: &mut FileSet, name: &str) -> Result<PathBuf, Error> {
    for root in roots()? {
        files.directory(&root, 0o700);
    }
    let directory = directory(name)?;
    files.directory(&directory, 0o700);
    Ok(directory)
}

/// The directory for configuration, and the one of this program in it.
fn roots() -> Result<[PathBuf; 2], Error> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
    roots_from(set("XDG_CONFIG_HOME"), set("HOME"))
}

fn roots_from(xdg: Option<OsString>, home: Option<OsString>) -> Result<[PathBuf; 2], Error> {
    // The standard of these directories requires that a relative path is ignored.
    let config = xdg.map(PathBuf::from).filter(|path| path.is_absolute());
    let config = config.or_else(|| home.map(|home| PathBuf::from(home).join(".config")));
    let Some(config) = config.filter(|path| path.is_absolute()) else {
        let message = "neither XDG_CONFIG_HOME nor HOME names a directory for profiles; set one of them";
        return Err(Error::config("as", message));
    };
    let own = config.join("leasehold");
    Ok([config, own])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Result<Profile, String>, tempfile::TempDir) {
        let folder = tempfile::tempdir().expect("a directory");
        for name in ["ca.pem", "a.pem", "a.key"] {
            fs::write(folder.path().join(name), "").expect("the directory is writable");
        }
        let file = folder.path().join(PROFILE_FILE);
        fs::write(&file, text).expect("the directory is writable");
        (Profile::read(&file).map_err(|error| error.to_string()), folder)
    }

    #[test]
    fn paths_are_relative_to_the_profile() {
        let (profile, folder) = read(&Profile::text("a", "https://a:1", "a", None));
        let at = |name: &str| Some(folder.path().join(name));
        let expected = Profile {
            addr: Some("https://a:1".into()),
            tls_ca: at("ca.pem"),
            tls_cert: at("a.pem"),
            tls_key: at("a.key"),
            bearer: None,
        };
        assert_eq!(profile, Ok(expected));
        let (profile, _) = read(&Profile::text("a", "https://a:1", "a", Some(folder.path())));
        assert_eq!(profile.map(|profile| profile.tls_key), Ok(at("a.key")), "absolute paths stay");
    }

    #[test]
    fn an_invalid_profile_is_refused_with_file_and_key() {
        let table = [
            ("adr = \"a:1\"\n", "adr"),
            ("tls_ca = \"missing.pem\"\n", "tls_ca: "),
            ("bearer = \"missing.token\"\n", "bearer: "),
            ("tls_cert = \"a.pem\"\n", "tls_key: a certificate and its key belong together"),
            ("tls_key = \"a.key\"\n", "tls_cert: a certificate and its key belong together"),
            ("addr = 1\n", "addr"),
            ("addr = \"nowhere\"\n", "addr: "),
        ];
        for (text, part) in table {
            let (profile, folder) = read(text);
            let error = profile.expect_err("invalid");
            assert!(error.contains(part) && error.contains(PROFILE_FILE), "{text:?}: {error}");
            assert!(error.contains(&*folder.path().to_string_lossy()), "{error}");
        }
    }

    #[test]
    fn flags_override_a_profile_and_a_certificate_keeps_its_key() {
        let profile = || Profile {
            addr: Some("https://a:1".into()),
            tls_ca: Some("ca".into()),
            tls_cert: Some("cert".into()),
            tls_key: Some("key".into()),
            bearer: Some("token".into()),
        };
        let mut none = Profile::default();
        profile().fill(&mut none);
        assert_eq!(none, profile());
        let mut some =
            Profile { addr: Some("https://b:1".into()), tls_cert: Some("mine".into()), ..Profile::default() };
        profile().fill(&mut some);
        let expected = Profile {
            addr: Some("https://b:1".into()),
            tls_cert: Some("mine".into()),
            tls_key: None,
            bearer: None,
            ..profile()
        };
        assert_eq!(some, expected);
        let mut bearer = Profile { bearer: Some("mine".into()), ..Profile::default() };
        profile().fill(&mut bearer);
        let expected = Profile { tls_cert: None, tls_key: None, bearer: Some("mine".into()), ..profile() };
        assert_eq!(bearer, expected, "a token is not combined with the certificate of a profile");
    }

    #[test]
    fn profiles_are_below_the_configuration_directory() {
        let own = |xdg: Option<&str>, home: Option<&str>| {
            roots_from(xdg.map(Into::into), home.map(Into::into)).ok().map(|[_, own]| own)
        };
        assert_eq!(own(Some("/x"), Some("/h")), Some("/x/leasehold".into()));
        assert_eq!(own(None, Some("/h")), Some("/h/.config/leasehold".into()));
        assert_eq!(own(Some("relative"), Some("/h")), Some("/h/.config/leasehold".into()));
        assert_eq!(own(None, None), None);
        assert!(directory("../etc").is_err(), "a profile cannot leave the directory");
    }
}
