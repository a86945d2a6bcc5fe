//! `drivers.toml`: how to build and start the driver of each client.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

/// Whether this program was built for release, and the server and the drivers with it.
pub const IS_RELEASE: bool = !cfg!(debug_assertions);

/// Environment variable of the build scripts: the cargo profile of native code, `dev` by default.
const PROFILE: &str = "LEASEHOLD_CLIENT_PROFILE";

/// The driver of one client.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriverEntry {
    /// Short name, as in `--client`.
    pub name: String,
    /// Name of the language, for people.
    pub title: String,
    build: Vec<String>,
    command: Vec<String>,
    /// Features that the client may lack.
    pub may_skip: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DriverFile {
    driver: Vec<DriverEntry>,
}

/// Reads `drivers.toml`.
pub fn read(path: &Path) -> io::Result<Vec<DriverEntry>> {
    let text = std::fs::read_to_string(path)?;
    let file: DriverFile =
        toml::from_str(&text).map_err(|error| io::Error::other(format!("{}: {error}", path.display())))?;
    Ok(file.driver)
}

impl DriverEntry {
    /// Builds the driver. `root` is the root of the repository.
    pub fn build(&self, root: &Path) -> io::Result<()> {
        let [program, arguments @ ..] = self.build.as_slice() else { return Ok(()) };
        let mut command = Command::new(resolve(root, program));
        if IS_RELEASE {
            command.env(PROFILE, "release");
        }
        let status = command.args(arguments).current_dir(root).status();
        let status = status.map_err(|error| io::Error::other(format!("{}: {program}: {error}", self.name)))?;
        if status.success() { Ok(()) } else { Err(io::Error::other(format!("{}: {program} failed", self.name))) }
    }

    /// Words of the command that starts the driver. `{target}` is the folder of the binaries of this workspace.
    pub fn command(&self, root: &Path, target: &Path) -> Vec<String> {
        let target = target.to_string_lossy();
        let mut words: Vec<_> = self.command.iter().map(|word| word.replace("{target}", &target)).collect();
        if let Some(program) = words.first_mut() {
            *program = resolve(root, program).to_string_lossy().into_owned();
        }
        words
    }
}

/// A path in the repository, or the name of a program.
fn resolve(root: &Path, program: &str) -> PathBuf {
    if program.contains('/') { root.join(program) } else { PathBuf::from(program) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_has_the_five_clients() {
        let drivers = read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("drivers.toml")).expect("the file is valid");
        let names: Vec<_> = drivers.iter().map(|driver| driver.name.as_str()).collect();
        assert_eq!(names, ["rust", "python", "typescript", "go", "java"]);
        let words = drivers[0].command(Path::new("/root"), Path::new("/root/target/debug"));
        assert_eq!(words, ["/root/target/debug/rust-driver"]);
    }
}
