//! Binary codec of records: a tag, then numbers and texts in the order written here. The format must never change.

use super::{DrainCause, ExpiredBatch, GrantRecord, Record, StoredOutcome, WaitRecord};
use crate::access::{Attribution, decode_owner};
use crate::codec::{DecodeError, Reader, Write};
use crate::command::HandoffMode;
use crate::coverage;
use crate::ids::{LeaseId, SessionId};
use crate::lease::{Access, EndReason};
use crate::limits;
use crate::payload::{cache, delivery, state};
use crate::refusal::{Cycle, Refusal, number};
use crate::time::GrantorTime;
use crate::token::{Cluster, Incarnation};
use crate::trace_context::TraceContext;

impl<'a> Record<'a> {
    /// Appends the encoded record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Created { cluster, incarnation, max_ttl } => {
                out.u8(1);
                out.raw(&cluster.0);
                out.num(u64::from(incarnation.0));
                out.num(*max_ttl);
            }
            Self::Opened { generation, counter } => tagged(out, 2, &[*generation, *counter]),
            Self::Idle => out.u8(3),
            Self::Stalled { ms } => tagged(out, 4, &[*ms]),
            Self::Restored { incarnation, counter, quarantine } => {
                tagged(out, 5, &[u64::from(incarnation.0), *counter, quarantine.0]);
            }
            Self::RolledBack { presented, counter, quarantine } => {
                tagged(out, 6, &[presented.get(), *counter, quarantine.0]);
            }
            Self::QuarantineWaived { comment } => {
                out.u8(7);
                out.text(comment);
            }
            Self::SessionOpened { session, owner, holder, ttl, secret, waits_only } => {
                // Sessions of `local` have the code from before sessions had owners.
                let code = if owner.is_some() { 39 } else { 8 };
                tagged(out, code, &[u64::from(session.slot), u64::from(session.reuse), u64::from(*ttl)]);
                owner.iter().for_each(|owner| out.text(owner));
                out.text(holder);
                out.raw(secret);
                out.flag(*waits_only);
            }
            Self::SessionAlive { session } => tagged(out, 9, &[u64::from(*session)]),
            Self::SessionEnded { session, reason } => {
                tagged(out, 10, &[u64::from(session.slot), u64::from(session.reuse)]);
                out.u8(reason.code());
            }
            Self::Granted(granted) => {
                out.u8(if granted.owner.is_some() { 40 } else { 11 });
                granted.owner.iter().for_each(|owner| out.text(owner));
                granted.encode(out);
            }
            Self::Depth { lease, depth } => tagged(out, 12, &[u64::from(*lease), u64::from(*depth)]),
            Self::Alive { lease } => tagged(out, 13, &[u64::from(*lease)]),
            Self::Retimed { lease, ttl } => tagged(out, 14, &[u64::from(*lease), u64::from(*ttl)]),
            Self::Ended { lease, number, reason, hold, comment } => {
                tagged(out, 15, &[u64::from(*lease), number.get()]);
                out.u8(reason.code() | u8::from(*hold) << 7);
                out.text(comment);
            }
            Self::Rotated { lease, number } => tagged(out, 16, &[u64::from(*lease), number.get()]),
            Self::Progressed { lease, at } => tagged(out, 17, &[u64::from(*lease), *at]),
            Self::Waiting(waiting) => {
                out.u8(18);
                waiting.encode(out);
            }
            Self::WaitEnded { waiter, refusal } => {
                tagged(out, 19, &[u64::from(*waiter)]);
                refusal.encode(out);
            }
            Self::Draining { lease, cause, until } => {
                tagged(out, 20, &[u64::from(*lease), until.0]);
                cause.encode(out);
            }
            Self::DrainDropped { lease } => tagged(out, 21, &[u64::from(*lease)]),
            Self::Capacity { resource, units, lasting } => {
                tagged(out, 22, &[u64::from(*units)]);
                out.flag(*lasting);
                out.text(resource);
            }
            Self::HoldConfirmed { lease, number } => tagged(out, 23, &[u64::from(*lease), number.get()]),
            Self::HoldResized { lease, units } => tagged(out, 24, &[u64::from(*lease), u64::from(*units)]),
            Self::Vetoed { lease, until } => tagged(out, 25, &[u64::from(*lease), until.0]),
            Self::Pinned { lease, at } => tagged(out, 26, &[u64::from(*lease), *at]),
            Self::Floor { resource, at } => {
                tagged(out, 27, &[*at]);
                out.text(resource);
            }
            Self::Freed { resource, comment } => texts(out, 28, &[resource, comment]),
            Self::CharterSet { prefix, charter, comment, owner } => {
                texts(out, if owner.is_some() { 49 } else { 29 }, &[prefix, comment]);
                out.bytes(charter);
                owner.iter().for_each(|owner| out.text(owner));
            }
            Self::CharterRemoved { prefix, comment } => texts(out, 30, &[prefix, comment]),
            Self::Answered { session, sequence, lowest, digest, outcome } => {
                tagged(out, 31, &[u64::from(*session), *sequence, *lowest]);
                out.fixed(*digest);
                outcome.encode(out);
            }
            Self::Deadlocked { cycle, victim, policy } => {
                texts(out, 32, &[victim]);
                out.u8(*policy);
                cycle.encode(out);
            }
            Self::State(fact) => {
                out.u8(33);
                fact.encode(out);
            }
            Self::Delivery(fact) => {
                out.u8(34);
                fact.encode(out);
            }
            Self::Cache(fact) => {
                out.u8(35);
                fact.encode(out);
            }
            Self::Expired(ends) => {
                out.u8(36);
                ends.encode(out);
            }
            Self::Coverage(fact) => {
                out.u8(37);
                fact.encode(out);
            }
            Self::MaxTtlSet { max_ttl, comment } => {
                tagged(out, 38, &[*max_ttl]);
                out.text(comment);
            }
            Self::Proposed { proposal, proposer, credential, command, until } => {
                tagged(out, 41, &[*proposal, until.0]);
                out.text(proposer);
                out.text(credential);
                out.bytes(command);
            }
            Self::ProposalApproved { proposal, approver, credential } => {
                tagged(out, 42, &[*proposal]);
                out.text(approver);
                out.text(credential);
            }
            Self::ProposalCanceled { proposal, by } => {
                tagged(out, 43, &[*proposal]);
                out.text(by);
            }
            Self::AttributedTo(attribution) => {
                // Without a trace context, the code is that from before requests had one.
                out.u8(if attribution.origin.trace.is_some() { 50 } else { 46 });
                attribution.encode(out);
                attribution.origin.trace.iter().for_each(|trace| trace.encode(out));
            }
            Self::AttributionEnded => out.u8(47),
            Self::ActedAlone { action, resource, reason } => texts(out, 48, &[action, resource, reason]),
            Self::LeaseTraced { lease, trace } => {
                tagged(out, 51, &[u64::from(*lease)]);
                trace.encode(out);
            }
            Self::WaitTraced { waiter, trace } => {
                tagged(out, 52, &[u64::from(*waiter)]);
                trace.encode(out);
            }
        }
    }

    /// Decodes a record from the front of the input.
    pub fn decode(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(match from.u8()? {
            1 => Self::Created {
                cluster: Cluster(from.array()?),
                incarnation: Incarnation(from.num32()?),
                max_ttl: from.num()?,
            },
            2 => Self::Opened { generation: from.num()?, counter: from.num()? },
            3 => Self::Idle,
            4 => Self::Stalled { ms: from.num()? },
            5 => Self::Restored {
                incarnation: Incarnation(from.num32()?),
                counter: from.num()?,
                quarantine: GrantorTime(from.num()?),
            },
            6 => Self::RolledBack {
                presented: number(from)?,
                counter: from.num()?,
                quarantine: GrantorTime(from.num()?),
            },
            7 => Self::QuarantineWaived { comment: from.text()? },
            code @ (8 | 39) => {
                let session = SessionId { slot: from.num32()?, reuse: from.num32()? };
                let ttl = from.num32()?;
                Self::SessionOpened {
                    session,
                    ttl,
                    owner: if code == 39 { Some(decode_owner(from)?) } else { None },
                    holder: holder(from)?,
                    secret: from.array()?,
                    waits_only: from.flag()?,
                }
            }
            9 => Self::SessionAlive { session: from.num32()? },
            10 => Self::SessionEnded {
                session: SessionId { slot: from.num32()?, reuse: from.num32()? },
                reason: reason(from)?.0,
            },
            11 => Self::Granted(GrantRecord::decode(from, None)?),
            40 => {
                let owner = decode_owner(from)?;
                Self::Granted(GrantRecord::decode(from, Some(owner))?)
            }
            12 => Self::Depth { lease: from.num32()?, depth: from.num32()? },
            13 => Self::Alive { lease: from.num32()? },
            14 => Self::Retimed { lease: from.num32()?, ttl: from.num32()? },
            15 => {
                let (lease, number) = (from.num32()?, number(from)?);
                let (reason, hold) = reason(from)?;
                Self::Ended { lease, number, reason, hold, comment: from.text()? }
            }
            16 => Self::Rotated { lease: from.num32()?, number: number(from)? },
            17 => Self::Progressed { lease: from.num32()?, at: from.num()? },
            18 => Self::Waiting(WaitRecord::decode(from)?),
            19 => Self::WaitEnded { waiter: from.num32()?, refusal: Refusal::decode(from)? },
            20 => {
                let (lease, until) = (from.num32()?, GrantorTime(from.num()?));
                Self::Draining { lease, cause: DrainCause::decode(from)?, until }
            }
            21 => Self::DrainDropped { lease: from.num32()? },
            22 => {
                let (units, lasting) = (from.num32()?, from.flag()?);
                Self::Capacity { resource: name(from)?, units, lasting }
            }
            23 => Self::HoldConfirmed { lease: from.num32()?, number: number(from)? },
            24 => Self::HoldResized { lease: from.num32()?, units: from.num32()? },
            25 => Self::Vetoed { lease: from.num32()?, until: GrantorTime(from.num()?) },
            26 => Self::Pinned { lease: from.num32()?, at: from.num()? },
            27 => {
                let at = from.num()?;
                Self::Floor { resource: name(from)?, at }
            }
            28 => Self::Freed { resource: name(from)?, comment: from.text()? },
            code @ (29 | 49) => {
                let (prefix, comment, charter) = (from.text()?, from.text()?, from.bytes()?);
                let owner = if code == 49 { Some(decode_owner(from)?) } else { None };
                Self::CharterSet { prefix, charter, comment, owner }
            }
            30 => Self::CharterRemoved { prefix: from.text()?, comment: from.text()? },
            31 => Self::Answered {
                session: from.num32()?,
                sequence: from.num()?,
                lowest: from.num()?,
                digest: from.fixed()?,
                outcome: StoredOutcome::decode(from)?,
            },
            32 => {
                let (victim, policy) = (from.text()?, from.u8()?);
                Self::Deadlocked { cycle: Cycle::decode(from)?, victim, policy }
            }
            33 => Self::State(state::StateRecord::decode(from)?),
            34 => Self::Delivery(delivery::DeliveryRecord::decode(from)?),
            35 => Self::Cache(cache::CacheRecord::decode(from)?),
            36 => Self::Expired(ExpiredBatch::decode(from)?),
            37 => Self::Coverage(coverage::CoverageRecord::decode(from)?),
            38 => Self::MaxTtlSet { max_ttl: max_ttl(from)?, comment: from.text()? },
            41 => {
                let (proposal, until) = (from.num()?, GrantorTime(from.num()?));
                let (proposer, credential) = (principal(from)?, from.text()?);
                Self::Proposed { proposal, proposer, credential, command: from.bytes()?, until }
            }
            42 => {
                Self::ProposalApproved { proposal: from.num()?, approver: principal(from)?, credential: from.text()? }
            }
            43 => Self::ProposalCanceled { proposal: from.num()?, by: principal(from)? },
            code @ (46 | 50) => {
                let mut attribution = Attribution::decode(from)?;
                if code == 50 {
                    attribution.origin.trace = Some(TraceContext::decode(from)?);
                }
                Self::AttributedTo(attribution)
            }
            47 => Self::AttributionEnded,
            48 => Self::ActedAlone { action: from.text()?, resource: from.text()?, reason: from.text()? },
            51 => Self::LeaseTraced { lease: from.num32()?, trace: TraceContext::decode(from)? },
            52 => Self::WaitTraced { waiter: from.num32()?, trace: TraceContext::decode(from)? },
            _ => return Err(from.wrong("unknown record")),
        })
    }
}

