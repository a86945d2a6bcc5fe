//! Journal records of coverage, their application, and the snapshot section.

use super::{CoverageTable, FenceMode, LastZombie, TargetStatus};
use crate::access::{LOCAL_OWNER, decode_owner};
use crate::codec::{DecodeError, Reader, Write};
use crate::limits::{HOLDER_BYTES, NAME_BYTES, TARGET_NAME_BYTES, TARGETS};
use crate::payload::text;
use crate::refusal::number;
use crate::time::WallClock;
use crate::token::Number;

/// One change of the coverage.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are named by the vocabulary")]
pub enum CoverageRecord {
    /// A target reported for the first time, or with another mode.
    Reported {
        resource: Box<str>,
        slot: u32,
        target: Box<str>,
        mode: FenceMode,
        /// The identity that reported it for the first time; `None` for `local`, and for another mode.
        owner: Option<Box<str>>,
    },
    /// A target refused a zombie.
    Zombie {
        resource: Box<str>,
        slot: u32,
        target: Box<str>,
        presented: Number,
        mark: Number,
        times: u64,
        holder: Box<str>,
    },
    /// An operator removed the target.
    Forgotten { resource: Box<str>, target: Box<str>, comment: Box<str> },
}

impl CoverageRecord {
    /// Appends the encoded record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Reported { resource, slot, target, mode, owner } => {
                // Targets of `local` have the code from before targets had owners.
                write_slot(out, if owner.is_some() { 4 } else { 1 }, resource, *slot, target);
                out.u8(*mode as u8);
                owner.iter().for_each(|owner| out.text(owner));
            }
            Self::Zombie { resource, slot, target, presented, mark, times, holder } => {
                write_slot(out, 2, resource, *slot, target);
                out.num(presented.get());
                out.num(mark.get());
                out.num(*times);
                out.text(holder);
            }
            Self::Forgotten { resource, target, comment } => {
                out.u8(3);
                out.text(resource);
                out.text(target);
                out.text(comment);
            }
        }
    }

    /// Decodes a record from the front of the input.
    pub fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let code = from.u8()?;
        if !(1..=4).contains(&code) {
            return Err(from.wrong("unknown record of coverage"));
        }
        let resource = text(from, NAME_BYTES)?.into();
        if code == 3 {
            let target = text(from, TARGET_NAME_BYTES)?.into();
            return Ok(Self::Forgotten { resource, target, comment: from.text()?.into() });
        }
        let slot = from.num32()?;
        let target = text(from, TARGET_NAME_BYTES)?.into();
        Ok(match code {
            1 => Self::Reported { resource, slot, target, mode: mode(from)?, owner: None },
            4 => {
                let mode = mode(from)?;
                Self::Reported { resource, slot, target, mode, owner: Some(decode_owner(from)?.into()) }
            }
            _ => Self::Zombie {
                resource,
                slot,
                target,
                presented: number(from)?,
                mark: number(from)?,
                times: from.num()?,
                holder: holder(from)?,
            },
        })
    }
}

fn write_slot(out: &mut Vec<u8>, code: u8, resource: &str, slot: u32, target: &str) {
    out.u8(code);
    out.text(resource);
    out.num(u64::from(slot));
    out.text(target);
}

fn mode(from: &mut Reader<'_>) -> Result<FenceMode, DecodeError> {
    let code = from.u8()?;
    FenceMode::ALL.get(usize::from(code)).copied().ok_or_else(|| from.wrong("no such mode"))
}

/// A holder name, empty if unknown.
fn holder(from: &mut Reader<'_>) -> Result<Box<str>, DecodeError> {
    let holder = from.text()?;
    if holder.len() > HOLDER_BYTES { Err(from.wrong("a holder name of a wrong length")) } else { Ok(holder.into()) }
}

