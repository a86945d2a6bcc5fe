//! What is put on record about cached keys.

use std::sync::Arc;

use crate::codec::{Malformed, Reader, Write};
use crate::ids::SessionId;
use crate::lease::Reason;
use crate::limits::{HOLDER_BYTES, NAME_BYTES};
use crate::payload::{put_session, reason, session, text, ttl};
use crate::refusal::number;
use crate::token::Number;

/// For what one has a key to itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// To change what is cached.
    Intent,
    /// To fill the cached copy.
    Fill,
}

/// One change of the cached keys. A number is live on one key only, so the number alone says which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// An idle key was forgotten to make room; its version stays as the floor of all.
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
        /// The session with which it ends.
        session: Option<SessionId>,
        /// Who reads.
        reader: Box<str>,
        /// How long it lasts unless renewed.
        ttl_ms: u64,
    },
    /// A read lease was renewed for its ttl.
    Renewed {
        /// The read lease.
        lease: Number,
    },
    /// Somebody has a key to itself.
    Began {
        /// The cached key.
        key: Box<str>,
        /// For what.
        kind: Kind,
        /// The token.
        number: Number,
        /// The session with which it ends.
        session: Option<SessionId>,
        /// Who.
        holder: Box<str>,
        /// For how long.
        ttl_ms: u64,
    },
    /// A write was committed or a copy filled: the number is the new version.
    Done {
        /// The intent, or the token to fill.
        number: Number,
    },
    /// A read lease, an intent or a fill is over.
    Ended {
        /// Its token.
        number: Number,
        /// Why.
        reason: Reason,
    },
}

impl Fact {
    /// The highest token number that this fact assigns.
    pub const fn numbers(&self) -> Option<Number> {
        match self {
            Self::Read { lease: number, .. } | Self::Began { number, .. } => Some(*number),
            _ => None,
        }
    }

    /// Appends its bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Forgotten { key } => {
                out.u8(1);
                out.text(key);
            }
            Self::Read { key, lease, session, reader, ttl_ms } => {
                out.u8(2);
                granted(key, *lease, *session, reader, *ttl_ms, out);
            }
            Self::Began { key, kind, number, session, holder, ttl_ms } => {
                out.u8(match kind {
                    Kind::Intent => 3,
                    Kind::Fill => 4,
                });
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

    /// Takes a fact off the front of bytes.
    pub fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let code = from.u8()?;
        Ok(match code {
            1 => Self::Forgotten { key: text(from, NAME_BYTES)?.into() },
            2..=4 => {
                let key = text(from, NAME_BYTES)?.into();
                let number = number(from)?;
                let session = session(from)?;
                let holder = text(from, HOLDER_BYTES)?.into();
                let ttl_ms = ttl(from)?;
                let kind = match code {
                    2 => return Ok(Self::Read { key, lease: number, session, reader: holder, ttl_ms }),
                    3 => Kind::Intent,
                    _ => Kind::Fill,
                };
                Self::Began { key, kind, number, session, holder, ttl_ms }
            }
            5 => Self::Renewed { lease: number(from)? },
            6 => Self::Done { number: number(from)? },
            7 => Self::Ended { number: number(from)?, reason: reason(from)? },
            _ => return Err(from.wrong("no such fact about cached keys")),
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
