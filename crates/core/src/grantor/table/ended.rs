//! Recently ended leases with their end reasons, and usage per holder.

use std::collections::VecDeque;

use crate::codec::{DecodeError, Reader, Write};
use crate::lease::{EndReason, LeaseState};
use crate::limits;
use crate::time::GrantorTime;

/// A bounded ring of the last ended leases, oldest first. Their texts are packed in chunks that are dropped as a whole.
#[derive(Debug, Default)]
pub(crate) struct EndedLeases {
    ring: VecDeque<EndedEntry>,
    chunks: VecDeque<Vec<u8>>,
    /// The number of the first chunk in `chunks`.
    first: u64,
    /// An unused chunk to fill again.
    spare: Vec<u8>,
}

/// Bytes of a chunk; it holds many of the longest texts.
const CHUNK: usize = 1 << 16;
const _: () = assert!(limits::NAME_BYTES + limits::HOLDER_BYTES <= CHUNK);

#[derive(Clone, Copy, Debug)]
struct EndedEntry {
    number: u64,
    granted: GrantorTime,
    ended: GrantorTime,
    /// Chunk number and offset, as one position.
    at: u64,
    name: u16,
    holder: u16,
    reason: EndReason,
}

/// One ended lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedLease {
    /// The resource.
    pub resource: String,
    /// Name of the holder.
    pub holder: String,
    /// The token number.
    pub number: u64,
    /// When it was granted, in grantor time.
    pub granted: GrantorTime,
    /// When it ended, in grantor time.
    pub ended: GrantorTime,
    /// The end reason.
    pub reason: EndReason,
}

impl EndedLeases {
    pub fn push(
        &mut self,
        name: &[u8],
        holder: &[u8],
        number: u64,
        granted: GrantorTime,
        ended: GrantorTime,
        reason: EndReason,
    ) {
        if self.ring.len() >= limits::ENDED_LEASES {
            self.drop_oldest();
        }
        let size = name.len() + holder.len();
        if self.chunks.back().is_none_or(|chunk| chunk.len() + size > CHUNK) {
            let mut chunk = std::mem::take(&mut self.spare);
            chunk.reserve_exact(CHUNK);
            self.chunks.push_back(chunk);
        }
        let last = self.first + self.chunks.len() as u64 - 1;
        let chunk = self.chunks.back_mut().expect("a chunk was just added");
        let at = last * CHUNK as u64 + chunk.len() as u64;
        chunk.extend_from_slice(name);
        chunk.extend_from_slice(holder);
        let (name, holder) = (name.len() as u16, holder.len() as u16);
        self.ring.push_back(EndedEntry { number, granted, ended, at, name, holder, reason });
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

    /// The end reason of the lease with this token, if it is still stored. Searches from the latest.
    pub fn reason_of(&self, number: u64) -> Option<EndReason> {
        self.ring.iter().rev().find(|entry| entry.number == number).map(|entry| entry.reason)
    }

    /// The ended lease with this token, if it is still stored. Searches from the latest.
    pub fn by_number(&self, number: u64) -> Option<EndedLease> {
        self.ring.iter().rev().find(|entry| entry.number == number).map(|entry| self.read(entry))
    }

    /// The stored ended leases of a resource, latest first.
    pub fn of_resource<'a>(&'a self, name: &'a str) -> impl Iterator<Item = EndedLease> + 'a {
        self.ring
            .iter()
            .rev()
            .filter(move |entry| self.name_bytes(entry) == name.as_bytes())
            .map(|entry| self.read(entry))
    }

    fn name_bytes(&self, entry: &EndedEntry) -> &[u8] {
        let from = entry.at as usize % CHUNK;
        &self.chunks[(entry.at / CHUNK as u64 - self.first) as usize][from..from + usize::from(entry.name)]
    }

    /// The latest ended leases in the order of their ends, at most `limit`.
    pub fn last(&self, limit: usize) -> Vec<EndedLease> {
        let from = self.ring.len().saturating_sub(limit);
        self.ring.range(from..).map(|entry| self.read(entry)).collect()
    }

    fn read(&self, entry: &EndedEntry) -> EndedLease {
        let chunk = &self.chunks[(entry.at / CHUNK as u64 - self.first) as usize];
        let from = entry.at as usize % CHUNK;
        let name = from + usize::from(entry.name);
        let text = |range: std::ops::Range<usize>| std::str::from_utf8(&chunk[range]).expect("put as text").to_owned();
        EndedLease {
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

    pub fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let count = from.num()?;
        if count > limits::ENDED_LEASES as u64 {
            return Err(from.wrong("too many ended leases"));
        }
        let mut ends = Self::default();
        for _ in 0..count {
            let (number, granted, ended) = (from.num()?, GrantorTime(from.num()?), GrantorTime(from.num()?));
            let code = from.u8()?;
            let reason = EndReason::from_code(code).ok_or_else(|| from.wrong("no such reason"))?;
            let (name, holder) = (from.text()?, from.text()?);
            if name.len() > limits::NAME_BYTES || holder.len() > limits::HOLDER_BYTES {
                return Err(from.wrong("name too long"));
            }
            ends.push(name.as_bytes(), holder.as_bytes(), number, granted, ended, reason);
        }
        Ok(ends)
    }
}

/// Ended leases and held time by end reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Number of ended leases, by reason code.
    pub ended: [u64; EndReason::ALL.len()],
    /// Milliseconds held, by reason code.
    pub held_ms: [u64; EndReason::ALL.len()],
}

impl Usage {
    pub(crate) const fn count(&mut self, reason: EndReason, held_ms: u64) {
        self.ended[reason.code() as usize] += 1;
        self.held_ms[reason.code() as usize] += held_ms;
    }

    /// Number of ended leases by state, so that revocations and expiries are distinct.
    pub fn ended_as(&self, state: LeaseState) -> u64 {
        EndReason::ALL.iter().filter(|reason| reason.state() == state).map(|reason| self.ended[*reason as usize]).sum()
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        for value in self.ended.iter().chain(&self.held_ms) {
            out.num(*value);
        }
    }

    pub(crate) fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut usage = Self::default();
        for value in usage.ended.iter_mut().chain(&mut usage.held_ms) {
            *value = from.num()?;
        }
        Ok(usage)
    }
}
