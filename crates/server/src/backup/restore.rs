//! Restores a backup into a data directory, as a new incarnation of the cluster (T5).
//!
//! The directory contains the state of the backup and the batch that begins the new incarnation. At no moment would it serve the
//! old state.

use std::fmt;
use std::path::{Path, PathBuf};

use leasehold_core::grantor::{OpenTenureError, Output, RecoveredGrantor, RestoreSpec, TenureOptions};
use leasehold_core::lease::Validity;
use leasehold_core::time::{Now, WallClock};
use leasehold_core::token::{Cluster, Incarnation, Number, plausible_max};

use super::{Backup, BackupFormatError, BackupHeader, VERSION, decode};
use crate::audit::{self, AuditHead};
use crate::journal::OpenError;
use crate::journal::file::{Bootstrap, Directory, Disk, FileOptions, LocalDisk, bootstrap};
use crate::{clock, random};

/// Options of a restore: lower bounds for new token numbers.
#[derive(Clone, Debug, Default)]
pub struct RestoreOptions {
    /// Every new token number is above this number of the operator.
    pub floor: Option<Number>,
    /// The longest ttl that the cluster had since the backup, in milliseconds: the quarantine lasts at least this long.
    pub max_ttl: Option<u64>,
    /// Marks found at targets: every new token number is above those of this cluster too.
    pub marks: Vec<(Cluster, Number)>,
}

/// Result of a restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestoreSummary {
    /// The cluster.
    pub cluster: Cluster,
    /// The new incarnation.
    pub incarnation: Incarnation,
    /// The incarnation of the backup.
    pub previous: Incarnation,
    /// Time of the backup.
    pub taken_at: WallClock,
    /// The journal position of the first new batch.
    pub position: u64,
    /// Every new token number is above this.
    pub floor: u64,
    /// Time during which no lease is granted, once the server runs.
    pub quarantine_ms: u64,
}

/// The restore failed. The directory is unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are named by what they say, and every variant by its sentence")]
pub enum RestoreError {
    /// The backup cannot be read.
    Unreadable { file: PathBuf, reason: String },
    /// The backup is damaged, or it is not a backup.
    Corrupt { file: PathBuf, offset: u64, reason: String },
    /// The backup was written by a newer version.
    Newer { file: PathBuf, have: u32 },
    /// The directory is not empty.
    NotEmpty { path: PathBuf, found: String },
    /// A floor above every number that fences accept: no token of the cluster would be admitted.
    Implausible { floor: Number, max: u64 },
    /// Token numbers could repeat.
    Tenure(OpenTenureError),
    /// The directory cannot be used.
    Journal(OpenError),
}

impl RestoreError {
    /// The stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Corrupt { .. } => "CORRUPT",
            Self::Newer { .. } => "UNSUPPORTED_VERSION",
            Self::Journal(error) => error.code(),
            Self::Implausible { .. } => "TOKEN_IMPLAUSIBLE",
            Self::Unreadable { .. } | Self::NotEmpty { .. } | Self::Tenure(_) => "CONFIG",
        }
    }
}

