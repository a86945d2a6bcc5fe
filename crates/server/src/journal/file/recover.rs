//! What a directory says about its journal: every batch told once, a torn end cut, anything else refused (V2).
//!
//! Nothing is changed until all of it was read and found good.

use std::io;
use std::sync::atomic::AtomicBool;

use super::disk::{Disk, Whereabouts};
use super::frame::{self, Found};
use super::header::{self, JournalId, Unfit, VERSION};
use super::identity::{Identity, NoIdentity};
use super::names::{self, Kind};
use super::spare::{prepare, remove_if_there};
use super::{Active, begin_segment};
use crate::journal::{FIRST, OpenError, Replay};

/// What was found, and is this writer's from here on.
pub(super) struct Recovered<F> {
    pub identity: Identity,
    pub segments: Vec<(u64, u64)>,
    pub snapshots: Vec<u64>,
    pub active: Active<F>,
    /// The frame of the last batch, if it is in the active segment.
    pub last: Vec<u8>,
    /// A spare of the right size is there.
    pub spare: bool,
}

/// Reads a journal back, or begins one in an empty directory.
pub(super) fn recover<D: Disk>(
    disk: &D,
    segment_bytes: u64,
    accept_copy: bool,
    replay: &mut dyn Replay,
    warnings: &mut Vec<String>,
) -> Result<Recovered<D::File>, OpenError> {
    let listing = Listing::read(disk)?;
    if !listing.identity {
        return begin(disk, &listing, segment_bytes);
    }
    let (before, generation) = Identity::read(disk).map_err(|error| match error {
        NoIdentity::Io(error) => refused(disk, names::IDENTITY, &error),
        NoIdentity::Unfit(unfit) => unfit_file(disk, names::IDENTITY, unfit),
    })?;
    let here = disk.whereabouts();
    match difference(&before.whereabouts, &here) {
        Some(what) if !accept_copy => return Err(OpenError::Copied { path: disk.path(""), what }),
        _ => {}
    }
    let headers = headers(disk, &listing, before.journal)?;
    let (snapshot, snapshots) = newest_snapshot(disk, &listing, before.journal, headers[0].0.first, warnings)?;
    let covered = snapshot.as_ref().map_or(FIRST - 1, |(sequence, _)| *sequence);
    if let Some((sequence, bytes)) = &snapshot {
        let name = names::snapshot(*sequence);
        let told = replay.snapshot(*sequence, &bytes[header::BYTES..]);
        told.map_err(|wrong| corrupt(disk, &name, header::BYTES + wrong.at, wrong.why))?;
    }
    drop(snapshot);
    let mut log = Log { disk, covered, next: headers[0].0.first, at: 0, last: None };
    let mut bytes = Vec::new();
    for (place, (segment, salt)) in headers.iter().enumerate() {
        log.read(segment, *salt, headers.get(place + 1).map(|(next, _)| next), &mut bytes, replay)?;
    }
    let (segment, salt) = headers.last().expect("a journal has a segment");
    let name = names::segment(segment.number);
    if log.next <= covered {
        let reason = format!("newer than the log, which ends before sequence {}", log.next);
        return Err(corrupt(disk, &names::snapshot(covered), 0, reason));
    }
    if log.next < before.next || segment.number < before.segment {
        let reason = format!("the log ends before sequence {}, which came next at the last open", before.next);
        return Err(corrupt(disk, &name, log.at, reason));
    }
    let torn = frame::written(&bytes).max(log.at) - log.at;
    if torn > 0 {
        let path = disk.path(&name);
        warnings.push(format!("{}: the last batch is not whole and is cut at byte {}", path.display(), log.at));
    }

    // All is read and good. From here on the directory changes.
    for draft in &listing.drafts {
        remove_if_there(disk, draft).map_err(|error| refused(disk, draft, &error))?;
    }
    let file = disk.open(&name).map_err(|error| refused(disk, &name, &error))?;
    let mut last = Vec::new();
    if let Some((sequence, from, to)) = log.last {
        frame::encode(*salt, sequence, &bytes[from..to], &mut last);
    }
    make_certain(disk, &file, log.at, torn, &last).map_err(|error| refused(disk, &name, &error))?;
    let identity =
        Identity { journal: before.journal, generation, segment: segment.number, next: log.next, whereabouts: here };
    identity.replace(disk).map_err(|error| refused(disk, names::IDENTITY, &error))?;
    Ok(Recovered {
        identity,
        segments: headers.iter().map(|(segment, _)| (segment.number, segment.first)).collect(),
        snapshots,
        active: Active {
            file,
            number: segment.number,
            salt: *salt,
            at: log.at as u64,
            // A file that was cut short has less room, and none behind a batch whose zeros are missing.
            end: bytes.len().max(log.at) as u64,
        },
        last,
        spare: listing.spare && has_spare(disk, segment_bytes)?,
    })
}

