//! A directory on this machine: checks, lock and file operations.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{self, Access, AtFlags, FallocateFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::disk::{Disk, HostIdentity, MACHINE_BYTES};
use super::names;
use crate::journal::OpenError;

/// Network filesystems, where a lock does not fence and a sync may not be durable.
const NETWORK: [(u64, &str); 17] = [
    (0x6969, "NFS"),
    (0x517B, "SMB"),
    (0xFF53_4D42, "CIFS"),
    (0xFE53_4D42, "SMB2"),
    (0x0102_1997, "9P"),
    (0x6573_5546, "FUSE"),
    (0x5346_414F, "AFS"),
    (0x6B41_4653, "AFS"),
    (0x7375_7245, "Coda"),
    (0x564C, "NCP"),
    (0x00C3_6400, "Ceph"),
    (0x0116_1970, "GFS2"),
    (0x7461_636F, "OCFS2"),
    (0x0BD0_0BD0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x1983_0326, "BeeGFS"),
    (0x786F_4256, "vboxsf"),
];

/// Filesystems in memory, which a power loss erases.
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58F6];

const OTHERS: u32 = 0o077;
const MACHINE_ID: &str = "/etc/machine-id";

/// A locked directory on this machine.
#[derive(Debug)]
pub struct LocalDisk {
    path: PathBuf,
    /// Holds the kernel's lock as long as it is open.
    directory: File,
    host: HostIdentity,
    warnings: Vec<String>,
}

impl LocalDisk {
    /// Creates the directory if it does not exist, checks it and locks it.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        // Without a trailing slash, a link is detected as one.
        let path: PathBuf = path.components().collect();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = match fs::open(&path, flags, Mode::empty()) {
            Err(Errno::NOENT) => {
                create(&path)?;
                fs::open(&path, flags, Mode::empty())
            }
            opened => opened,
        };
        let directory = File::from(opened.map_err(|errno| match errno {
            Errno::LOOP => OpenError::Symlink { path: path.clone() },
            Errno::NOTDIR if path.is_symlink() => OpenError::Symlink { path: path.clone() },
            Errno::NOTDIR => OpenError::NotADirectory { path: path.clone() },
            _ => OpenError::from_io(&path, &errno.into()),
        })?);
        let refused = |errno: Errno| OpenError::from_io(&path, &errno.into());
        let stat = fs::fstat(&directory).map_err(refused)?;
        let own = rustix::process::geteuid().as_raw();
        if stat.st_uid != own {
            return Err(OpenError::OwnedByOther { path, owner: stat.st_uid, own });
        }
        if stat.st_mode & OTHERS != 0 {
            return Err(OpenError::TooOpen { path, mode: stat.st_mode & 0o7777 });
        }
        let kind = fs::fstatfs(&directory).map_err(refused)?.f_type as u64;
        if let Some(kind) = network_filesystem(kind) {
            return Err(OpenError::NetworkFilesystem { path, kind });
        }
        fs::accessat(&directory, ".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS)
            .map_err(|_| OpenError::NotWritable { path: path.clone() })?;
        let host = HostIdentity { device: stat.st_dev, inode: stat.st_ino, machine: machine_id() };
        let mut warnings = Vec::new();
        if IN_MEMORY.contains(&kind) {
            warnings.push(format!("{}: a filesystem in memory; a power loss erases it", path.display()));
        }
        let disk = Self { path, directory, host, warnings };
        disk.lock()?;
        Ok(disk)
    }

    fn lock(&self) -> Result<(), OpenError> {
        match fs::flock(&self.directory, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                return Err(OpenError::InUse { path: self.path.clone(), pid: self.lock_holder() });
            }
            Err(errno) => return Err(OpenError::from_io(&self.path, &errno.into())),
        }
        // Of fixed width, so that it overwrites an earlier one. A failure on a full disk is ignored: the file is for operators only.
        let own = format!("{:>10}\n", std::process::id());
        let file = self.open(names::PID).or_else(|_| self.create(names::PID));
        file.and_then(|file| self.write(&file, 0, own.as_bytes())).ok();
        Ok(())
    }

    /// The process that holds the lock, from the pid file.
    fn lock_holder(&self) -> Option<u32> {
        let file = self.open(names::PID).ok()?;
        let mut text = [0; 16];
        let got = self.read(&file, 0, &mut text).ok()?;
        str::from_utf8(&text[..got]).ok()?.trim().parse().ok()
    }

    fn file(&self, name: &str, flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = File::from(fs::openat(&self.directory, name, flags, Mode::RUSR | Mode::WUSR)?);
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "not a regular file"));
        }
        Ok(file)
    }
}