impl fmt::Display for RestoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { file, reason } => write!(f, "{}: {reason}; choose a readable backup", file.display()),
            Self::Corrupt { file, offset, reason } => {
                write!(f, "{} at byte {offset}: {reason}; use another backup", file.display())
            }
            Self::Newer { file, have } => write!(
                f,
                "{}: format version {have} is newer than {VERSION}; use a newer version of leasehold",
                file.display()
            ),
            Self::NotEmpty { path, found } => {
                write!(f, "{}: not empty, it contains {found}; choose a new directory", path.display())
            }
            Self::Implausible { floor, max } => write!(
                f,
                "tokens above {floor} would be refused by every fence, which accept numbers up to {max} today; check --token-floor, the \
                 marks of the targets and the clock"
            ),
            Self::Tenure(error) => error.fmt(f),
            Self::Journal(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for RestoreError {}

/// Restores a backup into a directory that is empty or does not exist. The whole backup is checked before anything is changed.
pub fn restore(file: &Path, into: &Directory, options: &RestoreOptions) -> Result<RestoreSummary, RestoreError> {
    let bytes = std::fs::read(file)
        .map_err(|error| RestoreError::Unreadable { file: file.to_owned(), reason: error.to_string() })?;
    let backup = decode(&bytes).map_err(|error| match error {
        BackupFormatError::Corrupt { offset, reason } => corrupt(file, offset, reason.to_owned()),
        BackupFormatError::Newer(have) => RestoreError::Newer { file: file.to_owned(), have },
    })?;
    let first_batch = begin(file, &backup, options, clock::now())?;
    let found = std::fs::read_dir(&into.path).ok().and_then(|mut entries| entries.next()?.ok());
    if let Some(found) = found {
        return Err(not_empty(&into.path, &found.file_name().to_string_lossy()));
    }
    let disk = LocalDisk::open(&into.path).map_err(RestoreError::Journal)?;
    write(&disk, &into.options, &backup, first_batch)
}

/// Restores a backup to an empty disk, as of a time.
pub fn restore_onto<D: Disk>(
    disk: &D,
    options: &FileOptions,
    backup: &Backup<'_>,
    restore: &RestoreOptions,
    now: Now,
) -> Result<RestoreSummary, RestoreError> {
    write(disk, options, backup, begin(Path::new("backup"), backup, restore, now)?)
}

fn write<D: Disk>(
    disk: &D,
    options: &FileOptions,
    backup: &Backup<'_>,
    (generation, batch, summary): FirstBatch,
) -> Result<RestoreSummary, RestoreError> {
    let BackupHeader { cluster, position, audit: (entries, hash), wall, .. } = backup.header;
    let audit_header = audit::first_header(cluster, AuditHead { entries, hash, position }, wall.0);
    let (snapshot, batch) = (backup.snapshot, &batch[..]);
    let content = Bootstrap { generation, sequence: position, snapshot, batch, audit_header: &audit_header };
    match bootstrap(disk, options, &content) {
        Ok(None) => Ok(summary),
        Ok(Some(found)) => Err(not_empty(&disk.path(""), &found)),
        Err(error) => Err(RestoreError::Journal(error)),
    }
}

/// No journal has this many batches or generations; a higher count is damage.
const MAX_COUNT: u64 = 1 << 62;

/// Generation and bytes of the first batch of the new incarnation, not yet written.
type FirstBatch = (u64, Vec<u8>, RestoreSummary);

fn begin(file: &Path, backup: &Backup<'_>, options: &RestoreOptions, now: Now) -> Result<FirstBatch, RestoreError> {
    let hash_seed = u64::from_ne_bytes(random::bytes());
    let body = super::HEADER_BYTES as u64;
    let recovered = RecoveredGrantor::from_snapshot(backup.snapshot, hash_seed)
        .map_err(|error| corrupt(file, body + error.at as u64, error.problem.to_owned()))?;
    let header = &backup.header;
    let about = recovered.info().ok_or(RestoreError::Tenure(OpenTenureError::NothingToRestore))?;
    if (about.cluster, about.incarnation, about.counter) != (header.cluster, header.incarnation, header.counter) {
        return Err(corrupt(file, 0, "the header does not match the state".to_owned()));
    }
    if header.position >= MAX_COUNT || about.generation >= MAX_COUNT {
        return Err(corrupt(file, 0, "implausible position or generation".to_owned()));
    }
    let marks = options.marks.iter().filter(|(cluster, _)| *cluster == about.cluster).map(|(_, mark)| *mark);
    // Marks below the backup's counter have no effect; an operator's floor below it is refused when the tenure opens.
    let highest_mark = marks.filter(|mark| mark.get() > about.counter).max();
    let floor = match options.floor {
        Some(floor) if floor.get() <= about.counter => Some(floor),
        floor => floor.max(highest_mark),
    };
    // One day ahead of the clock, or of the backup if the clock is behind it, or of the numbers that the cluster has issued.
    let max = plausible_max(now.wall.max(header.wall)).max(about.counter.saturating_add(plausible_max(WallClock(0))));
    if let Some(floor) = floor.filter(|floor| floor.get() >= max) {
        return Err(RestoreError::Implausible { floor, max });
    }
    if floor.is_none() && now.wall < header.wall {
        return Err(RestoreError::Tenure(OpenTenureError::ClockBehind { backup: header.wall }));
    }
    let incarnation = new_incarnation(about.incarnation);
    let opening = TenureOptions {
        cluster: about.cluster,
        incarnation,
        generation: about.generation + 1,
        validity: Validity::Session,
        max_ttl: options.max_ttl.unwrap_or(0),
        restore: Some(RestoreSpec { incarnation, floor, uid: Some(rustix::process::getuid().as_raw()) }),
    };
    let mut grantor = recovered.open(now, &opening).map_err(RestoreError::Tenure)?;
    let mut output = Output::default();
    grantor.take_output(&mut output);
    let status = grantor.status();
    let summary = RestoreSummary {
        cluster: about.cluster,
        incarnation,
        previous: about.incarnation,
        taken_at: header.wall,
        position: header.position + 1,
        floor: status.counter,
        quarantine_ms: status.quarantine.map_or(0, |(ms, _)| ms),
    };
    Ok((opening.generation, output.batch, summary))
}

/// A random incarnation that differs from the previous one.
fn new_incarnation(previous: Incarnation) -> Incarnation {
    loop {
        let incarnation = Incarnation(u32::from_ne_bytes(random::bytes()));
        if incarnation != previous {
            return incarnation;
        }
    }
}

fn corrupt(file: &Path, offset: u64, reason: String) -> RestoreError {
    RestoreError::Corrupt { file: file.to_owned(), offset, reason }
}

fn not_empty(path: &Path, found: &str) -> RestoreError {
    let found = found.chars().filter(|c| !c.is_control()).collect();
    RestoreError::NotEmpty { path: path.to_owned(), found }
}
