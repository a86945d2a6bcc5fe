//! The data directory: its file system, how long a sync takes, and its free space.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use leasehold_server::journal::file::SEGMENT_BYTES;
use rustix::fs::{statfs, statvfs};

use super::finding::Finding;
use crate::serve::settings::ServeSettings;

/// Most syncs that are measured, and the time for all of them.
const SYNCS: usize = 16;
const SYNC_TIME: Duration = Duration::from_secs(2);
/// Bytes of each write.
const BLOCK: usize = 4_096;
/// The slowest sync that needs no attention, and the median that stops a server from renewing in time.
const SLOW: Duration = Duration::from_millis(100);
const TOO_SLOW: Duration = Duration::from_secs(1);
/// Free space that a server needs for its next segments and a snapshot.
const LOW_SPACE: u64 = 16 * SEGMENT_BYTES;

/// File systems by their magic number, and why a journal should not be there.
const FILE_SYSTEMS: [(u64, &str, &str); 14] = [
    (0x6969, "nfs", NETWORK),
    (0x517b, "smb", NETWORK),
    (0xff53_4d42, "cifs", NETWORK),
    (0xfe53_4d42, "smb2", NETWORK),
    (0x6573_5546, "fuse", NETWORK),
    (0x0102_1997, "9p", NETWORK),
    (0x00c3_6400, "ceph", NETWORK),
    (0x0bd0_0bd0, "lustre", NETWORK),
    (0x4750_4653, "gpfs", NETWORK),
    (0x5346_414f, "afs", NETWORK),
    (0x0102_1994, "tmpfs", MEMORY),
    (0x8584_58f6, "ramfs", MEMORY),
    (0x794c_7630, "overlayfs", CONTAINER),
    (0x6163_7673, "an unstable file system", NETWORK),
];

const NETWORK: &str = "a network file system may acknowledge a sync that is not durable";
const MEMORY: &str = "everything in it is lost with the machine's next start";
const CONTAINER: &str = "everything in the upper layer of a container is lost with the container";

pub fn check(path: Option<&Path>, settings: Option<&ServeSettings>) -> Vec<Finding> {
    let checks = ["file_system", "sync_latency", "disk_space"];
    let Some(path) = path else {
        let in_memory = settings.is_some_and(ServeSettings::is_in_memory);
        let (message, next) = match in_memory {
            true => ("the journal is in memory", "set journal = \"file\" to keep leases over a restart"),
            false => ("the data directory is not given", "pass --data DIRECTORY, or --config FILE of the server"),
        };
        return checks.map(|check| Finding::not_checked(check, message, next)).to_vec();
    };
    let subject = path.display().to_string();
    let Some(directory) = existing(path) else {
        let message = "the directory does not exist, nor the one that contains it";
        let found = Finding::error(checks[0], message, "create its parent, or correct --data").about(&subject);
        let rest = checks[1..]
            .iter()
            .map(|check| Finding::not_checked(check, "there is no directory", "correct --data").about(&subject));
        return [found].into_iter().chain(rest).collect();
    };
    let findings = [file_system(&directory), sync_latency(&directory), disk_space(&directory)];
    findings.map(|finding| finding.about(&subject)).to_vec()
}

/// The directory, or the parent in which the first start creates it.
fn existing(path: &Path) -> Option<PathBuf> {
    let parent = || path.parent().map(|parent| if parent.as_os_str().is_empty() { Path::new(".") } else { parent });
    [Some(path), parent()].into_iter().flatten().find(|at| at.is_dir()).map(Path::to_owned)
}

fn file_system(directory: &Path) -> Finding {
    const CHECK: &str = "file_system";
    let magic = match statfs(directory) {
        // The type is signed and of another width on some machines; the number is of 32 bits.
        Ok(found) => found.f_type as u64 & 0xffff_ffff,
        Err(error) => return unreadable(CHECK, &error.into()),
    };
    match FILE_SYSTEMS.iter().find(|(known, _, _)| *known == magic) {
        Some((_, name, reason)) => Finding::warning(
            CHECK,
            format!("the journal is on {name}: {reason}"),
            "use a local disk, or journal = etcd://…",
        ),
        None => Finding::ok(CHECK, "a local file system"),
    }
}

fn unreadable(check: &'static str, error: &io::Error) -> Finding {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            Finding::not_checked(check, "no permission for the directory", "run it as the user of the server")
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Finding::error(check, format!("cannot write: {error}"), "free space; a full disk stops new leases")
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            Finding::error(check, "the file system is read-only", "mount it for writing")
        }
        _ => Finding::error(check, format!("cannot use the directory: {error}"), "check the disk and the kernel's log"),
    }
}

