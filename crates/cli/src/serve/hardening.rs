//! Keeps keys out of core files and away from debuggers of the same user (A11).

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

/// Makes the process not dumpable: it leaves no core file, and only root reads its memory. A failure is logged, because the server
/// is no less correct without it.
pub fn forbid_core_dumps() {
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::warn!(%error, "cannot make the process not dumpable; a core file would contain keys");
    }
}
