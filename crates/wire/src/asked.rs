//! Requests: the message as the core's command, with its names borrowed, and back.

use leasehold_core::command::{AcquireAll, Command, Known, Part, Request, RequestId};
use leasehold_core::coverage::Report;
use leasehold_core::ids::{LeaseId, SessionId};
use leasehold_core::lease::Access;
use leasehold_core::refusal::Refusal;
use leasehold_core::token::{Cluster, Incarnation, Token, TokenError};
use prost::Message;
use sha2::{Digest, Sha256};

use crate::charter::{charter, read_charter};
use crate::coverage::{read_reports, reports};
use crate::lease::{acquire, acquire_all, hand_off, held, renew, revoke, some_session, wanted};
use crate::payload::{cache, delivery, put};
use crate::v1::request::Ask;
use crate::words::absent;
use crate::{lease_bits, lease_id, session_bits, v1};

/// Who asks, as far as the connection knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The session of the stream; none for a single call. What a lease's session must be, if there is one (L5).
    pub session: Option<SessionId>,
    /// Who answers.
    pub issuer: Issuer,
}

/// Whose tokens are given out and taken back here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Issuer {
    /// The cluster.
    pub cluster: Cluster,
    /// Its life.
    pub incarnation: Incarnation,
}

impl Issuer {
    /// Reads a token's text; another cluster's is refused, never compared (T6).
    pub fn read(&self, text: &str) -> Result<Token, Refusal> {
        let token = Token::parse(text)?;
        if token.cluster == self.cluster { Ok(token) } else { Err(Refusal::Token(TokenError::WrongCluster)) }
    }
}

/// What a request asks. It borrows its names from the message, and keeps the lists that a command borrows.
#[derive(Clone, Debug)]
pub struct Asked<'a>(Kept<'a>);