/// What was read may be in the kernel's memory only: after a kill it waits to be written, after a failed sync it was
/// given up. So the last batch is written again, what is torn behind it becomes zeros, and names are synced.
fn make_certain<D: Disk>(disk: &D, file: &D::File, end: usize, torn: usize, last: &[u8]) -> io::Result<()> {
    disk.write(file, (end - last.len()) as u64, last)?;
    if torn > 0 {
        disk.write(file, end as u64, &vec![0; torn])?;
    }
    disk.sync(file)?;
    disk.sync_names()
}

/// The names in a directory, told apart.
#[derive(Default)]
struct Listing {
    segments: Vec<u64>,
    snapshots: Vec<u64>,
    drafts: Vec<String>,
    identity: bool,
    spare: bool,
    restoring: bool,
}

impl Listing {
    fn read<D: Disk>(disk: &D) -> Result<Self, OpenError> {
        let mut listing = Self::default();
        for name in disk.names().map_err(|error| refused(disk, "", &error))? {
            match names::kind(&name) {
                Kind::Segment(number) => listing.segments.push(number),
                Kind::Snapshot(sequence) => listing.snapshots.push(sequence),
                Kind::Draft => listing.drafts.push(name),
                Kind::Identity => listing.identity = true,
                Kind::Spare => listing.spare = true,
                Kind::Restoring => listing.restoring = true,
                Kind::Misnamed => return Err(corrupt(disk, &name, 0, "no segment or snapshot has such a name")),
                Kind::Trail(_) | Kind::Other => {}
            }
        }
        listing.segments.sort_unstable();
        listing.snapshots.sort_unstable();
        listing.drafts.sort_unstable();
        Ok(listing)
    }
}

/// Begins a journal. The identity comes last: until it is there, nothing was ever appended.
fn begin<D: Disk>(disk: &D, listing: &Listing, segment_bytes: u64) -> Result<Recovered<D::File>, OpenError> {
    let number = 1;
    if listing.restoring {
        return Err(OpenError::Unfinished { path: disk.path("") });
    }
    let mut bytes = Vec::new();
    for &left in &listing.segments {
        let name = names::segment(left);
        let file = disk.open(&name).map_err(|error| refused(disk, &name, &error))?;
        read_all(disk, &file, u64::MAX, &mut bytes).map_err(|error| refused(disk, &name, &error))?;
        if left != number || frame::written(&bytes) > header::BYTES {
            return Err(corrupt(disk, names::IDENTITY, 0, "missing, though there are batches"));
        }
    }
    if !listing.snapshots.is_empty() {
        return Err(corrupt(disk, names::IDENTITY, 0, "missing, though there are snapshots"));
    }
    for draft in &listing.drafts {
        remove_if_there(disk, draft).map_err(|error| refused(disk, draft, &error))?;
    }
    let spare = |error: io::Error| refused(disk, names::SPARE, &error);
    if !(listing.spare && has_spare(disk, segment_bytes)?) {
        prepare(disk, segment_bytes, &AtomicBool::new(false)).map_err(spare)?;
    }
    let journal = disk.random().map_err(|error| refused(disk, "", &error))?;
    let (file, salt) = begin_segment(disk, journal, number, FIRST, segment_bytes)
        .map_err(|(name, error, _)| refused(disk, &name, &error))?;
    let identity = Identity { journal, generation: 1, segment: number, next: FIRST, whereabouts: disk.whereabouts() };
    identity.create(disk).map_err(|error| refused(disk, names::IDENTITY, &error))?;
    Ok(Recovered {
        identity,
        segments: vec![(number, FIRST)],
        snapshots: Vec::new(),
        active: Active { file, number, salt, at: header::BYTES as u64, end: segment_bytes },
        last: Vec::new(),
        spare: false,
    })
}

