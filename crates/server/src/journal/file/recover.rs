//! Recovery of a file journal: replays every batch once, truncates an incomplete last batch, and refuses any other damage (V2).
//!
//! Nothing is changed until everything is read and valid.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

use super::audit_files::DiskAuditFiles;
use super::disk::{Disk, HostIdentity};
use super::frame::{self, FrameScan};
use super::header::{self, FileHeaderError, JournalId, VERSION};
use super::identity::{IdentityError, JournalIdentity};
use super::names::{self, FileKind};
use super::preallocate::{prepare, remove_if_exists};
use super::{ActiveSegment, begin_segment};
use crate::journal::{FIRST, OpenError, Replay};

/// The recovered files.
pub(super) struct RecoveredFiles<F> {
    pub identity: JournalIdentity,
    pub segments: Vec<(u64, u64)>,
    pub snapshots: Vec<u64>,
    pub active: ActiveSegment<F>,
    /// The frame of the last batch, if it is in the active segment.
    pub last: Vec<u8>,
    /// Whether a spare of the right size exists.
    pub spare: bool,
}

/// Recovers a journal, or creates one in an empty directory.
pub(super) fn recover<D: Disk>(
    disk: &D,
    segment_bytes: u64,
    accept_copy: bool,
    replay: &mut dyn Replay,
    warnings: &mut Vec<String>,
) -> Result<RecoveredFiles<D::File>, OpenError> {
    let listing = DirectoryListing::read(disk)?;
    if !listing.identity {
        return create(disk, &listing, segment_bytes);
    }
    let (previous, generation) = JournalIdentity::read(disk).map_err(|error| match error {
        IdentityError::Io(error) => io_error(disk, names::IDENTITY, &error),
        IdentityError::Header(offset, error) => header_error(disk, names::IDENTITY, offset as usize, error),
    })?;
    let host = disk.host_identity();
    match difference(&previous.host, &host) {
        Some(what) if !accept_copy => return Err(OpenError::Copied { path: disk.path(""), what }),
        _ => {}
    }
    let headers = headers(disk, &listing, previous.journal)?;
    let (snapshot, snapshots) = newest_snapshot(disk, &listing, previous.journal, headers[0].0.first, warnings)?;
    let covered = snapshot.as_ref().map_or(FIRST - 1, |(sequence, _)| *sequence);
    if let Some((sequence, bytes)) = &snapshot {
        let name = names::snapshot(*sequence);
        let replayed = replay.snapshot(*sequence, &bytes[header::BYTES..]);
        replayed.map_err(|error| corrupt(disk, &name, header::BYTES + error.at, error.problem))?;
    }
    drop(snapshot);
    let mut log = SegmentReader { disk, covered, next: headers[0].0.first, at: 0, last: None };
    let mut bytes = Vec::new();
    for (index, (segment, salt)) in headers.iter().enumerate() {
        log.read(segment, *salt, headers.get(index + 1).map(|(next, _)| next), &mut bytes, replay)?;
    }
    let (segment, salt) = headers.last().expect("a journal has a segment");
    let name = names::segment(segment.number);
    if log.next <= covered {
        let reason = format!("the snapshot is newer than the log, which ends before sequence {}", log.next);
        return Err(corrupt(disk, &names::snapshot(covered), 0, reason));
    }
    if log.next < previous.next || segment.number < previous.segment {
        let reason = format!(
            "the log ends before sequence {}, which was next at the last open, clean stop or failure",
            previous.next
        );
        return Err(corrupt(disk, &name, log.at, reason));
    }
    let files = DiskAuditFiles { disk, failed: &OnceLock::new() };
    if let Some((audited, proof)) = replay.audited(&files).filter(|(audited, _)| *audited >= log.next) {
        let reason = format!("the log ends before sequence {}, but {proof} was derived from batch {audited}", log.next);
        return Err(corrupt(disk, &name, log.at, reason));
    }
    let torn = frame::written_bytes(&bytes).max(log.at) - log.at;
    if torn > 0 {
        let path = disk.path(&name);
        warnings.push(format!("{}: the incomplete last batch is truncated at byte {}", path.display(), log.at));
    }

    // Everything is read and valid. From here on the directory is changed.
    for draft in &listing.drafts {
        remove_if_exists(disk, draft).map_err(|error| io_error(disk, draft, &error))?;
    }
    let file = disk.open(&name).map_err(|error| io_error(disk, &name, &error))?;
    let mut last = Vec::new();
    if let Some((sequence, from, to)) = log.last {
        frame::encode(*salt, sequence, &bytes[from..to], &mut last);
    }
    make_durable(disk, &file, log.at, torn, &last).map_err(|error| io_error(disk, &name, &error))?;
    let identity =
        JournalIdentity { journal: previous.journal, generation, segment: segment.number, next: log.next, host };
    identity.replace(disk).map_err(|error| io_error(disk, names::IDENTITY, &error))?;
    Ok(RecoveredFiles {
        identity,
        segments: headers.iter().map(|(segment, _)| (segment.number, segment.first)).collect(),
        snapshots,
        active: ActiveSegment {
            file,
            number: segment.number,
            salt: *salt,
            at: log.at as u64,
            // A truncated file has less space, and none if the padding of its last batch is missing.
            end: bytes.len().max(log.at) as u64,
        },
        last,
        spare: listing.spare && has_spare(disk, segment_bytes)?,
    })
}

