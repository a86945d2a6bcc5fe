//! A directory that is gone when its process is, however that ends: a keeper of its own removes it after a kill.

use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

/// The word by which the binary knows that it is a keeper.
const WORD: &str = "__keep";
/// How often a keeper tries to remove what those who die with it may still write to.
const TRIES: u32 = 200;
const BETWEEN: Duration = Duration::from_millis(50);

/// A directory of this user alone, with a process that waits for this one to end.
pub struct Place {
    path: PathBuf,
    keeper: Child,
}

impl Place {
    pub fn make(who: &str, beside: &Path) -> Result<Self, String> {
        let path = beside.join(format!("leasehold-{who}-{}", std::process::id()));
        fs::DirBuilder::new().mode(0o700).create(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        // In a group of its own: what is typed to end the others must not end it.
        let keeper = Command::new("/proc/self/exe")
            .arg0("leasehold")
            .arg(WORD)
            .arg(&path)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        match keeper {
            Ok(keeper) => Ok(Self { path, keeper }),
            Err(error) => {
                // Nobody else would.
                let _ = fs::remove_dir_all(&path);
                Err(format!("cannot keep {}: {error}", path.display()))
            }
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // What cannot be removed now is removed by the keeper, or left where the system cleans up.
        let _ = fs::remove_dir_all(&self.path);
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

/// Keeps a place, if this process was started to.
pub fn behind_the_scenes() -> Option<ExitCode> {
    let mut args = std::env::args_os().skip(1);
    (args.next()? == WORD).then(|| keep(args.next()))
}

/// Waits until the other end of the pipe is gone, and removes what is left.
fn keep(path: Option<OsString>) -> ExitCode {
    let Some(path) = path.map(PathBuf::from) else {
        return ExitCode::FAILURE;
    };
    // Nothing is ever said: the end is all that can come.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    for _ in 0..TRIES {
        let _ = fs::remove_dir_all(&path);
        if !path.exists() {
            return ExitCode::SUCCESS;
        }
        std::thread::sleep(BETWEEN);
    }
    ExitCode::FAILURE
}
