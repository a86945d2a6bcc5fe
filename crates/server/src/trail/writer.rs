//! The end of the trail: entries are put behind it exactly once, whatever crash comes between.

use leasehold_core::grantor::Change;
use leasehold_core::name::resource_hash;
use leasehold_core::record::Header;
use leasehold_core::token::Cluster;

use super::frame::{self, Part};
use super::segment::{Walked, read, walk};
use super::{Entry, Hash, Head, Retention, link};
use crate::journal::{Kept, Rack};
use crate::keep::NotKept;

/// So much is gathered before it is written.
const GATHER: usize = 1 << 20;

/// Writes behind the end of a trail.
pub struct Writer {
    head: Head,
    /// The hash of the journal's batch at the head's position, where it is known.
    batch: Option<Hash>,
    /// The last entry, if its batch may have more: its position and step.
    last: Option<(u64, u32)>,
    active: Option<Active>,
    /// The number of the next part.
    next: u64,
    gathered: Vec<u8>,
    text: Vec<u8>,
    retention: Retention,
}

/// The part that is written.
struct Active {
    number: u64,
    salt: u32,
    /// Where the next frame goes.
    at: u64,
}

/// How a part ends.
struct Ends {
    walked: Walked,
    /// Position and step of its last entry.
    last: Option<(u64, u32)>,
}

impl Ends {
    /// None if the part has no good beginning.
    fn of(rack: &dyn Rack, number: u64, length: u64, bytes: &mut Vec<u8>) -> Result<Option<Self>, NotKept> {
        read(rack, number, length, bytes)?;
        let mut last = None;
        let walked = walk(bytes, true, |found| {
            last = Entry::read(found.text).map(|entry| (entry.position, entry.step));
        });
        Ok(walked.ok().map(|walked| Self { walked, last }))
    }

    fn is_empty(&self) -> bool {
        self.last.is_none() && self.walked.mark.is_none()
    }

    /// Everything up to here is told.
    fn position(&self) -> u64 {
        match (self.walked.mark, self.last) {
            (Some((position, _)), _) => position,
            (None, Some((position, _))) => position.saturating_sub(1),
            (None, None) => self.walked.part.position,
        }
    }

    /// The last entry of a batch that may have more.
    fn unfinished(&self) -> Option<(u64, u32)> {
        self.last.filter(|_| self.walked.mark.is_none())
    }
}

/// What a step of a batch is told with.
#[derive(Clone, Copy, Debug)]
pub struct Told<'a> {
    /// The cluster.
    pub cluster: Cluster,
    /// The journal position.
    pub position: u64,
    /// The place in the batch.
    pub step: u32,
    /// The batch's clocks.
    pub header: &'a Header,
}

impl Writer {
    /// Finds the end of what is there. A last part that does not end well is left as it is, and the next begins behind its
    /// last good entry.
    pub fn open(rack: &dyn Rack, retention: Retention) -> Result<Self, NotKept> {
        let mut files = rack.files()?;
        let mut writer = Self {
            head: Head::default(),
            batch: None,
            last: None,
            active: None,
            next: files.last().map_or(1, |(number, _)| number + 1),
            gathered: Vec::new(),
            text: Vec::new(),
            retention,
        };
        let mut bytes = Vec::new();
        while let Some((number, length)) = files.pop() {
            let Some(ends) = Ends::of(rack, number, length, &mut bytes)? else {
                // It was being made when the process ended, or its beginning is damaged: then what it held is told as a gap.
                if length <= frame::HEADER as u64 {
                    writer.next = number;
                }
                continue;
            };
            writer.head = Head { entries: ends.walked.next - 1, hash: ends.walked.hash, position: ends.position() };
            writer.batch = ends.walked.mark.map(|(_, batch)| batch);
            writer.last = ends.unfinished();
            if ends.walked.wrong.is_none() {
                writer.active = Some(Active { number, salt: ends.walked.salt, at: ends.walked.at as u64 });
            }
            if ends.is_empty()
                && let Some((number, length)) = files.pop()
                && let Some(before) = Ends::of(rack, number, length, &mut bytes)?
                && before.walked.next == ends.walked.next
            {
                // A batch may go on from the part before.
                writer.head.position = before.position();
                writer.batch = before.walked.mark.map(|(_, batch)| batch);
                writer.last = before.unfinished();
            }
            return Ok(writer);
        }
        Ok(writer)
    }

    /// Where the trail ends.
    pub fn head(&self) -> Head {
        self.head
    }

    /// The hash of the journal's batch at the head's position, where it is known.
    pub fn batch(&self) -> Option<Hash> {
        self.batch
    }

    /// Whether this step of a batch is still to be told.
    pub fn wants(&self, position: u64, step: u32) -> bool {
        position > self.head.position && self.last.is_none_or(|last| (position, step) > last)
    }

