//! Known vulnerabilities of dependencies, from a copy of the RustSec database (A18).
//!
//! A machine without access to the network gets a copy by other means; `leasehold-tidy advisories DIRECTORY` reads it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use semver::{Version, VersionReq};

use crate::third_party::RegistryPackage;

/// Why a database cannot be used. A check that reads nothing must not pass.
#[derive(Debug)]
pub enum DatabaseError {
    /// A file or folder cannot be read.
    Unreadable(PathBuf, io::Error),
    /// A file is no advisory.
    Invalid(PathBuf, String),
    /// The folder contains no advisory of a crate.
    Empty(PathBuf),
}

impl std::fmt::Display for DatabaseError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unreadable(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Invalid(path, reason) => write!(f, "{}: {reason}", path.display()),
            Self::Empty(path) => write!(
                f,
                "{}: contains no crates/NAME/RUSTSEC-*.md; pass a copy of https://github.com/rustsec/advisory-db",
                path.display()
            ),
        }
    }
}

impl std::error::Error for DatabaseError {}

/// What is known about one crate.
#[derive(Debug)]
struct Advisory {
    id: String,
    package: String,
    title: String,
    /// Versions that have the fault are those that none of these contains.
    sound: Vec<VersionReq>,
    withdrawn: bool,
}

/// The advisories of a database.
#[derive(Debug)]
pub struct AdvisoryDatabase {
    advisories: Vec<Advisory>,
}

impl AdvisoryDatabase {
    /// Reads the advisories about crates below `directory`.
    pub fn read(directory: &Path) -> Result<Self, DatabaseError> {
        let mut advisories = Vec::new();
        for folder in entries(&directory.join("crates"))? {
            for file in entries(&folder)? {
                if file.extension().is_some_and(|extension| extension == "md") {
                    let text = fs::read_to_string(&file).map_err(|error| DatabaseError::Unreadable(file.clone(), error))?;
                    advisories.push(parse(&text).map_err(|reason| DatabaseError::Invalid(file, reason))?);
                }
            }
        }
        if advisories.is_empty() {
            return Err(DatabaseError::Empty(directory.to_owned()));
        }
        Ok(Self { advisories })
    }

    /// The number of advisories.
    pub fn len(&self) -> usize {
        self.advisories.len()
    }

    /// Whether it has none, which [`Self::read`] refuses.
    pub fn is_empty(&self) -> bool {
        self.advisories.is_empty()
    }

    /// Each advisory that concerns one of the packages and is not in `ignored`, as one line.
    pub fn findings(&self, packages: &[RegistryPackage], ignored: &[String]) -> Vec<String> {
        let mut found = Vec::new();
        for package in packages {
            let version = Version::parse(&package.version).expect("cargo writes complete versions");
            let concerns = |advisory: &&Advisory| {
                advisory.package == package.name
                    && !advisory.withdrawn
                    && !ignored.contains(&advisory.id)
                    && !advisory.sound.iter().any(|sound| sound.matches(&version))
            };
            for Advisory { id, title, .. } in self.advisories.iter().filter(concerns) {
                found.push(format!("{} {version}: {id}, {title}", package.name));
            }
        }
        found
    }
}

fn entries(directory: &Path) -> Result<Vec<PathBuf>, DatabaseError> {
    let unreadable = |error| DatabaseError::Unreadable(directory.to_owned(), error);
    let listed = fs::read_dir(directory).map_err(unreadable)?;
    let mut paths = listed.map(|entry| Ok(entry.map_err(unreadable)?.path())).collect::<Result<Vec<_>, _>>()?;
    paths.sort();
    Ok(paths)
}

/// Reads an advisory: a TOML block, then a title and prose in Markdown.
fn parse(text: &str) -> Result<Advisory, String> {
    let (head, prose) = text
        .strip_prefix("```toml")
        .and_then(|rest| rest.split_once("\n```"))
        .ok_or("does not begin with a block of TOML")?;
    let head: toml::Table = head.parse().map_err(|error| format!("{error}"))?;
    let advisory = head.get("advisory").ok_or("has no table `advisory`")?;
    let field = |name: &str| {
        let value = advisory.get(name).and_then(toml::Value::as_str);
        value.map(str::to_owned).ok_or(format!("has no `advisory.{name}`"))
    };
    let mut sound = Vec::new();
    for key in ["patched", "unaffected"] {
        let listed = head.get("versions").and_then(|versions| versions.get(key)).and_then(toml::Value::as_array);
        for requirement in listed.into_iter().flatten() {
            let requirement = requirement.as_str().ok_or(format!("`versions.{key}` is no list of texts"))?;
            sound.push(VersionReq::parse(requirement).map_err(|error| format!("{requirement}: {error}"))?);
        }
    }
    let title = prose.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or("without a title");
    Ok(Advisory {
        id: field("id")?,
        package: field("package")?,
        title: title.trim().to_owned(),
        sound,
        withdrawn: advisory.get("withdrawn").is_some(),
    })
}
