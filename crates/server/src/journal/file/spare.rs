//! The next segment, made ready before it is needed: it takes the space, so that a full disk is known a segment ahead.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use super::disk::Disk;
use super::{Shared, is_full, names};
use crate::journal::Fault;

/// So much is written before it is synced, so that an append beside it never waits for more.
pub(super) const PACE: usize = 4 << 20;

/// Where the next segment stands.
#[derive(Debug)]
pub(super) struct Spare {
    bytes: u64,
    background: bool,
    state: State,
}

#[derive(Debug)]
enum State {
    Ready { bytes: u64 },
    Preparing { thread: JoinHandle<io::Result<()>>, stop: Arc<AtomicBool> },
    Missing { free_then: Option<u64> },
}

impl Spare {
    /// The spare of segments of this size, and whether it is there.
    pub fn new(bytes: u64, there: bool, background: bool) -> Self {
        let state = if there { State::Ready { bytes } } else { State::Missing { free_then: None } };
        Self { bytes, background, state }
    }

    /// Begins to make it ready, unless it is.
    pub fn begin<D: Disk>(&mut self, shared: &Arc<Shared<D>>) {
        if !matches!(self.state, State::Missing { .. }) {
            return;
        }
        let (stop, bytes) = (Arc::new(AtomicBool::new(false)), self.bytes);
        let (theirs, halt) = (Arc::clone(shared), Arc::clone(&stop));
        let work = move || prepare(&theirs.disk, bytes, &halt);
        let builder = std::thread::Builder::new().name("leasehold-spare".to_owned());
        if self.background
            && let Ok(thread) = builder.spawn(work)
        {
            self.state = State::Preparing { thread, stop };
        } else {
            let done = prepare(&shared.disk, bytes, &AtomicBool::new(false));
            // A failure is remembered in `shared` and told by the next call.
            self.settle(shared, bytes, done).ok();
        }
    }

    /// Is the next segment there, or still being made? Waits for it if told to; tries again when space came back.
    pub fn is_coming<D: Disk>(&mut self, shared: &Arc<Shared<D>>, wait: bool) -> Result<bool, Fault> {
        if let State::Missing { free_then } = self.state {
            let free = shared.disk.free().unwrap_or(0);
            if free < self.bytes || free_then == Some(free) {
                return Ok(false);
            }
            self.begin(shared);
        }
        if let State::Preparing { thread, .. } = &self.state
            && (wait || thread.is_finished())
        {
            self.join(shared)?;
        }
        Ok(!matches!(self.state, State::Missing { .. }))
    }

    /// A spare of at least this size, now. Returns its size.
    pub fn take<D: Disk>(&mut self, shared: &Arc<Shared<D>>, least: u64) -> Result<u64, Fault> {
        if matches!(self.state, State::Preparing { .. }) {
            self.join(shared)?;
        }
        if let State::Ready { bytes } = self.state
            && bytes >= least
        {
            return Ok(bytes);
        }
        let done = prepare(&shared.disk, least, &AtomicBool::new(false));
        if let Err(error) = &done
            && is_full(error)
            && matches!(self.state, State::Ready { .. })
        {
            return Err(Fault::Full);
        }
        self.settle(shared, least, done)?;
        if matches!(self.state, State::Ready { .. }) { Ok(least) } else { Err(Fault::Full) }
    }

    /// It became a segment.
    pub fn taken(&mut self) {
        self.state = State::Missing { free_then: None };
    }

    fn join<D: Disk>(&mut self, shared: &Arc<Shared<D>>) -> Result<(), Fault> {
        let State::Preparing { thread, .. } = std::mem::replace(&mut self.state, State::Missing { free_then: None })
        else {
            return Ok(());
        };
        let done = thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread that makes the spare panicked")));
        self.settle(shared, self.bytes, done)
    }

    fn settle<D: Disk>(&mut self, shared: &Arc<Shared<D>>, bytes: u64, done: io::Result<()>) -> Result<(), Fault> {
        match done {
            Ok(()) => self.state = State::Ready { bytes },
            Err(error) if is_full(&error) => {
                self.state = State::Missing { free_then: Some(shared.disk.free().unwrap_or(0)) };
            }
            Err(error) => return Err(shared.fail(names::SPARE, &error)),
        }
        Ok(())
    }
}

impl Drop for Spare {
    /// The thread holds the directory; it goes first, so that the journal can be opened again at once.
    fn drop(&mut self) {
        let state = std::mem::replace(&mut self.state, State::Missing { free_then: None });
        if let State::Preparing { thread, stop } = state {
            stop.store(true, Ordering::Relaxed);
            // What it made, or why it did not, is nobody's concern any more.
            thread.join().ok();
        }
    }
}

/// Makes a file full of zeros, durable under its name: a sync into it later changes no metadata.
pub(super) fn prepare<D: Disk>(disk: &D, bytes: u64, stop: &AtomicBool) -> io::Result<()> {
    let draft = names::draft(names::SPARE);
    remove_if_there(disk, &draft)?;
    let made = fill(disk, &draft, bytes, stop);
    if made.is_err() {
        // The draft is of no use and takes space; the next try removes it otherwise.
        disk.remove(&draft).ok();
        return made;
    }
    disk.rename(&draft, names::SPARE)?;
    disk.sync_names()
}

fn fill<D: Disk>(disk: &D, draft: &str, bytes: u64, stop: &AtomicBool) -> io::Result<()> {
    let file = disk.create(draft)?;
    disk.reserve(&file, bytes)?;
    let zeros = vec![0; PACE.min(bytes as usize)];
    let mut at = 0;
    while at < bytes {
        if stop.load(Ordering::Relaxed) {
            return Err(io::Error::other("the journal is being closed"));
        }
        let some = zeros.len().min((bytes - at) as usize);
        disk.write(&file, at, &zeros[..some])?;
        disk.sync(&file)?;
        at += some as u64;
    }
    Ok(())
}

/// Removes a file that may not be there.
pub(super) fn remove_if_there<D: Disk>(disk: &D, name: &str) -> io::Result<()> {
    match disk.remove(name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}
