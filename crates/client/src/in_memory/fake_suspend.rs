//! A simulated suspend of the machine, for tests with holders in other processes.

use std::env::var_os;
use std::ffi::OsString;
use std::fs::read_to_string;
use std::sync::OnceLock;

/// Name of the environment variable with the path of a file. The file contains the milliseconds by which the clock of every
/// holder in the process is ahead. Stop the process, write the file and continue the process: for its holders, the machine was
/// suspended. The variable is read once: a program in another language may change the environment at any time.
pub const FAKE_SUSPEND_FILE: &str = "LEASEHOLD_TESTING_FAKE_SUSPEND_FILE";

/// Simulated suspend so far.
pub(crate) fn fake_suspend_nanos() -> u64 {
    static PATH: OnceLock<Option<OsString>> = OnceLock::new();
    let text = PATH.get_or_init(|| var_os(FAKE_SUSPEND_FILE)).as_ref().and_then(|path| read_to_string(path).ok());
    text.and_then(|text| text.trim().parse::<u64>().ok()).unwrap_or(0).saturating_mul(1_000_000)
}
