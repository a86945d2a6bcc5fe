//! The journal in memory: the twin of the others, for tests and for a server that keeps nothing.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{
    BATCH_BYTES, Confirmed, FIRST, Fault, Journal, Kept, Listener, NotTold, OpenError, Opened, Place, Rack, Replay,
    Room, Shelf,
};

/// A journal that lives as long as somebody holds on to it. A clone is the same journal; whoever opens it last writes.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    log: Arc<Mutex<Log>>,
}

#[derive(Debug, Default)]
struct Log {
    generation: u64,
    batches: BTreeMap<u64, Vec<u8>>,
    /// The last batch, kept apart from trimming.
    last: Option<(u64, Vec<u8>)>,
    snapshot: Option<(u64, Vec<u8>)>,
    rack: BTreeMap<u64, Vec<u8>>,
    room: Option<Room>,
    failed: bool,
}

impl Memory {
    /// An empty journal.
    pub fn new() -> Self {
        Self::default()
    }

    /// From now on there is so much room: a full disk, and its end.
    pub fn set_room(&self, room: Room) {
        self.lock().room = Some(room);
    }

    /// From now on every call of this writer fails, as after a failed sync. The next open is another process.
    pub fn fail(&self) {
        self.lock().failed = true;
    }

    fn lock(&self) -> MutexGuard<'_, Log> {
        // A caller's fault panics under this lock before anything was changed.
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Log {
    fn next(&self) -> u64 {
        self.last.as_ref().map_or(FIRST, |(sequence, _)| sequence + 1)
    }

    fn unless_failed(&self) -> Result<(), Fault> {
        if self.failed { Err(Fault::Failed { why: "memory was told to fail".to_owned() }) } else { Ok(()) }
    }

    fn has_room(&self) -> Result<(), Fault> {
        if self.room == Some(Room::None) { Err(Fault::Full) } else { Ok(()) }
    }
}

impl Place for Memory {
    type Journal = MemoryJournal;

    async fn open(&self, replay: &mut (dyn Replay + Send)) -> Result<Opened<MemoryJournal>, OpenError> {
        let mut log = self.lock();
        let corrupt = |sequence: u64, wrong: leasehold_core::grantor::Corrupt| OpenError::Corrupt {
            file: format!("memory, sequence {sequence}").into(),
            offset: wrong.at as u64,
            reason: wrong.why.to_owned(),
        };
        let mut covered = 0;
        if let Some((sequence, bytes)) = &log.snapshot {
            replay.snapshot(*sequence, bytes).map_err(|wrong| corrupt(*sequence, wrong))?;
            covered = *sequence;
        }
        for (sequence, batch) in log.batches.range(covered + 1..) {
            replay.batch(*sequence, batch).map_err(|wrong| corrupt(*sequence, wrong))?;
        }
        log.generation += 1;
        log.failed = false;
        let journal = MemoryJournal { generation: log.generation, next: log.next(), memory: self.clone() };
        Ok(Opened { journal, warnings: Vec::new() })
    }
}

/// One writer of a journal in memory.
#[derive(Debug)]
pub struct MemoryJournal {
    memory: Memory,
    generation: u64,
    next: u64,
}

impl Journal for MemoryJournal {
    type Shelf = MemoryShelf;

    fn generation(&self) -> u64 {
        self.generation
    }

    fn next(&self) -> u64 {
        self.next
    }

    async fn append(&mut self, sequence: u64, batch: &[u8]) -> Result<Kept, Fault> {
        let mut log = self.memory.lock();
        if log.generation != self.generation {
            return Ok(Kept::Fenced);
        }
        log.unless_failed()?;
        assert!(!batch.is_empty() && batch.len() <= BATCH_BYTES, "a batch has bytes, and not too many");
        if let Some((last, bytes)) = &log.last
            && *last == sequence
        {
            return Ok(if bytes == batch { Kept::Durable } else { Kept::Fenced });
        }
        assert_eq!(sequence, self.next, "batches are appended in order");
        log.has_room()?;
        log.batches.insert(sequence, batch.to_vec());
        log.last = Some((sequence, batch.to_vec()));
        self.next += 1;
        Ok(Kept::Durable)
    }

    async fn confirm(&mut self) -> Result<Confirmed, Fault> {
        let log = self.memory.lock();
        if log.generation != self.generation {
            return Ok(Confirmed::Fenced);
        }
        log.unless_failed()?;
        Ok(Confirmed::StillMine)
    }

    fn room(&mut self) -> Result<Room, Fault> {
        let log = self.memory.lock();
        log.unless_failed()?;
        Ok(log.room.unwrap_or(Room::Plenty))
    }

