//! Memory that is free goes back to the machine: glibc is told so before the server begins.
//!
//! A snapshot is folded beside the turns and needs about as much memory again for as long as it takes. glibc would keep
//! that afterwards: each large piece that is freed raises the size from which it gives anything back. The bounds can be
//! fixed by one variable that is read when a program starts, so the server starts itself once more with it set. The
//! process stays the same one.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Where glibc reads its bounds.
const VARIABLE: &str = "GLIBC_TUNABLES";
/// Pieces above 8 MiB are given back at once, and of the rest at most 4 MiB are kept for each thread.
const BOUNDS: &str = "glibc.malloc.mmap_threshold=8388608:glibc.malloc.trim_threshold=4194304";

/// Starts the program again unless the bounds are set, by this or by whoever started it.
pub fn give_back() {
    if !cfg!(target_env = "gnu") || env::var_os(VARIABLE).is_some() {
        return;
    }
    let mut given = env::args_os();
    let (Some(name), Ok(program)) = (given.next(), env::current_exe()) else {
        return;
    };
    // It returns only if it could not; then the server runs with a little more memory than it needs.
    let _ = Command::new(program).arg0(name).args(given).env(VARIABLE, BOUNDS).exec();
}
