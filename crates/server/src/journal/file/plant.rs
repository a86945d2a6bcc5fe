//! A journal that begins with a state and one batch: what a restore leaves.
//!
//! A mark comes first and the identity last. Between them a crash leaves a directory that nobody opens: it is neither
//! what was restored nor a new journal.

use std::io;
use std::sync::atomic::AtomicBool;

use super::disk::Disk;
use super::identity::Identity;
use super::spare::{PACE, prepare, remove_if_there};
use super::{Options, begin_segment, frame, header, names};
use crate::journal::OpenError;

/// What a journal begins with.
#[derive(Clone, Copy, Debug)]
pub struct Planted<'a> {
    /// The generation that wrote the batch.
    pub generation: u64,
    /// The batch up to which the state goes.
    pub sequence: u64,
    /// The state.
    pub snapshot: &'a [u8],
    /// The batch after it.
    pub batch: &'a [u8],
    /// The beginning of the audit trail's first part.
    pub trail: &'a [u8],
}

/// Begins a journal on a disk that holds nothing else; tells what it found there otherwise.
pub fn plant<D: Disk>(disk: &D, options: &Options, planted: &Planted<'_>) -> Result<Option<String>, OpenError> {
    let refused = |name: &str| {
        let path = disk.path(name);
        move |error: io::Error| OpenError::from_io(&path, &error)
    };
    let found = disk.names().map_err(refused(""))?;
    let mut found = found.into_iter().filter(|name| !["", ".", "..", names::PID].contains(&name.as_str()));
    if let Some(found) = found.next() {
        return Ok(Some(found));
    }
    let written = write(disk, options, planted);
    if written.is_err() {
        clear(disk);
    }
    written.map(|()| None).map_err(|(name, error)| OpenError::from_io(&disk.path(&name), &error))
}

fn write<D: Disk>(disk: &D, options: &Options, planted: &Planted<'_>) -> Result<(), (String, io::Error)> {
    let at = |name: &str| {
        let name = name.to_owned();
        move |error: io::Error| (name, error)
    };
    let mark = disk.create(names::RESTORING).map_err(at(names::RESTORING))?;
    disk.sync(&mark).map_err(at(names::RESTORING))?;
    disk.sync_names().map_err(at(""))?;
    let journal = disk.random().map_err(at(""))?;
    let first = planted.sequence + 1;
    let frame_bytes = frame::size(planted.batch.len());
    let least = (header::BYTES + frame_bytes + frame::HEAD) as u64;
    let size = options.segment_bytes.next_multiple_of(frame::ALIGN as u64).max(least);
    prepare(disk, size, &AtomicBool::new(false)).map_err(at(names::SPARE))?;
    let (segment, salt) = begin_segment(disk, journal, 1, first, size).map_err(|(name, error, _)| (name, error))?;
    let name = names::segment(1);
    let mut frame = Vec::new();
    frame::encode(salt, first, planted.batch, &mut frame);
    disk.write(&segment, header::BYTES as u64, &frame).map_err(at(&name))?;
    disk.sync(&segment).map_err(at(&name))?;
    let name = names::snapshot(planted.sequence);
    save(disk, &name, &header::Snapshot::encode(journal, planted.sequence, planted.snapshot), planted.snapshot)
        .map_err(at(&name))?;
    let name = names::trail(1);
    let trail = disk.create(&name).map_err(at(&name))?;
    disk.write(&trail, 0, planted.trail).and_then(|()| disk.sync(&trail)).map_err(at(&name))?;
    disk.sync_names().map_err(at(""))?;
    let generation = planted.generation;
    let identity = Identity { journal, generation, segment: 1, next: first + 1, whereabouts: disk.whereabouts() };
    identity.create(disk).map_err(at(names::IDENTITY))?;
    disk.remove(names::RESTORING).map_err(at(names::RESTORING))?;
    disk.sync_names().map_err(at(""))
}

fn save<D: Disk>(disk: &D, name: &str, header: &[u8], snapshot: &[u8]) -> io::Result<()> {
    let file = disk.create(name)?;
    disk.write(&file, 0, header)?;
    let mut at = header.len() as u64;
    for some in snapshot.chunks(PACE) {
        disk.write(&file, at, some)?;
        disk.sync(&file)?;
        at += some.len() as u64;
    }
    disk.sync(&file)?;
    disk.sync_names()
}

/// Takes away what a failed beginning left, the mark last. What cannot be taken away is refused by the next open.
fn clear<D: Disk>(disk: &D) {
    for name in disk.names().unwrap_or_default() {
        let ours = !matches!(names::kind(&name), names::Kind::Other);
        if ours && name != names::RESTORING && remove_if_there(disk, &name).is_err() {
            return;
        }
    }
    if disk.sync_names().is_ok() {
        remove_if_there(disk, names::RESTORING).ok();
    }
}
