//! From a backup to a data directory that serves a new life of the cluster (T5).
//!
//! What is written is the backup's state and, behind it, the batch that begins the new incarnation: there is no moment
//! at which the directory would serve the state as it was.

use std::fmt;
use std::path::{Path, PathBuf};

use leasehold_core::grantor::{NotOpened, Opening, Output, Recovered, Restoring};
use leasehold_core::lease::Rung;
use leasehold_core::limits::TTL_MAX_DEFAULT;
use leasehold_core::time::{Now, Wall};
use leasehold_core::token::{Cluster, Incarnation, Number};

use super::{Backup, Header, NotABackup, VERSION, read};
use crate::journal::OpenError;
use crate::journal::file::{Directory, Disk, LocalDisk, Options, Planted, plant};
use crate::trail::{self, Head};
use crate::{clock, secret};

/// How a backup is restored.
#[derive(Clone, Debug, Default)]
pub struct Restore {
    /// Every token from now on is above this: an operator's word.
    pub floor: Option<Number>,
    /// What a survey of the targets found: every token from now on is above the marks of this cluster too.
    pub marks: Vec<(Cluster, Number)>,
}

/// What was restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The cluster.
    pub cluster: Cluster,
    /// Its new incarnation.
    pub incarnation: Incarnation,
    /// The incarnation of the backup.
    pub before: Incarnation,
    /// When the backup was taken.
    pub taken: Wall,
    /// The journal position it goes on from.
    pub position: u64,
    /// Every token from now on is above this.
    pub floor: u64,
    /// Nothing is granted for so long, once it is served.
    pub quarantine_ms: u64,
}

/// Why nothing was restored. The directory is as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are named by what they say, and every variant by its sentence")]
pub enum NotRestored {
    /// The backup cannot be read.
    Unreadable { file: PathBuf, why: String },
    /// It is damaged, or no backup.
    Corrupt { file: PathBuf, offset: u64, why: String },
    /// It was written by a newer version.
    Newer { file: PathBuf, have: u32 },
    /// There is something in the directory.
    NotEmpty { path: PathBuf, found: String },
    /// Its tokens could come again.
    NotOpened(NotOpened),
    /// The directory cannot be one.
    Journal(OpenError),
}

impl NotRestored {
    /// The stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Corrupt { .. } => "CORRUPT",
            Self::Newer { .. } => "UNSUPPORTED_VERSION",
            Self::Journal(error) => error.code(),
            Self::Unreadable { .. } | Self::NotEmpty { .. } | Self::NotOpened(_) => "CONFIG",
        }
    }
}

impl fmt::Display for NotRestored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { file, why } => write!(f, "{}: {why}; name a backup that can be read", file.display()),
            Self::Corrupt { file, offset, why } => {
                write!(f, "{} at byte {offset}: {why}; use another backup", file.display())
            }
            Self::Newer { file, have } => write!(
                f,
                "{}: format version {have}, and this program knows up to {VERSION}; use a newer one",
                file.display()
            ),
            Self::NotEmpty { path, found } => {
                write!(f, "{}: not empty, {found} is there; name a new directory", path.display())
            }
            Self::NotOpened(why) => why.fmt(f),
            Self::Journal(why) => why.fmt(f),
        }
    }
}

impl std::error::Error for NotRestored {}

/// Restores a backup into a directory that is empty or not there. All of the backup is checked before anything is touched.
pub fn restore(file: &Path, into: &Directory, asked: &Restore) -> Result<Restored, NotRestored> {
    let bytes = std::fs::read(file)
        .map_err(|error| NotRestored::Unreadable { file: file.to_owned(), why: error.to_string() })?;
    let backup = read(&bytes).map_err(|wrong| match wrong {
        NotABackup::Corrupt { offset, why } => corrupt(file, offset, why.to_owned()),
        NotABackup::Newer(have) => NotRestored::Newer { file: file.to_owned(), have },
    })?;
    let begun = begin(file, &backup, asked, clock::now())?;
    let found = std::fs::read_dir(&into.path).ok().and_then(|mut entries| entries.next()?.ok());
    if let Some(found) = found {
        return Err(not_empty(&into.path, &found.file_name().to_string_lossy()));
    }
    let disk = LocalDisk::open(&into.path).map_err(NotRestored::Journal)?;
    write(&disk, &into.options, &backup, begun)
}

