//! Binary codec of stored refusals: those that depend on the state.

use super::{AccessKind, BusyHolder, Cycle, CycleMember, Limit, NotCurrent, Refusal, RefusalSubject};
use crate::codec::{DecodeError, Reader, Write};
use crate::lease::EndReason;
use crate::token::Number;

impl Refusal {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Invalid { .. }
            | Self::OutOfRange { .. }
            | Self::Name(_)
            | Self::Token(_)
            | Self::Denied(_)
            | Self::DeniedField { .. }
            | Self::TooOld { .. }
            | Self::StorageFull => {
                unreachable!("a refusal that does not depend on the state is not recorded")
            }
            Self::Implausible { presented } => {
                out.u8(1);
                out.num(presented.get());
            }
            Self::NotFound(subject) => out.raw(&[2, *subject as u8]),
            Self::Conflict(subject) => out.raw(&[3, *subject as u8]),
            Self::Lost(reason) => out.raw(&[4, reason.code()]),
            Self::NotCurrent(reason) => out.raw(&[5, *reason as u8]),
            Self::Stale { presented, mark } => {
                out.u8(6);
                out.num(*presented);
                out.num(*mark);
            }
            Self::Busy { position, holder: None } => {
                out.u8(7);
                out.num(u64::from(*position));
            }
            Self::Busy { position, holder: Some(by) } => {
                out.u8(15);
                out.num(u64::from(*position));
                out.text(&by.holder);
                out.num(u64::from(by.others));
                out.num(by.held_ms);
                out.num(by.remaining_ms);
            }
            Self::AccessChange { held, requested } => out.raw(&[16, *held as u8, *requested as u8]),
            Self::Deadlock(cycle) => {
                out.u8(8);
                cycle.encode(out);
            }
            Self::Exhausted { limit, max, got } => {
                out.raw(&[9, *limit as u8]);
                out.num(*max);
                out.num(*got);
            }
            Self::TokensExhausted => out.u8(10),
            Self::Timeout => out.u8(11),
            Self::Cancelled => out.u8(12),
            Self::Quarantined { remaining, rolled_back } => {
                out.u8(13);
                out.num(*remaining);
                out.flag(*rolled_back);
            }
            Self::HeldForOperator => out.u8(14),
            Self::ApprovalRequired { proposal } => {
                out.u8(17);
                out.num(*proposal);
            }
            Self::SubjectChanged { subject, proposed, found } => {
                out.raw(&[18, *subject as u8]);
                out.num(*proposed);
                out.num(*found);
            }
        }
    }

    pub(crate) fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match from.u8()? {
            1 => Self::Implausible { presented: number(from)? },
            2 => Self::NotFound(pick(from, RefusalSubject::ALL)?),
            3 => Self::Conflict(pick(from, RefusalSubject::ALL)?),
            4 => {
                let code = from.u8()?;
                Self::Lost(EndReason::from_code(code).ok_or_else(|| from.wrong("no such reason"))?)
            }
            5 => Self::NotCurrent(pick(from, &[NotCurrent::Unknown, NotCurrent::NotHolder, NotCurrent::Superseded])?),
            6 => Self::Stale { presented: from.num()?, mark: from.num()? },
            7 => Self::busy(from.num32()?),
            8 => Self::Deadlock(Box::new(Cycle::decode(from)?)),
            9 => Self::Exhausted { limit: pick(from, Limit::ALL)?, max: from.num()?, got: from.num()? },
            10 => Self::TokensExhausted,
            11 => Self::Timeout,
            12 => Self::Cancelled,
            13 => Self::Quarantined { remaining: from.num()?, rolled_back: from.flag()? },
            14 => Self::HeldForOperator,
            15 => {
                let position = from.num32()?;
                let holder = from.text()?.to_owned();
                let (others, held_ms, remaining_ms) = (from.num32()?, from.num()?, from.num()?);
                Self::Busy { position, holder: Some(Box::new(BusyHolder { holder, others, held_ms, remaining_ms })) }
            }
            16 => Self::AccessChange { held: pick(from, AccessKind::ALL)?, requested: pick(from, AccessKind::ALL)? },
            17 => Self::ApprovalRequired { proposal: from.num()? },
            18 => Self::SubjectChanged {
                subject: pick(from, RefusalSubject::ALL)?,
                proposed: from.num()?,
                found: from.num()?,
            },
            _ => return Err(from.wrong("no such refusal")),
        })
    }
}

impl Cycle {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.num(self.length);
        out.num(self.members.len() as u64);
        for member in &self.members {
            out.text(&member.holder);
            out.text(&member.waits_for);
        }
    }

    pub(crate) fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let length = from.num()?;
        let listed = from.num()?;
        if listed > crate::limits::CYCLE_MEMBERS as u64 {
            return Err(from.wrong("cycle too long"));
        }
        let mut members = Vec::new();
        for _ in 0..listed {
            members.push(CycleMember { holder: from.text()?.to_owned(), waits_for: from.text()?.to_owned() });
        }
        Ok(Self { members, length })
    }
}

fn pick<T: Copy>(from: &mut Reader<'_>, all: &[T]) -> Result<T, DecodeError> {
    let code = from.u8()?;
    all.get(usize::from(code)).copied().ok_or_else(|| from.wrong("no such code"))
}

/// A token number off the wire of records.
pub(crate) fn number(from: &mut Reader<'_>) -> Result<Number, DecodeError> {
    let raw = from.num()?;
    Number::new(raw).ok_or_else(|| from.wrong("not a token number"))
}