/// Makes what was read durable. It may be only in the page cache: not yet written after a kill, or dropped after a failed sync. So
/// the last batch is written again, torn bytes after it become zeros, and the file and the names are synced.
fn make_durable<D: Disk>(disk: &D, file: &D::File, end: usize, torn: usize, last: &[u8]) -> io::Result<()> {
    disk.write(file, (end - last.len()) as u64, last)?;
    if torn > 0 {
        disk.write(file, end as u64, &vec![0; torn])?;
    }
    disk.sync(file)?;
    disk.sync_names()
}

/// The files of a directory, by kind.
#[derive(Default)]
struct DirectoryListing {
    segments: Vec<u64>,
    snapshots: Vec<u64>,
    drafts: Vec<String>,
    identity: bool,
    spare: bool,
    restoring: bool,
}

impl DirectoryListing {
    fn read<D: Disk>(disk: &D) -> Result<Self, OpenError> {
        let mut listing = Self::default();
        for name in disk.names().map_err(|error| io_error(disk, "", &error))? {
            match names::kind(&name) {
                FileKind::Segment(number) => listing.segments.push(number),
                FileKind::Snapshot(sequence) => listing.snapshots.push(sequence),
                FileKind::Draft => listing.drafts.push(name),
                FileKind::Identity => listing.identity = true,
                FileKind::Spare => listing.spare = true,
                FileKind::Restoring => listing.restoring = true,
                FileKind::Misnamed => return Err(corrupt(disk, &name, 0, "invalid name of a segment or snapshot")),
                FileKind::Audit(_) | FileKind::Heads | FileKind::Other => {}
            }
        }
        listing.segments.sort_unstable();
        listing.snapshots.sort_unstable();
        listing.drafts.sort_unstable();
        Ok(listing)
    }
}

/// Creates a journal. The identity is written last: without it, nothing was ever appended.
fn create<D: Disk>(
    disk: &D,
    listing: &DirectoryListing,
    segment_bytes: u64,
) -> Result<RecoveredFiles<D::File>, OpenError> {
    let number = 1;
    if listing.restoring {
        return Err(OpenError::Unfinished { path: disk.path("") });
    }
    let mut bytes = Vec::new();
    for &left in &listing.segments {
        let name = names::segment(left);
        let file = disk.open(&name).map_err(|error| io_error(disk, &name, &error))?;
        read_all(disk, &file, u64::MAX, &mut bytes).map_err(|error| io_error(disk, &name, &error))?;
        if left != number || frame::written_bytes(&bytes) > header::BYTES {
            return Err(corrupt(disk, names::IDENTITY, 0, "missing, although there are batches"));
        }
    }
    if !listing.snapshots.is_empty() {
        return Err(corrupt(disk, names::IDENTITY, 0, "missing, although there are snapshots"));
    }
    for draft in &listing.drafts {
        remove_if_exists(disk, draft).map_err(|error| io_error(disk, draft, &error))?;
    }
    let spare = |error: io::Error| io_error(disk, names::SPARE, &error);
    if !(listing.spare && has_spare(disk, segment_bytes)?) {
        prepare(disk, segment_bytes, &AtomicBool::new(false)).map_err(spare)?;
    }
    let journal = disk.random().map_err(|error| io_error(disk, "", &error))?;
    let (file, salt) = begin_segment(disk, journal, number, FIRST, segment_bytes)
        .map_err(|(name, error, _)| io_error(disk, &name, &error))?;
    let identity = JournalIdentity { journal, generation: 1, segment: number, next: FIRST, host: disk.host_identity() };
    identity.create(disk).map_err(|error| io_error(disk, names::IDENTITY, &error))?;
    Ok(RecoveredFiles {
        identity,
        segments: vec![(number, FIRST)],
        snapshots: Vec::new(),
        active: ActiveSegment { file, number, salt, at: header::BYTES as u64, end: segment_bytes },
        last: Vec::new(),
        spare: false,
    })
}

