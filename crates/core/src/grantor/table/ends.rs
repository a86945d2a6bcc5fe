//! Why the last leases ended, so that a late holder is told, and what holding cost whom.

use std::collections::VecDeque;

use crate::codec::{Malformed, Reader, Write};
use crate::lease::{Reason, State};
use crate::limits;
use crate::time::Millis;

/// The last ended leases, oldest first, bounded; their texts lie back to back in chunks that leave as a whole.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    ring: VecDeque<Entry>,
    chunks: VecDeque<Vec<u8>>,
    /// The first of `chunks` in the endless row of them.
    first: u64,
    /// A chunk that nobody names any more, to be filled again.
    spare: Vec<u8>,
}

/// Bytes of a chunk: the longest pair of texts fits many times.
const CHUNK: usize = 1 << 16;
const _: () = assert!(limits::NAME_BYTES + limits::HOLDER_BYTES <= CHUNK);

#[derive(Clone, Copy, Debug)]
struct Entry {
    number: u64,
    granted: Millis,
    ended: Millis,
    /// The chunk and the place in it.
    at: u64,
    name: u16,
    holder: u16,
    reason: Reason,
}

/// One ended lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The resource.
    pub resource: String,
    /// Who held it.
    pub holder: String,
    /// Its token.
    pub number: u64,
    /// When it was granted, in grantor time.
    pub granted: Millis,
    /// When it ended, in grantor time.
    pub ended: Millis,
    /// Why.
    pub reason: Reason,
}

impl Ends {
    pub fn push(&mut self, name: &[u8], holder: &[u8], number: u64, granted: Millis, ended: Millis, reason: Reason) {
        if self.ring.len() >= limits::ENDS_KEPT {
            self.drop_oldest();
        }
        let size = name.len() + holder.len();
        if self.chunks.back().is_none_or(|chunk| chunk.len() + size > CHUNK) {
            let mut chunk = std::mem::take(&mut self.spare);
            chunk.reserve_exact(CHUNK);
            self.chunks.push_back(chunk);
        }
        let last = self.first + self.chunks.len() as u64 - 1;
        let chunk = self.chunks.back_mut().expect("just made sure of");
        let at = last * CHUNK as u64 + chunk.len() as u64;
        chunk.extend_from_slice(name);
        chunk.extend_from_slice(holder);
        let (name, holder) = (name.len() as u16, holder.len() as u16);
        self.ring.push_back(Entry { number, granted, ended, at, name, holder, reason });
    }

    fn drop_oldest(&mut self) {
        self.ring.pop_front();
        let named = self.ring.front().map_or(self.first + 1, |entry| entry.at / CHUNK as u64);
        if named > self.first
            && let Some(mut chunk) = self.chunks.pop_front()
        {
            self.first += 1;
            chunk.clear();
            self.spare = chunk;
        }
    }

    /// Why the lease with this token ended, if it is still remembered. The latest are looked at first.
    pub fn reason_of(&self, number: u64) -> Option<Reason> {
        self.ring.iter().rev().find(|entry| entry.number == number).map(|entry| entry.reason)
    }

    /// The remembered end of the lease with this token. The latest are looked at first.
    pub fn by_number(&self, number: u64) -> Option<Ended> {
        self.ring.iter().rev().find(|entry| entry.number == number).map(|entry| self.read(entry))
    }

    /// The remembered ends of a resource, latest first.
    pub fn of_resource<'a>(&'a self, name: &'a str) -> impl Iterator<Item = Ended> + 'a {
        self.ring
            .iter()
            .rev()
            .filter(move |entry| usize::from(entry.name) == name.len())
            .map(|entry| self.read(entry))
            .filter(move |ended| ended.resource == name)
    }

    /// The latest, in the order of their ends.
    pub fn last(&self, most: usize) -> Vec<Ended> {
        let from = self.ring.len().saturating_sub(most);
        self.ring.range(from..).map(|entry| self.read(entry)).collect()
    }

    fn read(&self, entry: &Entry) -> Ended {
        let chunk = &self.chunks[(entry.at / CHUNK as u64 - self.first) as usize];
        let from = entry.at as usize % CHUNK;
        let name = from + usize::from(entry.name);
        let text = |range: std::ops::Range<usize>| std::str::from_utf8(&chunk[range]).expect("put as text").to_owned();
        Ended {
            resource: text(from..name),
            holder: text(name..name + usize::from(entry.holder)),
            number: entry.number,
            granted: entry.granted,
            ended: entry.ended,
            reason: entry.reason,
        }
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        out.num(self.ring.len() as u64);
        for entry in &self.ring {
            let ended = self.read(entry);
            for value in [ended.number, ended.granted.0, ended.ended.0] {
                out.num(value);
            }
            out.u8(ended.reason.code());
            out.text(&ended.resource);
            out.text(&ended.holder);
        }
    }

    pub fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let count = from.num()?;
        if count > limits::ENDS_KEPT as u64 {
            return Err(from.wrong("too many ends"));
        }
        let mut ends = Self::default();
        for _ in 0..count {
            let (number, granted, ended) = (from.num()?, Millis(from.num()?), Millis(from.num()?));
            let code = from.u8()?;
            let reason = Reason::from_code(code).ok_or_else(|| from.wrong("no such reason"))?;
            let (name, holder) = (from.text()?, from.text()?);
            if name.len() > limits::NAME_BYTES || holder.len() > limits::HOLDER_BYTES {
                return Err(from.wrong("name too long"));
            }
            ends.push(name.as_bytes(), holder.as_bytes(), number, granted, ended, reason);
        }
        Ok(ends)
    }
}

/// How many ended for each reason, and how long they were held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Ended leases, by the code of their reason.
    pub ended: [u64; Reason::ALL.len()],
    /// Milliseconds held, by the code of the reason.
    pub held_ms: [u64; Reason::ALL.len()],
}

impl Usage {
    pub(crate) const fn count(&mut self, reason: Reason, held_ms: u64) {
        self.ended[reason.code() as usize] += 1;
        self.held_ms[reason.code() as usize] += held_ms;
    }

    /// All ended leases of a state: revocations are counted apart from expiries.
    pub fn ended_as(&self, state: State) -> u64 {
        Reason::ALL.iter().filter(|reason| reason.state() == state).map(|reason| self.ended[*reason as usize]).sum()
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        for value in self.ended.iter().chain(&self.held_ms) {
            out.num(*value);
        }
    }

    pub(crate) fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut usage = Self::default();
        for value in usage.ended.iter_mut().chain(&mut usage.held_ms) {
            *value = from.num()?;
        }
        Ok(usage)
    }
}