    /// Tells one change.
    pub fn tell(&mut self, rack: &dyn Rack, told: Told<'_>, change: &Change<'_>) -> Result<(), NotKept> {
        if !self.wants(told.position, told.step) {
            return Ok(());
        }
        self.put(rack, told, change)?;
        self.last = Some((told.position, told.step));
        Ok(())
    }

    /// The journal has no record of positions that the trail lacks, or has others than were told: that is said in the
    /// trail, and it goes on from there.
    pub fn skip_to(&mut self, rack: &dyn Rack, told: Told<'_>, why: &str) -> Result<(), NotKept> {
        self.last = None;
        self.put(rack, told, &Change { kind: "gap", why, at: Some(self.head.position), ..Change::default() })?;
        (self.head.position, self.batch) = (told.position, None);
        Ok(())
    }

    fn put(&mut self, rack: &dyn Rack, told: Told<'_>, change: &Change<'_>) -> Result<(), NotKept> {
        self.make_room(rack, &told)?;
        let salt = self.active.as_ref().expect("room was made").salt;
        self.text.clear();
        let entry = self.head.entries + 1;
        Entry::of(entry, told.position, told.step, told.header, change).spell(&mut self.text);
        let hash = link(&self.head.hash, &self.text);
        frame::put(salt, resource_hash(change.resource), &self.text, &hash, &mut self.gathered);
        (self.head.entries, self.head.hash) = (entry, hash);
        if self.gathered.len() >= GATHER {
            self.write(rack)?;
        }
        Ok(())
    }

    /// Everything up to a position is told: makes that durable, and lets old parts go.
    pub fn finish(&mut self, rack: &dyn Rack, told: Told<'_>, batch: Hash) -> Result<(), NotKept> {
        if told.position > self.head.position {
            self.make_room(rack, &told)?;
            let salt = self.active.as_ref().expect("room was made").salt;
            frame::put_mark(salt, told.position, &batch, &mut self.gathered);
            (self.head.position, self.batch, self.last) = (told.position, Some(batch), None);
        }
        if self.gathered.is_empty() {
            return Ok(());
        }
        self.write(rack)?;
        kept(rack.sync(self.active.as_ref().expect("it was written to").number)?)?;
        self.let_go(rack, told.header.wall.0)
    }

    /// A part to write to; the one before is durable first.
    fn make_room(&mut self, rack: &dyn Rack, told: &Told<'_>) -> Result<(), NotKept> {
        if let Some(active) = &self.active {
            if active.at + (self.gathered.len() as u64) < self.retention.part_bytes {
                return Ok(());
            }
            let number = active.number;
            self.write(rack)?;
            kept(rack.sync(number)?)?;
        }
        let Head { entries, hash, position } = self.head;
        let wall_ms = told.header.wall.0;
        let part = Part { cluster: told.cluster, first: entries + 1, position, before: hash, wall_ms }.encode();
        kept(rack.create(self.next, &part)?)?;
        let salt = u32::from_le_bytes(*part.last_chunk().expect("a part has a checksum"));
        self.active = Some(Active { number: self.next, salt, at: frame::HEADER as u64 });
        self.next += 1;
        Ok(())
    }

    fn write(&mut self, rack: &dyn Rack) -> Result<(), NotKept> {
        let Some(active) = &mut self.active else { return Ok(()) };
        if !self.gathered.is_empty() {
            kept(rack.write(active.number, active.at, &self.gathered)?)?;
            active.at += self.gathered.len() as u64;
            self.gathered.clear();
        }
        Ok(())
    }

    /// Removes the oldest parts that are too much or too old, one by one, never the newest.
    fn let_go(&self, rack: &dyn Rack, wall_ms: u64) -> Result<(), NotKept> {
        let files = rack.files()?;
        let most = self.retention.bytes.min(rack.most());
        let mut bytes: u64 = files.iter().map(|(_, length)| length).sum();
        for pair in files.windows(2) {
            let [(number, length), (next, _)] = *pair else { unreachable!("windows of two") };
            // The next part begins when this one's last entry is told already.
            let is_old = self.retention.age_ms.is_some_and(|age| {
                let mut head = [0; frame::HEADER];
                let begun = rack.read(next, 0, &mut head).ok().and_then(|_| Part::decode(&head).ok());
                begun.is_some_and(|(part, _)| part.wall_ms.saturating_add(age) < wall_ms)
            });
            if bytes <= most && !is_old {
                break;
            }
            kept(rack.remove(number)?)?;
            bytes -= length;
        }
        Ok(())
    }
}

fn kept(kept: Kept) -> Result<(), NotKept> {
    match kept {
        Kept::Durable => Ok(()),
        Kept::Fenced => Err(NotKept::Fenced),
    }
}

/// Begins the trail of a restored cluster where that of the backup ended.
pub fn begin(cluster: Cluster, head: Head, wall_ms: u64) -> [u8; frame::HEADER] {
    let Head { entries, hash, position } = head;
    Part { cluster, first: entries + 1, position, before: hash, wall_ms }.encode()
}