/// Creates a data directory that only this user can access, durable in its parent.
fn create(path: &Path) -> Result<(), OpenError> {
    let parent = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let refused = |errno: Errno| match errno {
        Errno::NOENT => OpenError::ParentMissing { path: path.to_owned() },
        Errno::NOTDIR => OpenError::NotADirectory { path: parent.to_owned() },
        Errno::ACCESS | Errno::PERM | Errno::ROFS => OpenError::NotWritable { path: parent.to_owned() },
        _ => OpenError::from_io(path, &errno.into()),
    };
    match fs::mkdir(path, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(refused(errno)),
    }
    let parent = fs::open(parent, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    parent.and_then(fs::fsync).map_err(refused)
}

fn network_filesystem(kind: u64) -> Option<&'static str> {
    // The kernel's value is signed on some architectures.
    NETWORK.iter().find(|(magic, _)| *magic == kind & 0xFFFF_FFFF).map(|(_, name)| *name)
}

fn machine_id() -> String {
    let mut name = std::fs::read_to_string(MACHINE_ID).unwrap_or_default().trim().to_owned();
    name.retain(|letter| letter.is_ascii_graphic());
    name.truncate(MACHINE_BYTES);
    name
}

impl Disk for LocalDisk {
    type File = File;

    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::Dir::read_from(&self.directory)? {
            // A name that is not text is not a file of the journal.
            names.extend(entry?.file_name().to_str().ok().map(str::to_owned));
        }
        Ok(names)
    }

    fn create(&self, name: &str) -> io::Result<File> {
        self.file(name, OFlags::CREATE | OFlags::EXCL)
    }

    fn open(&self, name: &str) -> io::Result<File> {
        self.file(name, OFlags::empty())
    }

    fn len(&self, file: &File) -> io::Result<u64> {
        Ok(file.metadata()?.len())
    }

    fn read(&self, file: &File, at: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut got = 0;
        while got < into.len() {
            match file.read_at(&mut into[got..], at + got as u64) {
                Ok(0) => break,
                Ok(some) => got += some,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(got)
    }

    fn write(&self, file: &File, at: u64, bytes: &[u8]) -> io::Result<()> {
        file.write_all_at(bytes, at)
    }

    fn reserve(&self, file: &File, bytes: u64) -> io::Result<()> {
        match rustix::io::retry_on_intr(|| fs::fallocate(file, FallocateFlags::empty(), 0, bytes)) {
            // Zeros are written anyway; only the early detection of a full disk is lost.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            done => Ok(done?),
        }
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_data()
    }

    fn check_present(&self, name: &str, file: &File) -> io::Result<()> {
        let lost = |what: &str| Err(io::Error::new(io::ErrorKind::NotFound, what));
        let open = fs::fstat(file)?;
        match fs::statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(named) if (named.st_dev, named.st_ino) == (open.st_dev, open.st_ino) => {}
            Ok(_) => return lost("another file took the place of the file while it was in use"),
            Err(Errno::NOENT) => return lost("the file was deleted or moved while it was in use"),
            Err(errno) => return Err(errno.into()),
        }
        match fs::lstat(&self.path) {
            Ok(stat) if (stat.st_dev, stat.st_ino) == (self.host.device, self.host.inode) => Ok(()),
            Ok(_) => lost("another directory took the place of the data directory while it was in use"),
            Err(Errno::NOENT) => lost("the data directory was deleted or moved while it was in use"),
            Err(errno) => Err(errno.into()),
        }
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(fs::renameat(&self.directory, from, &self.directory, to)?)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        Ok(fs::unlinkat(&self.directory, name, AtFlags::empty())?)
    }

    fn sync_names(&self) -> io::Result<()> {
        self.directory.sync_all()
    }

    fn free(&self) -> io::Result<u64> {
        let stat = fs::fstatvfs(&self.directory)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn host_identity(&self) -> HostIdentity {
        self.host.clone()
    }

    fn random(&self) -> io::Result<[u8; 16]> {
        let mut id = [0; 16];
        let got = rustix::rand::getrandom(&mut id, rustix::rand::GetRandomFlags::empty())?;
        if got == id.len() { Ok(id) } else { Err(io::Error::other("too few random bytes")) }
    }

    fn path(&self, name: &str) -> PathBuf {
        if name.is_empty() { self.path.clone() } else { self.path.join(name) }
    }

    fn warnings(&self) -> Vec<String> {
        self.warnings.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_filesystems_are_detected_by_number_signed_or_not() {
        assert_eq!(network_filesystem(0x6969), Some("NFS"));
        assert_eq!(network_filesystem(0xFF53_4D42), Some("CIFS"));
        assert_eq!(network_filesystem(0xFF53_4D42_u32 as i32 as i64 as u64), Some("CIFS"));
        assert_eq!(network_filesystem(0x6573_5546), Some("FUSE"));
    }

    #[test]
    fn local_filesystems_are_not_network_filesystems() {
        for local in [0xEF53, 0x5846_5342, 0x9123_683E, 0x0102_1994, 0x794C_7630, 0x2FC1_2FC1, 0xF2F5_2010] {
            assert_eq!(network_filesystem(local), None, "{local:#x}");
        }
    }
}
