//! Process ids that hold a lock on a file. A blocked claim reports them (F8), where the system lists them.

#[cfg(target_os = "linux")]
mod proc_locks;

#[cfg(target_os = "linux")]
pub(crate) use proc_locks::pids;

/// Reports none: only Linux lists the holders of locks.
#[cfg(not(target_os = "linux"))]
pub(crate) const fn pids(_files: &[&std::path::Path]) -> Vec<u32> {
    Vec::new()
}