/// A resource name of valid length.
fn name<'a>(from: &mut Reader<'a>) -> Result<&'a str, DecodeError> {
    short(from, limits::NAME_BYTES, "a resource name of a wrong length")
}

/// A longest ttl within its limits.
fn max_ttl(from: &mut Reader<'_>) -> Result<u64, DecodeError> {
    let ms = from.num()?;
    if (limits::TTL_MIN..=limits::TTL_MAX_EVER).contains(&ms) {
        Ok(ms)
    } else {
        Err(from.wrong("an impossible longest ttl"))
    }
}

/// A holder name of valid length.
fn holder<'a>(from: &mut Reader<'a>) -> Result<&'a str, DecodeError> {
    short(from, limits::HOLDER_BYTES, "a holder name of a wrong length")
}

fn short<'a>(from: &mut Reader<'a>, limit: usize, wrong: &'static str) -> Result<&'a str, DecodeError> {
    let text = from.text()?;
    if text.is_empty() || text.len() > limit { Err(from.wrong(wrong)) } else { Ok(text) }
}

impl<'a> GrantRecord<'a> {
    fn encode(&self, out: &mut Vec<u8>) {
        let present = u8::from(self.session.is_some())
            | u8::from(self.waiter.is_some()) << 1
            | u8::from(self.overlaps.is_some()) << 2
            | u8::from(self.max_hold.is_some()) << 3
            | u8::from(self.progress.is_some()) << 4
            | u8::from(!self.metadata.is_empty()) << 5;
        out.u8(present);
        encode_access(out, self.access);
        out.u8(self.priority);
        out.num(u64::from(self.lease.slot));
        out.num(u64::from(self.lease.reuse));
        out.num(self.number.get());
        out.num(u64::from(self.slot));
        out.num(u64::from(self.ttl));
        out.text(self.resource);
        out.text(self.holder);
        let optional = [
            self.session.map(u64::from),
            self.waiter.map(u64::from),
            self.overlaps.map(u64::from),
            self.max_hold,
            self.progress,
        ];
        for value in optional.into_iter().flatten() {
            out.num(value);
        }
        if !self.metadata.is_empty() {
            out.bytes(self.metadata);
        }
    }