fn sync_latency(directory: &Path) -> Finding {
    match measure(directory) {
        Ok(times) => judge_syncs(times),
        Err(error) => unreadable("sync_latency", &error),
    }
}

/// Times of writes that are durable when they end. The file has no name while it is written, so that nothing is left behind.
fn measure(directory: &Path) -> io::Result<Vec<Duration>> {
    let path = directory.join(format!(".leasehold-doctor-{}", std::process::id()));
    let mut file: File = OpenOptions::new().write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    let (started, mut times) = (Instant::now(), Vec::new());
    let block = [0x5a; BLOCK];
    while times.len() < SYNCS && (times.is_empty() || started.elapsed() < SYNC_TIME) {
        let at = Instant::now();
        file.write_all(&block)?;
        file.sync_data()?;
        times.push(at.elapsed());
    }
    Ok(times)
}

fn judge_syncs(mut times: Vec<Duration>) -> Finding {
    const CHECK: &str = "sync_latency";
    times.sort();
    let (Some(slowest), median) = (times.last().copied(), times[times.len() / 2]) else {
        return Finding::not_checked(CHECK, "nothing was measured", "run the command again");
    };
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let message =
        format!("a sync takes {:.1} ms, the slowest of {} took {:.1} ms", ms(median), times.len(), ms(slowest));
    let next = "use a faster disk, or find what else writes to it";
    if median >= TOO_SLOW {
        Finding::error(CHECK, message, next)
    } else if slowest >= SLOW {
        Finding::warning(CHECK, message, next)
    } else {
        Finding::ok(CHECK, message)
    }
}

fn disk_space(directory: &Path) -> Finding {
    const CHECK: &str = "disk_space";
    match statvfs(directory) {
        Ok(space) => judge_space(space.f_bavail * space.f_frsize, space.f_files > 0 && space.f_favail == 0),
        Err(error) => unreadable(CHECK, &error.into()),
    }
}

fn judge_space(available: u64, has_no_inode: bool) -> Finding {
    const CHECK: &str = "disk_space";
    let message = format!("{} MiB are free", available >> 20);
    if has_no_inode {
        Finding::error(CHECK, "no file can be created: all inodes are in use", "delete files")
    } else if available < SEGMENT_BYTES {
        Finding::error(CHECK, message, "free space; below one segment of the journal nothing new is granted")
    } else if available < LOW_SPACE {
        Finding::warning(CHECK, message, format!("free space; keep at least {} MiB", LOW_SPACE >> 20))
    } else {
        Finding::ok(CHECK, message)
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::FindingStatus;
    use super::*;

    #[test]
    fn syncs_are_judged_by_their_median_and_the_slowest() {
        let status = |ms: &[u64]| judge_syncs(ms.iter().map(|ms| Duration::from_millis(*ms)).collect()).status;
        assert_eq!(status(&[1, 2, 99]), FindingStatus::Ok);
        assert_eq!(status(&[1, 2, 100]), FindingStatus::Warning);
        assert_eq!(status(&[1, 999, 5_000]), FindingStatus::Warning);
        assert_eq!(status(&[1_000, 1_000, 1_000]), FindingStatus::Error);
    }

    #[test]
    fn space_is_judged_by_what_a_server_needs() {
        assert_eq!(judge_space(SEGMENT_BYTES - 1, false).status, FindingStatus::Error);
        assert_eq!(judge_space(SEGMENT_BYTES, false).status, FindingStatus::Warning);
        assert_eq!(judge_space(LOW_SPACE, false).status, FindingStatus::Ok);
        assert_eq!(judge_space(LOW_SPACE, true).status, FindingStatus::Error);
    }

    #[test]
    fn a_directory_that_the_first_start_creates_is_checked_in_its_parent() {
        let parent = tempfile::tempdir().expect("a directory");
        assert_eq!(existing(&parent.path().join("new")), Some(parent.path().to_owned()));
        assert_eq!(existing(parent.path()), Some(parent.path().to_owned()));
        assert_eq!(existing(&parent.path().join("no/such")), None);
        assert_eq!(existing(Path::new("leasehold-new-directory")), Some(PathBuf::from(".")));
        assert_eq!(std::fs::read_dir(parent.path()).expect("a directory").count(), 0);
        measure(parent.path()).expect("it is writable");
        assert_eq!(std::fs::read_dir(parent.path()).expect("a directory").count(), 0, "nothing is left behind");
    }
}