/// Reads the headers of all segments: of one journal, with no number missing.
fn headers<D: Disk>(
    disk: &D,
    listing: &DirectoryListing,
    journal: JournalId,
) -> Result<Vec<(header::SegmentHeader, u32)>, OpenError> {
    let mut headers: Vec<(header::SegmentHeader, u32)> = Vec::new();
    for &number in &listing.segments {
        let name = names::segment(number);
        let refuse = |error| io_error(disk, &name, &error);
        let file = disk.open(&name).map_err(refuse)?;
        let mut bytes = [0; header::BYTES];
        let got = disk.read(&file, 0, &mut bytes).map_err(refuse)?;
        let (segment, salt) =
            header::SegmentHeader::decode(&bytes[..got]).map_err(|error| header_error(disk, &name, 0, error))?;
        if segment.journal != journal {
            return Err(OpenError::Foreign { file: disk.path(&name) });
        }
        if segment.number != number {
            let reason = format!("the header names segment {}", segment.number);
            return Err(corrupt(disk, &name, 0, reason));
        }
        if disk.len(&file).map_err(refuse)? > segment.size {
            return Err(corrupt(disk, &name, segment.size as usize, "longer than the header states"));
        }
        if let Some((previous, _)) = headers.last()
            && previous.number + 1 != number
        {
            return Err(corrupt(
                disk,
                &names::segment(previous.number + 1),
                0,
                "missing, although there is a later one",
            ));
        }
        headers.push((segment, salt));
    }
    if headers.is_empty() {
        return Err(corrupt(disk, names::IDENTITY, 0, "no segment"));
    }
    Ok(headers)
}

/// The bytes of the newest valid snapshot file, and the sequences of the snapshots that are left. A damaged snapshot is skipped
/// only if the log replaces it.
#[allow(clippy::type_complexity, reason = "a pair that is destructured at once")]
fn newest_snapshot<D: Disk>(
    disk: &D,
    listing: &DirectoryListing,
    journal: JournalId,
    log_starts: u64,
    warnings: &mut Vec<String>,
) -> Result<(Option<(u64, Vec<u8>)>, Vec<u64>), OpenError> {
    let mut left = listing.snapshots.clone();
    let mut damaged = None;
    let mut found = None;
    while let Some(&sequence) = left.last() {
        let name = names::snapshot(sequence);
        let refuse = |error| io_error(disk, &name, &error);
        let file = disk.open(&name).map_err(refuse)?;
        let mut bytes = Vec::new();
        read_all(disk, &file, u64::MAX, &mut bytes).map_err(refuse)?;
        match header::SnapshotHeader::decode(&bytes) {
            Ok(header) if header.journal != journal => return Err(OpenError::Foreign { file: disk.path(&name) }),
            Ok(header) if header.sequence != sequence => {
                let reason = format!("the header names sequence {}", header.sequence);
                return Err(corrupt(disk, &name, 0, reason));
            }
            Ok(_) => {
                found = Some((sequence, bytes));
                break;
            }
            Err(FileHeaderError::Corrupt(reason)) => {
                damaged.get_or_insert((name, reason));
                left.pop();
            }
            Err(error) => return Err(header_error(disk, &name, 0, error)),
        }
    }
    let covered = found.as_ref().map_or(FIRST - 1, |(sequence, _)| *sequence);
    match damaged {
        _ if log_starts <= covered.saturating_add(1) => {}
        Some((name, reason)) => {
            let reason = format!("{reason}, and the log starts only at sequence {log_starts}");
            return Err(corrupt(disk, &name, 0, reason));
        }
        None => {
            let name = names::segment(listing.segments[0]);
            let reason = format!("the log starts at sequence {log_starts}, but snapshots end at {covered}");
            return Err(corrupt(disk, &name, 0, reason));
        }
    }
    if let Some((name, reason)) = damaged {
        let path = disk.path(&name);
        warnings.push(format!("{}: {reason}; the log since sequence {covered} is used instead", path.display()));
    }
    Ok((found, left))
}

/// Reads the segments in order.
struct SegmentReader<'a, D> {
    disk: &'a D,
    covered: u64,
    /// The next sequence.
    next: u64,
    /// The end of the last segment that was read.
    at: usize,
    /// The last batch of that segment: its sequence and the range of its bytes.
    last: Option<(u64, usize, usize)>,
}