impl CoverageTable {
    /// Applies a record at the wall clock of its turn. A new target is of `owner`. Returns the owners of the target slots that it
    /// removed.
    pub(crate) fn apply(&mut self, fact: &CoverageRecord, owner: u32, at: WallClock) -> Result<Vec<u32>, &'static str> {
        let mut removed = Vec::new();
        match fact {
            CoverageRecord::Reported { resource, slot, target, mode, .. } => {
                let slots = self.resources.entry(resource.clone()).or_default();
                match slots.get_mut(&(target.clone(), *slot)) {
                    Some(seen) => (seen.mode, seen.since) = (*mode, at),
                    None if self.places >= TARGETS => return Err("too many targets"),
                    None => {
                        let seen = TargetStatus { mode: *mode, since: at, zombies: 0, last: None, owner };
                        slots.insert((target.clone(), *slot), seen);
                        self.places += 1;
                    }
                }
            }
            CoverageRecord::Zombie { resource, slot, target, presented, mark, times, holder } => {
                let slots = self.resources.get_mut(resource).ok_or("a zombie at a target that never reported")?;
                let seen = slots.get_mut(&(target.clone(), *slot)).ok_or("a zombie at a target that never reported")?;
                seen.zombies = seen.zombies.saturating_add(*times);
                self.zombies = self.zombies.saturating_add(*times);
                seen.last = Some(LastZombie { at, presented: *presented, mark: *mark, holder: holder.clone() });
            }
            CoverageRecord::Forgotten { resource, target, .. } => {
                let slots = self.resources.get_mut(resource).ok_or("no such target")?;
                slots.retain(|(name, _), seen| {
                    let stays = name != target;
                    removed.extend((!stays).then_some(seen.owner));
                    stays
                });
                if removed.is_empty() {
                    return Err("no such target");
                }
                self.places -= removed.len();
                if slots.is_empty() {
                    self.resources.remove(resource);
                }
            }
        }
        Ok(removed)
    }

    /// Appends the encoded section.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.num(self.zombies);
        out.num(self.resources.len() as u64);
        for (resource, slots) in &self.resources {
            out.text(resource);
            out.num(slots.len() as u64);
            for ((target, slot), seen) in slots {
                out.text(target);
                out.num(u64::from(*slot));
                out.u8(seen.mode as u8);
                out.num(seen.since.0);
                out.num(seen.zombies);
                out.flag(seen.last.is_some());
                if let Some(last) = &seen.last {
                    out.num(last.at.0);
                    out.num(last.presented.get());
                    out.num(last.mark.get());
                    out.text(&last.holder);
                }
            }
        }
    }

    /// Decodes the section from the front of the input. Its owners are in another section.
    pub fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut coverage = Self { zombies: from.num()?, ..Self::default() };
        for _ in 0..from.num()? {
            let resource = text(from, NAME_BYTES)?;
            if coverage.resources.last_key_value().is_some_and(|(before, _)| **before >= *resource) {
                return Err(from.wrong("resources out of order"));
            }
            let mut slots = std::collections::BTreeMap::new();
            let count = from.num()?;
            if count == 0 || count > (TARGETS - coverage.places) as u64 {
                return Err(from.wrong("too many targets, or none"));
            }
            for _ in 0..count {
                let key = (Box::<str>::from(text(from, TARGET_NAME_BYTES)?), from.num32()?);
                if slots.last_key_value().is_some_and(|(before, _)| *before >= key) {
                    return Err(from.wrong("targets out of order"));
                }
                let (mode, since, zombies) = (mode(from)?, WallClock(from.num()?), from.num()?);
                let last = if from.flag()? {
                    let (at, presented, mark) = (WallClock(from.num()?), number(from)?, number(from)?);
                    Some(LastZombie { at, presented, mark, holder: holder(from)? })
                } else {
                    None
                };
                slots.insert(key, TargetStatus { mode, since, zombies, last, owner: LOCAL_OWNER });
            }
            coverage.places += slots.len();
            coverage.resources.insert(resource.into(), slots);
        }
        Ok(coverage)
    }
}
