//! `leasehold-chaos rollbacks`: rolls real journals back and requires that every rollback is detected (T9, V2).
//!
//! A data directory is put back to an earlier copy; an etcd is restored from an earlier snapshot. Each round asserts that tokens that are
//! not lost raise no alarm, that the rollback is detected, and that nothing is granted before an operator has decided.

mod directory;
mod etcd;
mod leasehold_binary;

use std::io;
use std::path::PathBuf;

use leasehold_sim::rng::SimRng;

use leasehold_binary::LeaseholdBinary;

/// Options of `rollbacks`.
#[derive(clap::Args)]
pub struct RollbackRun {
    /// Number of data directories that are put back
    #[arg(long, default_value_t = 3)]
    directories: u32,
    /// Number of times that etcd is restored
    #[arg(long, default_value_t = 2)]
    restores: u32,
    /// Seed of the run
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Path of the `leasehold` binary [default: next to this binary]
    #[arg(long, value_name = "FILE")]
    leasehold: Option<PathBuf>,
}

impl RollbackRun {
    /// Runs all rollbacks. Returns true if every one was detected.
    pub fn run(&self) -> io::Result<bool> {
        let sibling = std::env::current_exe()?.with_file_name("leasehold");
        let binary = LeaseholdBinary::new(self.leasehold.clone().unwrap_or(sibling))?;
        let mut rng = SimRng::new(self.seed);
        let dir = tempfile::tempdir()?;
        let directories = directory::run(&binary, dir.path(), self.directories, &mut rng);
        let restores = directories.and_then(|directories| {
            println!("{directories} of {} rolled-back directories detected", self.directories);
            etcd::run(&binary, dir.path(), self.restores, &mut rng)
        });
        match restores {
            Ok(restores) => {
                println!("{restores} of {} restored etcds detected", self.restores);
                Ok(true)
            }
            Err(error) => {
                println!("BROKEN T9, V2 with seed {}: {error}; the files are in {}", self.seed, dir.keep().display());
                Ok(false)
            }
        }
    }
}
