//! Preallocation of the next segment, so that a full disk is detected one segment ahead.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use super::disk::Disk;
use super::{JournalShared, is_full, names};

/// Bytes that are written before a sync, so that a concurrent append never waits for more.
pub(super) const SYNC_BYTES: usize = 4 << 20;

/// The next segment.
#[derive(Debug)]
pub(super) struct PreallocatedSegment {
    bytes: u64,
    background: bool,
    state: PreallocationState,
}

#[derive(Debug)]
enum PreallocationState {
    Ready { bytes: u64 },
    Preparing { thread: JoinHandle<io::Result<()>>, stop: Arc<AtomicBool> },
    Missing { free_at_failure: Option<u64> },
}

impl PreallocatedSegment {
    /// The next segment of `bytes` bytes; `exists` if it is preallocated already.
    pub fn new(bytes: u64, exists: bool, background: bool) -> Self {
        let state = if exists {
            PreallocationState::Ready { bytes }
        } else {
            PreallocationState::Missing { free_at_failure: None }
        };
        Self { bytes, background, state }
    }

    /// Starts the preallocation, unless it is done or running. A full disk is no error: it is found by the next call.
    pub fn begin<D: Disk>(&mut self, shared: &Arc<JournalShared<D>>) -> io::Result<()> {
        if !matches!(self.state, PreallocationState::Missing { .. }) {
            return Ok(());
        }
        let (stop, bytes) = (Arc::new(AtomicBool::new(false)), self.bytes);
        let (thread_shared, thread_stop) = (Arc::clone(shared), Arc::clone(&stop));
        let work = move || prepare(&thread_shared.disk, bytes, &thread_stop);
        let builder = std::thread::Builder::new().name("leasehold-spare".to_owned());
        if self.background
            && let Ok(thread) = builder.spawn(work)
        {
            self.state = PreallocationState::Preparing { thread, stop };
            return Ok(());
        }
        let done = prepare(&shared.disk, bytes, &AtomicBool::new(false));
        unless_full(self.settle(shared, bytes, done))
    }

    /// Whether the next segment is ready or being preallocated. With `wait` it waits for the thread; it retries when space was freed.
    pub fn is_available<D: Disk>(&mut self, shared: &Arc<JournalShared<D>>, wait: bool) -> io::Result<bool> {
        if let PreallocationState::Missing { free_at_failure } = self.state {
            let free = shared.disk.free().unwrap_or(0);
            if free < self.bytes || free_at_failure == Some(free) {
                return Ok(false);
            }
            self.begin(shared)?;
        }
        if let PreallocationState::Preparing { thread, .. } = &self.state
            && (wait || thread.is_finished())
        {
            unless_full(self.join(shared))?;
        }
        Ok(!matches!(self.state, PreallocationState::Missing { .. }))
    }

    /// Ensures a preallocated segment of at least `min` bytes. Returns its size.
    pub fn ensure<D: Disk>(&mut self, shared: &Arc<JournalShared<D>>, min: u64) -> io::Result<u64> {
        if matches!(self.state, PreallocationState::Preparing { .. }) {
            unless_full(self.join(shared))?;
        }
        if let PreallocationState::Ready { bytes } = self.state
            && bytes >= min
        {
            return Ok(bytes);
        }
        let done = prepare(&shared.disk, min, &AtomicBool::new(false));
        if let Err(error) = &done
            && is_full(error)
            && matches!(self.state, PreallocationState::Ready { .. })
        {
            // The smaller one is still there.
            return done.map(|()| min);
        }
        self.settle(shared, min, done).map(|()| min)
    }

    /// The preallocated file became a segment.
    pub fn used(&mut self) {
        self.state = PreallocationState::Missing { free_at_failure: None };
    }

    fn join<D: Disk>(&mut self, shared: &Arc<JournalShared<D>>) -> io::Result<()> {
        let PreallocationState::Preparing { thread, .. } =
            std::mem::replace(&mut self.state, PreallocationState::Missing { free_at_failure: None })
        else {
            return Ok(());
        };
        let done = thread.join().unwrap_or_else(|_| Err(io::Error::other("the preallocation thread panicked")));
        self.settle(shared, self.bytes, done)
    }

    fn settle<D: Disk>(&mut self, shared: &Arc<JournalShared<D>>, bytes: u64, done: io::Result<()>) -> io::Result<()> {
        self.state = match &done {
            Ok(()) => PreallocationState::Ready { bytes },
            Err(_) => PreallocationState::Missing { free_at_failure: shared.disk.free().ok() },
        };
        done
    }
}

fn unless_full(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if is_full(&error) => Ok(()),
        done => done,
    }
}

impl Drop for PreallocatedSegment {
    /// Joins the thread, which uses the directory, so that the journal can be opened again at once.
    fn drop(&mut self) {
        let state = std::mem::replace(&mut self.state, PreallocationState::Missing { free_at_failure: None });
        if let PreallocationState::Preparing { thread, stop } = state {
            stop.store(true, Ordering::Relaxed);
            // Its result no longer matters.
            thread.join().ok();
        }
    }
}

/// Creates a durable file of zeros, so that later syncs change no metadata.
pub(super) fn prepare<D: Disk>(disk: &D, bytes: u64, stop: &AtomicBool) -> io::Result<()> {
    let draft = names::draft(names::SPARE);
    remove_if_exists(disk, &draft)?;
    let made = fill(disk, &draft, bytes, stop);
    if made.is_err() {
        // An incomplete file only takes space; if this fails, the next attempt removes it.
        disk.remove(&draft).ok();
        return made;
    }
    disk.rename(&draft, names::SPARE)?;
    disk.sync_names()
}

fn fill<D: Disk>(disk: &D, draft: &str, bytes: u64, stop: &AtomicBool) -> io::Result<()> {
    let file = disk.create(draft)?;
    disk.reserve(&file, bytes)?;
    let zeros = vec![0; SYNC_BYTES.min(bytes as usize)];
    let mut at = 0;
    while at < bytes {
        if stop.load(Ordering::Relaxed) {
            return Err(io::Error::other("the journal is closing"));
        }
        let length = zeros.len().min((bytes - at) as usize);
        disk.write(&file, at, &zeros[..length])?;
        disk.sync(&file)?;
        at += length as u64;
    }
    Ok(())
}

/// Removes a file if it exists.
pub(super) fn remove_if_exists<D: Disk>(disk: &D, name: &str) -> io::Result<()> {
    match disk.remove(name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}
