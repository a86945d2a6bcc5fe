//! Who holds a file's lock, as the kernel lists it: a claim that cannot get in names who is inside (F8).

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// How often the list is read before it counts that nobody is in it.
const LOOKS: usize = 10;

/// The processes that hold a lock on one of these files. Empty where the kernel does not tell. The files are not opened:
/// closing any descriptor of a file would drop this process's own locks on it.
pub(crate) fn holders(files: &[&Path]) -> Vec<u32> {
    let places: Vec<String> = files.iter().filter_map(|file| fs::metadata(file).ok()).map(|of| place(&of)).collect();
    // The kernel tells its list in pieces: locks that others let go of between two of them hide some that are held.
    (0..LOOKS).map(|_| listed(&places)).find(|found| !found.is_empty()).unwrap_or_default()
}

fn listed(places: &[String]) -> Vec<u32> {
    let list = fs::read_to_string("/proc/locks").unwrap_or_default();
    let mut found: Vec<u32> = list.lines().filter_map(|line| holder(line, places)).collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// `1: FLOCK  ADVISORY  WRITE 4711 fd:01:396 0 EOF`; one who waits has `->` behind the number.
fn holder(line: &str, places: &[String]) -> Option<u32> {
    let mut words = line.split_whitespace().skip(1);
    let _kind = words.next().filter(|kind| *kind != "->")?;
    let (_advisory, access, pid, place) = (words.next()?, words.next()?, words.next()?, words.next()?);
    if access != "WRITE" || !places.iter().any(|of| of == place) {
        return None;
    }
    pid.parse().ok()
}

fn place(of: &fs::Metadata) -> String {
    let dev = of.dev();
    let major = ((dev >> 8) & 0xfff) | ((dev >> 32) & !0xfff);
    let minor = (dev & 0xff) | ((dev >> 12) & !0xff);
    format!("{major:02x}:{minor:02x}:{}", of.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_holds_the_lock_is_named_and_whoever_waits_or_reads_is_not() {
        let places = ["fd:01:396".to_owned()];
        assert_eq!(holder("1: FLOCK  ADVISORY  WRITE 4711 fd:01:396 0 EOF", &places), Some(4711));
        assert_eq!(holder("1: -> FLOCK  ADVISORY  WRITE 4712 fd:01:396 0 EOF", &places), None);
        assert_eq!(holder("2: POSIX  ADVISORY  READ 4713 fd:01:396 120 120", &places), None);
        assert_eq!(holder("3: FLOCK  ADVISORY  WRITE 4711 fd:01:397 0 EOF", &places), None);
        assert_eq!(holder("4: OFDLCK ADVISORY  WRITE -1 fd:01:396 0 EOF", &places), None);
    }
}
