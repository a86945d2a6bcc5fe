//! glibc malloc tuning: freed memory is returned to the operating system.
//!
//! Building a snapshot temporarily doubles the memory of a server. By default glibc would keep that memory afterwards: each
//! large block that is freed raises the threshold above which glibc returns memory. An environment variable fixes the
//! thresholds, but glibc reads it only at program start. So the server re-executes itself with the variable set; the
//! process id stays the same.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Environment variable with glibc's tunables.
const VARIABLE: &str = "GLIBC_TUNABLES";
/// Blocks above 8 MiB are returned when freed; of the rest each arena keeps at most 4 MiB.
const TUNABLES: &str = "glibc.malloc.mmap_threshold=8388608:glibc.malloc.trim_threshold=4194304";

/// Re-executes the program with the tunables, unless the variable is already set.
pub fn tune_by_reexec() {
    if !cfg!(target_env = "gnu") || env::var_os(VARIABLE).is_some() {
        return;
    }
    let mut args = env::args_os();
    let (Some(name), Ok(program)) = (args.next(), env::current_exe()) else {
        return;
    };
    // exec returns only on failure; then the server keeps more memory than it needs.
    let _ = Command::new(program).arg0(name).args(args).env(VARIABLE, TUNABLES).exec();
}