/// Reads every segment's header: one journal, one after the other, none missing.
fn headers<D: Disk>(disk: &D, listing: &Listing, journal: JournalId) -> Result<Vec<(header::Segment, u32)>, OpenError> {
    let mut headers: Vec<(header::Segment, u32)> = Vec::new();
    for &number in &listing.segments {
        let name = names::segment(number);
        let refuse = |error| refused(disk, &name, &error);
        let file = disk.open(&name).map_err(refuse)?;
        let mut bytes = [0; header::BYTES];
        let got = disk.read(&file, 0, &mut bytes).map_err(refuse)?;
        let (segment, salt) = header::Segment::decode(&bytes[..got]).map_err(|unfit| unfit_file(disk, &name, unfit))?;
        if segment.journal != journal {
            return Err(OpenError::Foreign { file: disk.path(&name) });
        }
        if segment.number != number {
            let reason = format!("its header says that it is segment {}", segment.number);
            return Err(corrupt(disk, &name, 0, reason));
        }
        if disk.len(&file).map_err(refuse)? > segment.size {
            return Err(corrupt(disk, &name, segment.size as usize, "longer than its header says"));
        }
        if let Some((before, _)) = headers.last()
            && before.number + 1 != number
        {
            return Err(corrupt(disk, &names::segment(before.number + 1), 0, "missing, though there is a later one"));
        }
        headers.push((segment, salt));
    }
    if headers.is_empty() {
        return Err(corrupt(disk, names::IDENTITY, 0, "there is no segment"));
    }
    Ok(headers)
}

/// The newest snapshot that is whole, as a file's bytes, and the sequences of all that may be. A damaged one is passed
/// over only if the log covers the gap.
#[allow(clippy::type_complexity, reason = "a pair that is taken apart at once")]
fn newest_snapshot<D: Disk>(
    disk: &D,
    listing: &Listing,
    journal: JournalId,
    log_begins: u64,
    warnings: &mut Vec<String>,
) -> Result<(Option<(u64, Vec<u8>)>, Vec<u64>), OpenError> {
    let mut left = listing.snapshots.clone();
    let mut damaged = None;
    let mut found = None;
    while let Some(&sequence) = left.last() {
        let name = names::snapshot(sequence);
        let refuse = |error| refused(disk, &name, &error);
        let file = disk.open(&name).map_err(refuse)?;
        let mut bytes = Vec::new();
        read_all(disk, &file, u64::MAX, &mut bytes).map_err(refuse)?;
        match header::Snapshot::decode(&bytes) {
            Ok(header) if header.journal != journal => return Err(OpenError::Foreign { file: disk.path(&name) }),
            Ok(header) if header.sequence != sequence => {
                let reason = format!("its header says that it is of sequence {}", header.sequence);
                return Err(corrupt(disk, &name, 0, reason));
            }
            Ok(_) => {
                found = Some((sequence, bytes));
                break;
            }
            Err(Unfit::Corrupt(why)) => {
                damaged.get_or_insert((name, why));
                left.pop();
            }
            Err(newer) => return Err(unfit_file(disk, &name, newer)),
        }
    }
    let covered = found.as_ref().map_or(FIRST - 1, |(sequence, _)| *sequence);
    match damaged {
        _ if log_begins <= covered.saturating_add(1) => {}
        Some((name, why)) => {
            let reason = format!("{why}, and the log begins at sequence {log_begins}, too late to do without");
            return Err(corrupt(disk, &name, 0, reason));
        }
        None => {
            let name = names::segment(listing.segments[0]);
            let reason = format!("the log begins at sequence {log_begins}, and snapshots end at {covered}");
            return Err(corrupt(disk, &name, 0, reason));
        }
    }
    if let Some((name, why)) = damaged {
        let path = disk.path(&name);
        warnings.push(format!("{}: {why}; the log since sequence {covered} is used instead", path.display()));
    }
    Ok((found, left))
}