impl<D: Disk> SegmentReader<'_, D> {
    /// Replays the batches of one segment and leaves its bytes in `bytes`.
    fn read(
        &mut self,
        segment: &header::SegmentHeader,
        salt: u32,
        following: Option<&header::SegmentHeader>,
        bytes: &mut Vec<u8>,
        replay: &mut dyn Replay,
    ) -> Result<(), OpenError> {
        let name = names::segment(segment.number);
        let refuse = |error| io_error(self.disk, &name, &error);
        let file = self.disk.open(&name).map_err(refuse)?;
        read_all(self.disk, &file, segment.size, bytes).map_err(refuse)?;
        if segment.first != self.next {
            let reason = format!("starts at sequence {}, expected {}", segment.first, self.next);
            return Err(corrupt(self.disk, &name, 0, reason));
        }
        (self.at, self.last) = (header::BYTES, None);
        let reason = loop {
            let (sequence, batch, end) = match frame::read(salt, bytes, self.at) {
                FrameScan::Batch { sequence, bytes, end } => (sequence, Some(bytes), end),
                FrameScan::Seal { sequence } => (sequence, None, self.at),
                FrameScan::Empty => break "missing batch",
                FrameScan::Damaged(reason) => break reason,
            };
            if sequence != self.next {
                let reason = format!("sequence {sequence}, expected {}", self.next);
                return Err(corrupt(self.disk, &name, self.at, reason));
            }
            match batch {
                None if following.is_some() => return Ok(()),
                None => {
                    let missing = names::segment(segment.number + 1);
                    return Err(corrupt(self.disk, &missing, 0, "missing, although the previous segment is sealed"));
                }
                Some(batch) => {
                    let from = self.at + frame::HEAD;
                    if sequence > self.covered {
                        let replayed = replay.batch(sequence, batch);
                        replayed.map_err(|error| corrupt(self.disk, &name, from + error.at, error.problem))?;
                    }
                    self.last = Some((sequence, from, from + batch.len()));
                    self.next = sequence.saturating_add(1);
                    self.at = end;
                }
            }
        };
        let proof = match following {
            Some(following) if following.first > self.next => Some(format!("segment {}", following.number)),
            Some(_) => None,
            None => {
                frame::find_later(salt, bytes, self.at, self.next).map(|offset| format!("the batch at byte {offset}"))
            }
        };
        proof.map_or(Ok(()), |proof| {
            let reason = format!("{reason} (sequence {}), but {proof} follows it", self.next);
            Err(corrupt(self.disk, &name, self.at, reason))
        })
    }
}

/// Reads a file, at most `max` bytes of it.
pub(super) fn read_all<D: Disk>(disk: &D, file: &D::File, max: u64, into: &mut Vec<u8>) -> io::Result<()> {
    let length = disk.len(file)?.min(max);
    *into = vec![0; usize::try_from(length).map_err(|_| io::ErrorKind::FileTooLarge)?];
    let got = disk.read(file, 0, into)?;
    into.truncate(got);
    Ok(())
}

/// Whether the spare has the right size.
fn has_spare<D: Disk>(disk: &D, bytes: u64) -> Result<bool, OpenError> {
    let refuse = |error| io_error(disk, names::SPARE, &error);
    let file = disk.open(names::SPARE).map_err(refuse)?;
    Ok(disk.len(&file).map_err(refuse)? == bytes)
}

fn difference(then: &HostIdentity, now: &HostIdentity) -> Option<&'static str> {
    match () {
        () if then.machine != now.machine => Some("machine"),
        () if then.device != now.device => Some("device"),
        () if then.inode != now.inode => Some("inode"),
        () => None,
    }
}

fn corrupt<D: Disk>(disk: &D, name: &str, offset: usize, reason: impl Into<String>) -> OpenError {
    OpenError::Corrupt { file: disk.path(name), offset: offset as u64, reason: reason.into() }
}

fn header_error<D: Disk>(disk: &D, name: &str, offset: usize, error: FileHeaderError) -> OpenError {
    match error {
        FileHeaderError::Corrupt(reason) => corrupt(disk, name, offset, reason),
        FileHeaderError::Newer(have) => OpenError::UnsupportedVersion { file: disk.path(name), have, want: VERSION },
    }
}

fn io_error<D: Disk>(disk: &D, name: &str, error: &io::Error) -> OpenError {
    OpenError::from_io(&disk.path(name), error)
}