    fn shelf(&self) -> MemoryShelf {
        MemoryShelf { memory: self.memory.clone(), generation: self.generation }
    }
}

/// The shelf of a journal in memory.
#[derive(Clone, Debug)]
pub struct MemoryShelf {
    memory: Memory,
    generation: u64,
}

/// Memory is dear: of what is written about batches, so much is kept.
const RACK_BYTES: u64 = 16 << 20;

impl MemoryShelf {
    fn change(&self, change: impl FnOnce(&mut BTreeMap<u64, Vec<u8>>)) -> Result<Kept, Fault> {
        let mut log = self.memory.lock();
        if log.generation != self.generation {
            return Ok(Kept::Fenced);
        }
        log.unless_failed()?;
        log.has_room()?;
        change(&mut log.rack);
        Ok(Kept::Durable)
    }
}

impl Rack for MemoryShelf {
    fn files(&self) -> Result<Vec<(u64, u64)>, NotTold> {
        Ok(self.memory.lock().rack.iter().map(|(number, bytes)| (*number, bytes.len() as u64)).collect())
    }

    fn read(&self, number: u64, at: u64, into: &mut [u8]) -> Result<usize, NotTold> {
        let log = self.memory.lock();
        let gone = || NotTold::Unreadable { why: format!("{}: not there", self.label(number)) };
        let bytes = log.rack.get(&number).ok_or_else(gone)?;
        let bytes = bytes.get(usize::try_from(at).unwrap_or(usize::MAX)..).unwrap_or_default();
        let got = bytes.len().min(into.len());
        into[..got].copy_from_slice(&bytes[..got]);
        Ok(got)
    }

    fn create(&self, number: u64, bytes: &[u8]) -> Result<Kept, Fault> {
        self.change(|rack| drop(rack.insert(number, bytes.to_vec())))
    }

    fn write(&self, number: u64, at: u64, bytes: &[u8]) -> Result<Kept, Fault> {
        self.change(|rack| {
            let file = rack.entry(number).or_default();
            let at = at as usize;
            file.resize(file.len().max(at + bytes.len()), 0);
            file[at..at + bytes.len()].copy_from_slice(bytes);
        })
    }

    fn sync(&self, _number: u64) -> Result<Kept, Fault> {
        self.change(|_| {})
    }

    fn remove(&self, number: u64) -> Result<Kept, Fault> {
        self.change(|rack| drop(rack.remove(&number)))
    }

    fn label(&self, number: u64) -> String {
        format!("memory, trail {number}")
    }

    fn most(&self) -> u64 {
        RACK_BYTES
    }
}

impl Shelf for MemoryShelf {
    async fn save(&self, sequence: u64, snapshot: &[u8]) -> Result<Kept, Fault> {
        let mut log = self.memory.lock();
        if log.generation != self.generation {
            return Ok(Kept::Fenced);
        }
        log.unless_failed()?;
        log.has_room()?;
        assert!(sequence < log.next(), "a snapshot is of batches that are durable");
        if log.snapshot.as_ref().is_none_or(|(newest, _)| *newest < sequence) {
            log.snapshot = Some((sequence, snapshot.to_vec()));
        }
        Ok(Kept::Durable)
    }

    async fn trim(&self, up_to: u64) -> Result<Kept, Fault> {
        let mut log = self.memory.lock();
        if log.generation != self.generation {
            return Ok(Kept::Fenced);
        }
        log.unless_failed()?;
        let covered = log.snapshot.as_ref().map_or(0, |(sequence, _)| *sequence).min(up_to);
        log.batches = log.batches.split_off(&(covered + 1));
        Ok(Kept::Durable)
    }

    async fn newest(&self) -> Result<Option<(u64, Vec<u8>)>, NotTold> {
        Ok(self.memory.lock().snapshot.clone())
    }

    async fn tail(&self, from: u64, each: Listener<'_>) -> Result<u64, NotTold> {
        let (batches, first, next) = {
            let log = self.memory.lock();
            let first = log.batches.keys().next().copied().unwrap_or(log.next());
            (log.batches.range(from..).map(|(at, batch)| (*at, batch.clone())).collect::<Vec<_>>(), first, log.next())
        };
        if from < first {
            return Err(NotTold::Trimmed { first });
        }
        for (sequence, batch) in batches {
            if each(sequence, &batch) == ControlFlow::Break(()) {
                return Ok(sequence + 1);
            }
        }
        Ok(next.max(from))
    }
}