/// Restores a backup onto a disk that holds nothing, as of this time.
pub fn restore_onto<D: Disk>(
    disk: &D,
    options: &Options,
    backup: &Backup<'_>,
    asked: &Restore,
    now: Now,
) -> Result<Restored, NotRestored> {
    write(disk, options, backup, begin(Path::new("backup"), backup, asked, now)?)
}

fn write<D: Disk>(
    disk: &D,
    options: &Options,
    backup: &Backup<'_>,
    (generation, batch, restored): Begun,
) -> Result<Restored, NotRestored> {
    let Header { cluster, position, trail: (entries, hash), wall, .. } = backup.header;
    let trail = trail::begin(cluster, Head { entries, hash, position }, wall.0);
    let planted = Planted { generation, sequence: position, snapshot: backup.snapshot, batch: &batch, trail: &trail };
    match plant(disk, options, &planted) {
        Ok(None) => Ok(restored),
        Ok(Some(found)) => Err(not_empty(&disk.path(""), &found)),
        Err(error) => Err(NotRestored::Journal(error)),
    }
}

/// No journal has had so many batches or writers; what goes on counting from there has no end in sight.
const COUNTS: u64 = 1 << 62;

/// The first batch of the new incarnation with its generation, decided but nowhere written.
type Begun = (u64, Vec<u8>, Restored);

fn begin(file: &Path, backup: &Backup<'_>, asked: &Restore, now: Now) -> Result<Begun, NotRestored> {
    let hash_seed = u64::from_ne_bytes(secret::draw());
    let body = super::HEADER as u64;
    let recovered = Recovered::from_snapshot(backup.snapshot, hash_seed)
        .map_err(|wrong| corrupt(file, body + wrong.at as u64, wrong.why.to_owned()))?;
    let header = &backup.header;
    let about = recovered.about().ok_or(NotRestored::NotOpened(NotOpened::NothingToRestore))?;
    if (about.cluster, about.incarnation, about.counter) != (header.cluster, header.incarnation, header.counter) {
        return Err(corrupt(file, 0, "its header is not about its state".to_owned()));
    }
    if header.position >= COUNTS || about.generation >= COUNTS {
        return Err(corrupt(file, 0, "it counts further than anything was ever counted".to_owned()));
    }
    let marks = asked.marks.iter().filter(|(cluster, _)| *cluster == about.cluster).map(|(_, mark)| *mark);
    // What the backup itself lies above lifts nothing; an operator's word that does is refused below.
    let surveyed = marks.filter(|mark| mark.get() > about.counter).max();
    let floor = match asked.floor {
        Some(floor) if floor.get() <= about.counter => Some(floor),
        floor => floor.max(surveyed),
    };
    if floor.is_none() && now.wall < header.wall {
        return Err(NotRestored::NotOpened(NotOpened::ClockBehind { backup: header.wall }));
    }
    let incarnation = another(about.incarnation);
    let opening = Opening {
        cluster: about.cluster,
        incarnation,
        generation: about.generation + 1,
        rung: Rung::Session,
        max_ttl: TTL_MAX_DEFAULT,
        restore: Some(Restoring { incarnation, floor }),
    };
    let mut grantor = recovered.open(now, &opening).map_err(NotRestored::NotOpened)?;
    let mut output = Output::default();
    grantor.take_output(&mut output);
    let status = grantor.status();
    let restored = Restored {
        cluster: about.cluster,
        incarnation,
        before: about.incarnation,
        taken: header.wall,
        position: header.position + 1,
        floor: status.counter,
        quarantine_ms: status.quarantine.map_or(0, |(ms, _)| ms),
    };
    Ok((opening.generation, output.batch, restored))
}

/// A new life has a name of its own.
fn another(before: Incarnation) -> Incarnation {
    loop {
        let drawn = Incarnation(u32::from_ne_bytes(secret::draw()));
        if drawn != before {
            return drawn;
        }
    }
}

fn corrupt(file: &Path, offset: u64, why: String) -> NotRestored {
    NotRestored::Corrupt { file: file.to_owned(), offset, why }
}

fn not_empty(path: &Path, found: &str) -> NotRestored {
    let found = found.chars().filter(|letter| !letter.is_control()).collect();
    NotRestored::NotEmpty { path: path.to_owned(), found }
}