    fn decode(from: &mut Reader<'a>, owner: Option<&'a str>) -> Result<Self, DecodeError> {
        let present = from.u8()?;
        let access = decode_access(from)?;
        let priority = from.u8()?;
        let lease = LeaseId { slot: from.num32()?, reuse: from.num32()? };
        let number = number(from)?;
        let (slot, ttl) = (from.num32()?, from.num32()?);
        let (resource, holder) = (name(from)?, holder(from)?);
        let has = |bit: u8| present & (1 << bit) != 0;
        Ok(Self {
            lease,
            number,
            resource,
            owner,
            holder,
            access,
            slot,
            ttl,
            priority,
            session: if has(0) { Some(from.num32()?) } else { None },
            waiter: if has(1) { Some(from.num32()?) } else { None },
            overlaps: if has(2) { Some(from.num32()?) } else { None },
            max_hold: if has(3) { Some(from.num()?) } else { None },
            progress: if has(4) { Some(from.num()?) } else { None },
            metadata: if has(5) { from.bytes()? } else { &[] },
        })
    }
}

impl<'a> WaitRecord<'a> {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        for value in [self.waiter, self.session, self.ttl] {
            out.num(u64::from(value));
        }
        out.u8(self.priority);
        out.flag(self.atomic);
        out.num(self.until.0);
        out.text(self.holder);
        out.maybe(self.sequence);
        out.maybe(self.max_hold);
        out.maybe(self.progress);
        out.bytes(self.metadata);
        out.num(self.resources.len() as u64);
        for (resource, access) in &self.resources {
            out.text(resource);
            encode_access(out, *access);
        }
    }

    pub(crate) fn decode(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let (waiter, session, ttl) = (from.num32()?, from.num32()?, from.num32()?);
        let (priority, atomic) = (from.u8()?, from.flag()?);
        let until = GrantorTime(from.num()?);
        let holder = holder(from)?;
        let (sequence, max_hold, progress) = (from.maybe()?, from.maybe()?, from.maybe()?);
        let metadata = from.bytes()?;
        let count = from.num()?;
        if count == 0 || count > limits::MULTI as u64 {
            return Err(from.wrong("a wait for too many resources, or none"));
        }
        let mut resources = Vec::new();
        for _ in 0..count {
            resources.push((name(from)?, decode_access(from)?));
        }
        Ok(Self {
            waiter,
            session,
            holder,
            resources,
            atomic,
            ttl,
            priority,
            until,
            sequence,
            max_hold,
            progress,
            metadata,
        })
    }
}