#[derive(Clone, Debug)]
enum Kept<'a> {
    One(Command<'a>),
    Several(Vec<(&'a str, Access)>, AcquireAll<'a>),
    Known(SessionId, Vec<LeaseId>, Part),
    Reports(Cluster, Vec<Report<'a>>),
}

impl<'a> Asked<'a> {
    /// Reads what is asked. What is absent and must not be, or cannot be known, is refused by the name of its field.
    pub fn read(ask: &'a Ask, caller: &Caller) -> Result<Self, Refusal> {
        let command = match ask {
            Ask::Acquire(ask) => Command::Acquire(acquire(ask, caller)?),
            Ask::AcquireAll(ask) => return Ok(Self(Kept::Several(wanted(ask)?, acquire_all(ask, caller)?))),
            Ask::Renew(ask) => Command::Renew(renew(ask, caller)?),
            Ask::Release(ask) => Command::Release(held(Some(ask), caller)?),
            Ask::Cancel(ask) => Command::Cancel { session: some_session(ask.session, caller)?, sequence: ask.sequence },
            Ask::Progress(ask) => Command::Progress { held: held(ask.held.as_ref(), caller)?, at: ask.at },
            Ask::Rotate(ask) => Command::Rotate(held(Some(ask), caller)?),
            Ask::Confirm(ask) => Command::Confirm(held(Some(ask), caller)?),
            Ask::HandOff(ask) => Command::HandOff(hand_off(ask, caller)?),
            Ask::Drained(ask) => Command::Drained(held(Some(ask), caller)?),
            Ask::Revoke(ask) => Command::Revoke(revoke(ask)?),
            Ask::Free(ask) => Command::Free { resource: &ask.resource, why: &ask.why },
            Ask::RenewSession(ask) => Command::RenewSession {
                session: some_session(ask.session, caller)?,
                known: ask.known.map(|known| Known { count: known.count, digest: known.digest }),
            },
            Ask::Reconcile(ask) => {
                let leases = ask.leases.iter().map(|bits| lease_id(*bits)).collect();
                let part = Part { from: ask.from.map(lease_id), until: ask.until.map(lease_id) };
                return Ok(Self(Kept::Known(some_session(ask.session, caller)?, leases, part)));
            }
            Ask::CloseSession(ask) => Command::CloseSession { session: some_session(ask.session, caller)? },
            Ask::Put(ask) => put(ask, caller)?,
            Ask::Delivery(ask) => Command::Delivery(delivery(ask, caller)?),
            Ask::Cache(ask) => Command::Cache(cache(ask, caller)?),
            Ask::Pin(ask) => Command::Pin { held: held(ask.held.as_ref(), caller)?, at: ask.at },
            Ask::Collect(ask) => Command::Collect { resource: &ask.resource, below: ask.below },
            Ask::SetCapacity(ask) => Command::SetCapacity { resource: &ask.resource, units: ask.units },
            Ask::ConfirmHold(ask) => Command::ConfirmHold(held(Some(ask), caller)?),
            Ask::ResizeHold(ask) => Command::ResizeHold { held: held(ask.held.as_ref(), caller)?, units: ask.units },
            Ask::Veto(ask) => Command::Veto { held: held(ask.held.as_ref(), caller)?, for_ms: ask.for_ms },
            Ask::SetCharter(ask) => Command::SetCharter {
                prefix: &ask.prefix,
                charter: Box::new(read_charter(ask.charter.as_ref().ok_or(absent("charter"))?)?),
                why: &ask.why,
            },
            Ask::RemoveCharter(ask) => Command::RemoveCharter { prefix: &ask.prefix, why: &ask.why },
            Ask::WaiveQuarantine(ask) => Command::WaiveQuarantine { why: &ask.why },
            Ask::StepDown(_) => Command::StepDown,
            Ask::Report(ask) => {
                let (cluster, reports) = read_reports(ask)?;
                return Ok(Self(Kept::Reports(cluster, reports)));
            }
            Ask::ForgetTarget(ask) => {
                Command::ForgetTarget { resource: &ask.resource, target: &ask.target, why: &ask.why }
            }
            Ask::ShowToken(_) => Command::Show,
        };
        Ok(Self(Kept::One(command)))
    }

    /// The command.
    pub fn command(&self) -> Command<'_> {
        match &self.0 {
            Kept::One(command) => command.clone(),
            Kept::Several(wanted, acquire) => Command::AcquireAll(AcquireAll { wanted, ..*acquire }),
            Kept::Known(session, leases, part) => Command::Reconcile { session: *session, leases, part: *part },
            Kept::Reports(cluster, reports) => Command::Report { cluster: *cluster, reports },
        }
    }
}

/// A request's marks. Its body is digested only where a retry is recognised by it (L11); a token that the request itself
/// shows counts as seen when it is the higher one (T9).
pub fn request(tag: u64, ask: &Ask, id: Option<RequestId>, seen: Option<Token>, issuer: &Issuer) -> Request {
    let id = id.filter(|_| is_remembered(ask)).map(|id| RequestId { digest: digest(ask), ..id });
    let shown = token_in(ask).and_then(|text| issuer.read(text).ok());
    Request { tag, id, shown: seen.into_iter().chain(shown).max_by_key(|token| token.number) }
}

/// What stands for a request's body: another body under the same id is a conflict. It never changes, because answers are
/// kept under it over updates.
pub fn digest(ask: &Ask) -> u64 {
    let mut bytes = Vec::with_capacity(ask.encoded_len());
    ask.encode(&mut bytes);
    let digest = Sha256::digest(&bytes);
    u64::from_be_bytes(std::array::from_fn(|i| digest[i]))
}

/// Whether a retry must be told the same. The others change nothing on which a retry could act twice; a renewal does where
/// it raises the token, which the grantor knows. A report that comes twice counts twice, because remembering it would cost a
/// commit for every check.
const fn is_remembered(ask: &Ask) -> bool {
    !matches!(ask, Ask::RenewSession(_) | Ask::Confirm(_) | Ask::ShowToken(_) | Ask::Report(_))
}

/// The token text inside a request.
fn token_in(ask: &Ask) -> Option<&str> {
    let text = match ask {
        Ask::Renew(ask) => &ask.held.as_ref()?.token,
        Ask::Release(held) | Ask::Rotate(held) | Ask::Confirm(held) | Ask::Drained(held) | Ask::ConfirmHold(held) => {
            &held.token
        }
        Ask::Progress(ask) => &ask.held.as_ref()?.token,
        Ask::HandOff(ask) => &ask.token,
        Ask::Put(ask) => &ask.held.as_ref()?.token,
        Ask::Pin(ask) => &ask.held.as_ref()?.token,
        Ask::ResizeHold(ask) => &ask.held.as_ref()?.token,
        Ask::Veto(ask) => &ask.held.as_ref()?.token,
        Ask::ShowToken(ask) => &ask.token,
        _ => return None,
    };
    (!text.is_empty()).then_some(text)
}

/// The message for a command. None for those that a hello makes.
pub fn ask(command: &Command<'_>) -> Option<Ask> {
    Some(match command {
        Command::OpenSession(_) | Command::ResumeSession { .. } => return None,
        Command::RenewSession { session, known } => Ask::RenewSession(v1::RenewSession {
            known: known.map(|known| v1::Known { count: known.count, digest: known.digest }),
            session: Some(session_bits(*session)),
        }),
        Command::Reconcile { session, leases, part } => Ask::Reconcile(v1::Reconcile {
            leases: leases.iter().map(|lease| lease_bits(*lease)).collect(),
            session: Some(session_bits(*session)),
            from: part.from.map(lease_bits),
            until: part.until.map(lease_bits),
        }),
        Command::CloseSession { session } => {
            Ask::CloseSession(v1::CloseSession { session: Some(session_bits(*session)) })
        }
        Command::Acquire(acquire) => Ask::Acquire(acquire.into()),
        Command::AcquireAll(acquire) => Ask::AcquireAll(acquire.into()),
        Command::Cancel { session, sequence } => {
            Ask::Cancel(v1::Cancel { sequence: *sequence, session: Some(session_bits(*session)) })
        }
        Command::Renew(renew) => Ask::Renew(renew.into()),
        Command::Release(held) => Ask::Release(held.into()),
        Command::Confirm(held) => Ask::Confirm(held.into()),
        Command::Rotate(held) => Ask::Rotate(held.into()),
        Command::Progress { held, at } => Ask::Progress(v1::Progress { held: Some(held.into()), at: *at }),
        Command::Revoke(revoke) => Ask::Revoke(revoke.into()),
        Command::Free { resource, why } => Ask::Free(v1::Free { resource: (*resource).into(), why: (*why).into() }),
        Command::HandOff(handoff) => Ask::HandOff(handoff.into()),
        Command::Drained(held) => Ask::Drained(held.into()),
        Command::SetCapacity { resource, units } => {
            Ask::SetCapacity(v1::SetCapacity { resource: (*resource).into(), units: *units })
        }
        Command::ConfirmHold(held) => Ask::ConfirmHold(held.into()),
        Command::ResizeHold { held, units } => {
            Ask::ResizeHold(v1::ResizeHold { held: Some(held.into()), units: *units })
        }
        Command::Veto { held, for_ms } => Ask::Veto(v1::Veto { held: Some(held.into()), for_ms: *for_ms }),
        Command::Pin { held, at } => Ask::Pin(v1::Pin { held: Some(held.into()), at: *at }),
        Command::Collect { resource, below } => {
            Ask::Collect(v1::Collect { resource: (*resource).into(), below: *below })
        }
        Command::Put { held, key, bytes, expect } => Ask::Put(v1::Put {
            held: Some(held.into()),
            key: (*key).into(),
            value: bytes.map(Into::into),
            expect: *expect,
        }),
        Command::Delivery(command) => Ask::Delivery(command.into()),
        Command::Cache(command) => Ask::Cache(command.into()),
        Command::SetCharter { prefix, charter: terms, why } => Ask::SetCharter(Box::new(v1::SetCharter {
            prefix: (*prefix).into(),
            charter: Some(charter(terms)),
            why: (*why).into(),
        })),
        Command::RemoveCharter { prefix, why } => {
            Ask::RemoveCharter(v1::RemoveCharter { prefix: (*prefix).into(), why: (*why).into() })
        }
        Command::WaiveQuarantine { why } => Ask::WaiveQuarantine(v1::WaiveQuarantine { why: (*why).into() }),
        Command::Report { cluster, reports: seen } => Ask::Report(reports(*cluster, seen)),
        Command::ForgetTarget { resource, target, why } => Ask::ForgetTarget(v1::ForgetTarget {
            resource: (*resource).into(),
            target: (*target).into(),
            why: (*why).into(),
        }),
        Command::StepDown => Ask::StepDown(v1::StepDown {}),
        Command::Show => Ask::ShowToken(v1::ShowToken::default()),
        _ => return None,
    })
}

impl v1::Request {
    /// What is asked; a request that asks nothing this version knows is refused.
    pub fn asked(&self) -> Result<&Ask, Refusal> {
        self.ask.as_ref().ok_or(Refusal::Invalid { field: "ask", reason: "nothing that this version knows was asked" })
    }

    /// The bytes that this request takes in a batch.
    pub fn weight(&self) -> usize {
        self.encoded_len()
    }
}
