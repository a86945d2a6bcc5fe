//! Which clients run, and what was built for them.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;

use crate::driver_list::{self, DriverEntry, IS_RELEASE};

/// Options about clients and builds, which all actions have.
#[derive(Clone, Debug, Args)]
pub struct BuildOptions {
    /// Client to run, as in drivers.toml; can be repeated [default: all]
    #[arg(long, value_name = "NAME")]
    client: Vec<String>,

    /// Build nothing
    #[arg(long)]
    no_build: bool,

    /// Build the drivers, but use the server and the driver of the Rust client as they are
    #[arg(long)]
    no_server_build: bool,

    /// Path of the `leasehold` binary [default: next to this binary]
    #[arg(long, value_name = "FILE")]
    leasehold: Option<PathBuf>,

    /// Root of the repository whose drivers run [default: that of this program]
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,

    /// Directory for the results, one JSON file per client [default: target/conformance]
    #[arg(long, value_name = "DIR")]
    results: Option<PathBuf>,
}

/// A client that can be started.
pub struct PreparedClient {
    /// Its entry in drivers.toml.
    pub driver: DriverEntry,
    /// Command that starts its driver.
    pub command: Vec<String>,
}

/// Clients and a server that can be started.
pub struct PreparedClients {
    /// Root of the repository.
    pub root: PathBuf,
    /// The `leasehold` program.
    pub leasehold: PathBuf,
    /// Folder of the results.
    pub results: PathBuf,
    /// All clients of drivers.toml.
    pub all: Vec<DriverEntry>,
    /// Those that were selected, in the order of drivers.toml.
    pub selected: Vec<PreparedClient>,
}

impl BuildOptions {
    /// Whether all clients run.
    pub fn selects_all(&self) -> bool {
        self.client.is_empty()
    }

    /// Selects one more client, unless all or this one are selected.
    #[must_use]
    pub fn with_client(mut self, name: &str) -> Self {
        if !self.selects_all() && !self.client.iter().any(|selected| selected == name) {
            self.client.push(name.to_owned());
        }
        self
    }

    /// Finds everything, and builds nothing.
    pub fn locate(&self) -> io::Result<PreparedClients> {
        let own = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = self.root.clone().unwrap_or_else(|| own.join("../..")).canonicalize()?;
        let all = driver_list::read(&own.join("drivers.toml"))?;
        let target = std::env::current_exe()?.parent().map(Path::to_owned).unwrap_or_default();
        if let Some(unknown) = self.client.iter().find(|name| all.iter().all(|driver| driver.name != **name)) {
            let names: Vec<_> = all.iter().map(|driver| driver.name.as_str()).collect();
            return Err(io::Error::other(format!("no client {unknown}; drivers.toml has {}", names.join(", "))));
        }
        let is_selected = |driver: &&DriverEntry| self.selects_all() || self.client.contains(&driver.name);
        let prepare =
            |driver: &DriverEntry| PreparedClient { driver: driver.clone(), command: driver.command(&root, &target) };
        let selected = all.iter().filter(is_selected).map(prepare).collect();
        let leasehold = self.leasehold.clone().unwrap_or_else(|| target.join("leasehold"));
        let results = self.results.clone().unwrap_or_else(|| target.join("../conformance"));
        Ok(PreparedClients { root, leasehold, results, all, selected })
    }

    /// Finds everything, and builds the server and the selected drivers.
    pub fn prepare(&self) -> io::Result<PreparedClients> {
        let prepared = self.locate()?;
        std::fs::create_dir_all(&prepared.results)?;
        if !self.no_build {
            if !self.no_server_build {
                build_binaries(&prepared.root)?;
            }
            for client in &prepared.selected {
                client.driver.build(&prepared.root)?;
            }
        }
        if !prepared.leasehold.exists() {
            let path = prepared.leasehold.display();
            return Err(io::Error::other(format!("no server at {path}; omit --no-build, or pass --leasehold")));
        }
        Ok(prepared)
    }
}

/// Builds the server, which no dependency of this crate contains, and the driver of the Rust client, in the profile of this program.
/// With the features of the whole workspace, as the tests have built them: then no dependency is built again.
fn build_binaries(root: &Path) -> io::Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "--workspace", "--bin", "leasehold", "--bin", "rust-driver"]);
    if IS_RELEASE {
        command.arg("--release");
    }
    let status = command.current_dir(root).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other("the server cannot be built")) }
}