impl<'a> DrainCause<'a> {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Handoff { mode: HandoffMode::Gap, to } => texts(out, 1, &[to]),
            Self::Handoff { mode: HandoffMode::Overlap, to } => texts(out, 2, &[to]),
            Self::Priority => out.u8(3),
            Self::Revoked { reason, comment } => {
                out.raw(&[4, reason.code()]);
                out.text(comment);
            }
        }
    }

    pub(crate) fn decode(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(match from.u8()? {
            1 => Self::Handoff { mode: HandoffMode::Gap, to: from.text()? },
            2 => Self::Handoff { mode: HandoffMode::Overlap, to: from.text()? },
            3 => Self::Priority,
            4 => Self::Revoked { reason: reason(from)?.0, comment: from.text()? },
            _ => return Err(from.wrong("no such cause")),
        })
    }
}

impl StoredOutcome {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Done => out.u8(0),
            Self::Waiting => out.u8(1),
            Self::Granted(leases) => {
                out.u8(2);
                out.num(leases.len() as u64);
                for lease in leases {
                    out.num(u64::from(lease.slot));
                    out.num(u64::from(lease.reuse));
                }
            }
            Self::Values(values) => {
                out.u8(3);
                out.num(values.len() as u64);
                for value in values {
                    out.num(*value);
                }
            }
            Self::Refused(refusal) => {
                out.u8(4);
                refusal.encode(out);
            }
        }
    }

    pub(crate) fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match from.u8()? {
            0 => Self::Done,
            1 => Self::Waiting,
            2 => {
                let mut leases = Vec::new();
                for _ in 0..from.num()? {
                    leases.push(LeaseId { slot: from.num32()?, reuse: from.num32()? });
                }
                Self::Granted(leases)
            }
            3 => {
                let mut values = Vec::new();
                for _ in 0..from.num()? {
                    values.push(from.num()?);
                }
                Self::Values(values)
            }
            4 => Self::Refused(Refusal::decode(from)?),
            _ => return Err(from.wrong("no such outcome")),
        })
    }
}

