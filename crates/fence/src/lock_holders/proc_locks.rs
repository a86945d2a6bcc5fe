//! The holders of file locks, from `/proc/locks`.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// How often the list is read before it is considered empty.
const READ_ATTEMPTS: usize = 10;

/// Returns the processes that hold a write lock on one of these files; none if the kernel does not list them. The files are
/// not opened: closing any descriptor of a file would release this process's own locks on it.
pub(crate) fn pids(files: &[&Path]) -> Vec<u32> {
    let ids: Vec<String> = files.iter().filter_map(|file| fs::metadata(file).ok()).map(|meta| file_id(&meta)).collect();
    // The kernel returns its list in parts: a lock released between two reads can hide one that is still held.
    (0..READ_ATTEMPTS).map(|_| read_locks(&ids)).find(|pids| !pids.is_empty()).unwrap_or_default()
}

fn read_locks(ids: &[String]) -> Vec<u32> {
    let list = fs::read_to_string("/proc/locks").unwrap_or_default();
    let mut pids: Vec<u32> = list.lines().filter_map(|line| holder(line, ids)).collect();
    pids.sort_unstable();
    pids.dedup();
    pids
}

/// Parses a line such as `1: FLOCK  ADVISORY  WRITE 4711 fd:01:396 0 EOF`. A waiter has `->` after the number.
fn holder(line: &str, ids: &[String]) -> Option<u32> {
    let mut words = line.split_whitespace().skip(1);
    let _kind = words.next().filter(|kind| *kind != "->")?;
    let (_advisory, access, pid, id) = (words.next()?, words.next()?, words.next()?, words.next()?);
    if access != "WRITE" || !ids.iter().any(|known| known == id) {
        return None;
    }
    pid.parse().ok()
}

/// Device and inode as `/proc/locks` prints them.
fn file_id(meta: &fs::Metadata) -> String {
    let dev = meta.dev();
    let major = ((dev >> 8) & 0xfff) | ((dev >> 32) & !0xfff);
    let minor = (dev & 0xff) | ((dev >> 12) & !0xff);
    format!("{major:02x}:{minor:02x}:{}", meta.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_holders_of_a_write_lock_on_these_files_are_listed() {
        let ids = ["fd:01:396".to_owned()];
        assert_eq!(holder("1: FLOCK  ADVISORY  WRITE 4711 fd:01:396 0 EOF", &ids), Some(4711));
        assert_eq!(holder("1: -> FLOCK  ADVISORY  WRITE 4712 fd:01:396 0 EOF", &ids), None);
        assert_eq!(holder("2: POSIX  ADVISORY  READ 4713 fd:01:396 120 120", &ids), None);
        assert_eq!(holder("3: FLOCK  ADVISORY  WRITE 4711 fd:01:397 0 EOF", &ids), None);
        assert_eq!(holder("4: OFDLCK ADVISORY  WRITE -1 fd:01:396 0 EOF", &ids), None);
    }
}