/// The log as far as it was read.
struct Log<'a, D> {
    disk: &'a D,
    covered: u64,
    /// The sequence that comes next.
    next: u64,
    /// Where the last segment read has its end.
    at: usize,
    /// The last batch of that segment: its sequence, and where its bytes lie.
    last: Option<(u64, usize, usize)>,
}

impl<D: Disk> Log<'_, D> {
    /// Tells the batches of one segment, whose bytes are left in `bytes`.
    fn read(
        &mut self,
        segment: &header::Segment,
        salt: u32,
        following: Option<&header::Segment>,
        bytes: &mut Vec<u8>,
        replay: &mut dyn Replay,
    ) -> Result<(), OpenError> {
        let name = names::segment(segment.number);
        let refuse = |error| refused(self.disk, &name, &error);
        let file = self.disk.open(&name).map_err(refuse)?;
        read_all(self.disk, &file, segment.size, bytes).map_err(refuse)?;
        if segment.first != self.next {
            let reason = format!("begins at sequence {} where {} follows", segment.first, self.next);
            return Err(corrupt(self.disk, &name, 0, reason));
        }
        (self.at, self.last) = (header::BYTES, None);
        let why = loop {
            let (sequence, batch, end) = match frame::look(salt, bytes, self.at) {
                Found::Batch { sequence, bytes, end } => (sequence, Some(bytes), end),
                Found::Seal { sequence } => (sequence, None, self.at),
                Found::Nothing => break "a batch is missing",
                Found::Broken(why) => break why,
            };
            if sequence != self.next {
                let reason = format!("sequence {sequence} where {} follows", self.next);
                return Err(corrupt(self.disk, &name, self.at, reason));
            }
            match batch {
                None if following.is_some() => return Ok(()),
                None => {
                    let missing = names::segment(segment.number + 1);
                    return Err(corrupt(self.disk, &missing, 0, "missing, though the segment before it is sealed"));
                }
                Some(batch) => {
                    let from = self.at + frame::HEAD;
                    if sequence > self.covered {
                        let told = replay.batch(sequence, batch);
                        told.map_err(|wrong| corrupt(self.disk, &name, from + wrong.at, wrong.why))?;
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
            None => frame::later(salt, bytes, self.at, self.next).map(|place| format!("the batch at byte {place}")),
        };
        proof.map_or(Ok(()), |proof| {
            let reason = format!("{why} (sequence {}), and {proof} comes after it", self.next);
            Err(corrupt(self.disk, &name, self.at, reason))
        })
    }
}

/// Reads a file, or as much of it as is wanted. What is allocated is what the file has.
pub(super) fn read_all<D: Disk>(disk: &D, file: &D::File, most: u64, into: &mut Vec<u8>) -> io::Result<()> {
    let length = disk.len(file)?.min(most);
    into.resize(usize::try_from(length).map_err(|_| io::ErrorKind::FileTooLarge)?, 0);
    let got = disk.read(file, 0, into)?;
    into.truncate(got);
    Ok(())
}

/// A spare of another size is none.
fn has_spare<D: Disk>(disk: &D, bytes: u64) -> Result<bool, OpenError> {
    let refuse = |error| refused(disk, names::SPARE, &error);
    let file = disk.open(names::SPARE).map_err(refuse)?;
    Ok(disk.len(&file).map_err(refuse)? == bytes)
}

fn difference(then: &Whereabouts, now: &Whereabouts) -> Option<&'static str> {
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

fn unfit_file<D: Disk>(disk: &D, name: &str, unfit: Unfit) -> OpenError {
    match unfit {
        Unfit::Corrupt(why) => corrupt(disk, name, 0, why),
        Unfit::Newer(have) => OpenError::UnsupportedVersion { file: disk.path(name), have, want: VERSION },
    }
}

fn refused<D: Disk>(disk: &D, name: &str, error: &io::Error) -> OpenError {
    OpenError::from_io(&disk.path(name), error)
}
