//! How long a test says that the machine has slept, for holders in processes of their own.

use std::env::var_os;
use std::fs::read_to_string;

/// Names a file with a number of milliseconds. The boot clock of every holder in the process is ahead by as many, from the
/// moment at which they stand there: stop the process, write them, let it go on, and it has slept.
pub const SLEPT: &str = "LEASEHOLD_TESTING_SLEPT";

/// In nanoseconds.
pub(crate) fn slept() -> u64 {
    let told = var_os(SLEPT).and_then(|path| read_to_string(path).ok());
    told.and_then(|told| told.trim().parse::<u64>().ok()).unwrap_or(0).saturating_mul(1_000_000)
}
