//! Where facts are kept for good: one trait, its obligations, and the journals that meet them.

pub mod conformance;
mod error;
pub mod etcd;
pub mod file;
pub mod memory;

use std::future::Future;
use std::ops::ControlFlow;

use leasehold_core::grantor::Corrupt;

pub use error::{Fault, NotTold, OpenError};

/// The largest batch that a journal takes, in bytes. A turn stays far below it.
pub const BATCH_BYTES: usize = 128 << 20;

/// The sequence of a journal's first batch.
pub const FIRST: u64 = 1;

/// One writer's authority over a journal. The grantor is the holder, the journal its target.
///
/// What every journal owes, checked by [`conformance::run`]:
///
/// 1. **Opening fences.** [`Place::open`] ends the authority of every earlier writer, or is refused while one lives.
/// 2. **Generations rise.** Every open has a higher generation than all before it, and that is durable when it returns.
/// 3. **Replay is whole and in order.** An open tells the newest snapshot, then every batch after it, each once, by
///    rising sequence without a gap; [`next`](Self::next) is the sequence after the last.
/// 4. **Durable means kept.** A batch that was answered [`Kept::Durable`] is in every later replay, byte for byte, after
///    a kill and after a loss of power, until a durable snapshot covers it.
/// 5. **Nothing is invented.** A replay tells only batches that were given to `append`, and none that was answered
///    [`Kept::Fenced`]. One whose outcome was never told may be there: at most the last.
/// 6. **A resend is harmless.** The last batch again, with the same bytes, is durable and stands once; other bytes
///    under its sequence are answered [`Kept::Fenced`] and change nothing.
/// 7. **A fenced writer changes nothing.** Its `append`, `confirm`, `save` and `trim` answer fenced, for ever.
/// 8. **Confirm tells the truth of a moment inside the call.** `StillMine` means that no other open had returned when the
///    call was made.
/// 9. **Snapshots replace batches.** After `save(n)` was durable, an open tells that snapshot or a later one, and no
///    batch up to it.
/// 10. **Trim takes only what is covered.** It removes no batch that a durable snapshot does not cover.
/// 11. **Tail tells what is durable**, from a sequence on, in order; where that begins below what is kept, it says so.
/// 12. **The shelf is apart.** Saving, trimming and reading from another thread neither stop nor reorder appends.
/// 13. **A full journal has changed nothing**, and takes the same batch when there is room again.
/// 14. **A failed sync is final.** It is never tried again: after [`Fault::Failed`] every call fails, and the process
///     must stop (V3).
/// 15. **The rack keeps what was synced.** What [`Rack::sync`] or [`Rack::create`] answered durable is read back, byte for
///     byte, after a kill and a loss of power, until the file is removed.
///
/// A wrong sequence, an empty batch and one above [`BATCH_BYTES`] are faults of the caller and panic.
pub trait Journal: Send + Sized {
    /// What may be done beside the appends, from any thread.
    type Shelf: Shelf;

    /// Which writer this is: higher than every writer before it.
    fn generation(&self) -> u64;

    /// The sequence that the next append carries.
    fn next(&self) -> u64;

    /// Makes the batch durable under its sequence, or tells that this writer is fenced.
    fn append(&mut self, sequence: u64, batch: &[u8]) -> impl Future<Output = Result<Kept, Fault>> + Send;

    /// Is this writer's authority still there? Asked when a turn has nothing to append.
    fn confirm(&mut self) -> impl Future<Output = Result<Confirmed, Fault>> + Send;

    /// How much more can be kept. Asked at the start of a turn, so that new grants are refused in time (V4).
    fn room(&mut self) -> Result<Room, Fault>;

    /// The way to snapshots and to what is on record.
    fn shelf(&self) -> Self::Shelf;
}

/// Snapshots and the batches behind them, reached from any thread while appends go on.
pub trait Shelf: Rack + Clone + Send + Sync + 'static {
    /// Makes a snapshot durable: the state after the batch of this sequence, which is durable itself. One that is not
    /// newer than the newest changes nothing.
    fn save(&self, sequence: u64, snapshot: &[u8]) -> impl Future<Output = Result<Kept, Fault>> + Send;

    /// Removes batches up to a sequence, as far as durable snapshots cover them. A journal may keep more.
    fn trim(&self, up_to: u64) -> impl Future<Output = Result<Kept, Fault>> + Send;

    /// The newest durable snapshot and its sequence.
    fn newest(&self) -> impl Future<Output = Result<Option<(u64, Vec<u8>)>, NotTold>> + Send;

    /// Tells the durable batches from a sequence on, until there is no more or the listener breaks off. Returns the
    /// sequence that comes next.
    fn tail(&self, from: u64, each: Listener<'_>) -> impl Future<Output = Result<u64, NotTold>> + Send;
}

/// A place beside the batches for what is written about them: numbered files that grow, and go as a whole. One thread
/// writes; any thread reads.
pub trait Rack: Send + Sync {
    /// The numbers of the files, in order, and how long each is.
    fn files(&self) -> Result<Vec<(u64, u64)>, NotTold>;

    /// Fills the buffer from an offset of a file, or as much of it as there is.
    fn read(&self, number: u64, at: u64, into: &mut [u8]) -> Result<usize, NotTold>;

    /// Makes a file with these bytes, durable under its number, in place of one that may be there.
    fn create(&self, number: u64, bytes: &[u8]) -> Result<Kept, Fault>;

    /// Writes at an offset of a file that is there.
    fn write(&self, number: u64, at: u64, bytes: &[u8]) -> Result<Kept, Fault>;

    /// Makes durable what was written to a file.
    fn sync(&self, number: u64) -> Result<Kept, Fault>;

    /// Takes a file away.
    fn remove(&self, number: u64) -> Result<Kept, Fault>;

    /// What people call a file.
    fn label(&self, number: u64) -> String;

    /// Most bytes that may lie here, whatever else was chosen.
    fn most(&self) -> u64;
}

/// Who listens to a [`Shelf::tail`]: it is told sequence and batch.
pub type Listener<'a> = &'a mut (dyn FnMut(u64, &[u8]) -> ControlFlow<()> + Send);

/// Where a journal is, before anybody writes it.
pub trait Place {
    /// The journal that is there.
    type Journal: Journal;

    /// Takes the journal for writing and tells `replay` what is on record.
    fn open(
        &self,
        replay: &mut (dyn Replay + Send),
    ) -> impl Future<Output = Result<Opened<Self::Journal>, OpenError>> + Send;
}

/// Who is told what is on record, once, in order. What it refuses is told with file and offset.
pub trait Replay {
    /// The state after the batch of this sequence. Told first, or not at all.
    fn snapshot(&mut self, sequence: u64, bytes: &[u8]) -> Result<(), Corrupt>;

    /// The next batch.
    fn batch(&mut self, sequence: u64, bytes: &[u8]) -> Result<(), Corrupt>;
}

/// A journal that was opened.
#[derive(Debug)]
pub struct Opened<J> {
    /// The journal, this writer's.
    pub journal: J,
    /// What an operator should read, one line each.
    pub warnings: Vec<String>,
}

/// What became of something that was to be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Kept {
    /// It survives a kill and a loss of power.
    Durable,
    /// Another writer has the journal: stop.
    Fenced,
}

/// What a journal says about this writer's authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Confirmed {
    /// It had not ended when the call was made.
    StillMine,
    /// Another writer has the journal: stop.
    Fenced,
}

/// How much more a journal can keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Room {
    /// Next to nothing.
    None,
    /// The reserve: refuse what is new, end and renew what is held.
    ReserveOnly,
    /// Enough.
    Plenty,
}
