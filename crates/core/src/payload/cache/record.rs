//! Journal records of cached keys.

use std::sync::Arc;

use crate::codec::{DecodeError, Reader, Write};
use crate::ids::SessionId;
use crate::lease::EndReason;
use crate::limits::{HOLDER_BYTES, NAME_BYTES};
use crate::payload::{owner, put_owner, put_session, reason, session, text, ttl};
use crate::refusal::number;
use crate::token::Number;

/// The kind of exclusive grant on a cached key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OwnerKind {
    /// A write intent.
    Intent,
    /// A task to fill the cached copy.
    Fill,
}

/// One change of the cached keys. A live number belongs to one key only, so the number identifies the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CacheRecord {
    /// An idle key was evicted; its version raises the floor of all keys.
    Forgotten {
        /// The cached key.
        key: Arc<str>,
    },
    /// A read lease was granted.
    Read {
        /// The cached key.
        key: Box<str>,
        /// The read lease.
        lease: Number,
        /// The session that carries it.
        session: Option<SessionId>,
        /// The identity that was granted it; `None` for `local`.
        owner: Option<Box<str>>,
        /// Name of the reader.
        reader: Box<str>,
        /// Time until it expires unless renewed.
        ttl_ms: u64,
    },
    /// A read lease was renewed for its ttl.
    Renewed {
        /// The read lease.
        lease: Number,
    },
    /// A write intent or a fill started.
    Began {
        /// The cached key.
        key: Box<str>,
        /// Intent or fill.
        kind: OwnerKind,
        /// Its token number.
        number: Number,
        /// The session that carries it.
        session: Option<SessionId>,
        /// The identity that was granted it; `None` for `local`.
        owner: Option<Box<str>>,
        /// Name of the writer or filler.
        holder: Box<str>,
        /// Time until it expires.
        ttl_ms: u64,
    },
    /// A write was committed or a copy filled: the number is the new version.
    Done {
        /// The intent, or the fill token.
        number: Number,
    },
    /// A read lease, an intent or a fill ended.
    Ended {
        /// Its token number.
        number: Number,
        /// The end reason.
        reason: EndReason,
    },
}

impl CacheRecord {
    /// The highest token number that this record assigns.
    pub const fn numbers(&self) -> Option<Number> {
        match self {
            Self::Read { lease: number, .. } | Self::Began { number, .. } => Some(*number),
            _ => None,
        }
    }

    /// The identity that was granted something; `None` for `local`, and where it does not matter.
    pub(crate) fn owner(&self) -> Option<&str> {
        match self {
            Self::Read { owner, .. } | Self::Began { owner, .. } => owner.as_deref(),
            Self::Forgotten { .. } | Self::Renewed { .. } | Self::Done { .. } | Self::Ended { .. } => None,
        }
    }

    /// Appends the encoded record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Forgotten { key } => {
                out.u8(1);
                out.text(key);
            }
            // Grants to `local` have the codes from before grants had owners.
            Self::Read { key, lease, session, owner, reader, ttl_ms } => {
                out.u8(if owner.is_some() { 8 } else { 2 });
                put_owner(owner, out);
                granted(key, *lease, *session, reader, *ttl_ms, out);
            }
            Self::Began { key, kind, number, session, owner, holder, ttl_ms } => {
                out.u8(match (kind, owner) {
                    (OwnerKind::Intent, None) => 3,
                    (OwnerKind::Fill, None) => 4,
                    (OwnerKind::Intent, Some(_)) => 9,
                    (OwnerKind::Fill, Some(_)) => 10,
                });
                put_owner(owner, out);
                granted(key, *number, *session, holder, *ttl_ms, out);
            }
            Self::Renewed { lease } => {
                out.u8(5);
                out.num(lease.get());
            }
            Self::Done { number } => {
                out.u8(6);
                out.num(number.get());
            }
            Self::Ended { number, reason } => {
                out.u8(7);
                out.num(number.get());
                out.u8(reason.code());
            }
        }
    }

    /// Decodes a record from the front of the input.
    pub fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let code = from.u8()?;
        Ok(match code {
            1 => Self::Forgotten { key: text(from, NAME_BYTES)?.into() },
            2..=4 | 8..=10 => {
                let owner = owner(code >= 8, from)?;
                let key = text(from, NAME_BYTES)?.into();
                let number = number(from)?;
                let session = session(from)?;
                let holder = text(from, HOLDER_BYTES)?.into();
                let ttl_ms = ttl(from)?;
                let kind = match code {
                    2 | 8 => return Ok(Self::Read { key, lease: number, session, owner, reader: holder, ttl_ms }),
                    3 | 9 => OwnerKind::Intent,
                    _ => OwnerKind::Fill,
                };
                Self::Began { key, kind, number, session, owner, holder, ttl_ms }
            }
            5 => Self::Renewed { lease: number(from)? },
            6 => Self::Done { number: number(from)? },
            7 => Self::Ended { number: number(from)?, reason: reason(from)? },
            _ => return Err(from.wrong("unknown record of cached keys")),
        })
    }
}

fn granted(key: &str, number: Number, session: Option<SessionId>, holder: &str, ttl_ms: u64, out: &mut Vec<u8>) {
    out.text(key);
    out.num(number.get());
    put_session(session, out);
    out.text(holder);
    out.num(ttl_ms);
}