fn tagged(out: &mut Vec<u8>, tag: u8, values: &[u64]) {
    out.u8(tag);
    for value in values {
        out.num(*value);
    }
}

fn texts(out: &mut Vec<u8>, tag: u8, values: &[&str]) {
    out.u8(tag);
    for value in values {
        out.text(value);
    }
}

/// An end reason, and whether the resource is then blocked for an operator.
fn reason(from: &mut Reader<'_>) -> Result<(EndReason, bool), DecodeError> {
    let byte = from.u8()?;
    let reason = EndReason::from_code(byte & 0x7f).ok_or_else(|| from.wrong("no such reason"))?;
    Ok((reason, byte & 0x80 != 0))
}

pub(crate) fn encode_access(out: &mut Vec<u8>, access: Access) {
    match access {
        Access::Exclusive => out.u8(0),
        Access::Shared => out.u8(1),
        Access::Slot => out.u8(2),
        Access::Units(units) => {
            out.u8(3);
            out.num(u64::from(units));
        }
    }
}

pub(crate) fn decode_access(from: &mut Reader<'_>) -> Result<Access, DecodeError> {
    Ok(match from.u8()? {
        0 => Access::Exclusive,
        1 => Access::Shared,
        2 => Access::Slot,
        3 => Access::Units(from.num32()?),
        _ => return Err(from.wrong("no such access")),
    })
}

/// An identity of valid length.
fn principal<'a>(from: &mut Reader<'a>) -> Result<&'a str, DecodeError> {
    let text = from.text()?;
    if (1..=limits::PRINCIPAL_BYTES).contains(&text.len()) {
        Ok(text)
    } else {
        Err(from.wrong("an identity of a wrong length"))
    }
}
