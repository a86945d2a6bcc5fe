//! A temporary directory that is removed when its process ends, even after SIGKILL: a cleanup process removes it then.

use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use crate::random_name::random_hex;

/// Internal subcommand that starts a cleanup process.
const SUBCOMMAND: &str = "__cleanup";
/// Attempts of the cleanup process: processes that are being killed may still write to the directory.
const MAX_ATTEMPTS: u32 = 200;
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// A private directory, with a cleanup process that waits for this process to end.
pub struct TempDir {
    path: PathBuf,
    cleaner: Child,
}

impl TempDir {
    pub fn create(command: &str, parent: &Path) -> Result<Self, String> {
        let random = random_hex().map_err(|error| format!("cannot choose the name of a directory: {error}"))?;
        let path = parent.join(format!("leasehold-{command}-{random}"));
        fs::DirBuilder::new().mode(0o700).create(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        // In its own process group, so that Ctrl-C does not end it.
        let cleaner = Command::new("/proc/self/exe")
            .arg0("leasehold")
            .arg(SUBCOMMAND)
            .arg(&path)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        match cleaner {
            Ok(cleaner) => Ok(Self { path, cleaner }),
            Err(error) => {
                // No cleanup process will remove it.
                let _ = fs::remove_dir_all(&path);
                Err(format!("cannot start the cleanup process of {}: {error}", path.display()))
            }
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        // If this fails, the cleanup process retries.
        let _ = fs::remove_dir_all(&self.path);
        drop(self.cleaner.stdin.take());
        let _ = self.cleaner.wait();
    }
}

/// Runs the cleanup process if this process was started as one.
pub fn run_internal_subcommand() -> Option<ExitCode> {
    let mut args = std::env::args_os().skip(1);
    (args.next()? == SUBCOMMAND).then(|| clean_up(args.next()))
}

/// Waits until the parent's end of the pipe closes, and removes the directory.
fn clean_up(path: Option<OsString>) -> ExitCode {
    let Some(path) = path.map(PathBuf::from) else {
        return ExitCode::FAILURE;
    };
    // The parent writes nothing: the read returns when the parent ends.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    for _ in 0..MAX_ATTEMPTS {
        let _ = fs::remove_dir_all(&path);
        if !path.exists() {
            return ExitCode::SUCCESS;
        }
        std::thread::sleep(RETRY_INTERVAL);
    }
    ExitCode::FAILURE
}
