//! The first words of a stream: who comes, in which version, and what the server is.

use std::fmt;

use leasehold_core::command::{Command, OpenSession, SessionGrant};
use leasehold_core::grantor::Status;
use leasehold_core::refusal::Refusal;
use leasehold_core::token::Token;

use crate::asked::Issuer;
use crate::problem::problem;
use crate::words::absent;
use crate::{Code, session_bits, session_id, v1};

/// The version spoken.
pub const PROTOCOL: u32 = 1;
/// The additions to this version that a client may insist on.
pub const MUST_UNDERSTAND: [&str; 0] = [];

/// How long a session's secret is.
const SECRET_BYTES: usize = 32;

/// A hello that can be answered.
#[derive(Clone)]
pub struct Arrival<'a> {
    /// Open or resume a session.
    pub command: Command<'a>,
    /// The highest token the client has seen.
    pub seen: Option<Token>,
    /// The holder's wall clock, in milliseconds since 1970, if it told.
    pub wall_ms: Option<u64>,
    /// The client's name and version.
    pub client: &'a str,
}

/// Without the command, which carries a secret.
impl fmt::Debug for Arrival<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arrival").field("client", &self.client).field("seen", &self.seen).finish_non_exhaustive()
    }
}

/// Without the secret.
impl fmt::Debug for v1::Welcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let session = session_id(self.session);
        f.debug_struct("Welcome").field("session", &session).field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

/// Without the secret.
impl fmt::Debug for v1::ResumeSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResumeSession").field("session", &session_id(self.session)).finish_non_exhaustive()
    }
}

/// Reads a hello. `secret` is drawn by the server for a session that is opened.
pub fn arrival<'a>(
    hello: &'a v1::Hello,
    secret: [u8; SECRET_BYTES],
    issuer: &Issuer,
) -> Result<Arrival<'a>, Box<v1::Problem>> {
    if hello.protocol != PROTOCOL {
        let message = format!("protocol {} where {PROTOCOL} is spoken; update the older side", hello.protocol);
        let problem = v1::Problem::of(Code::UnsupportedVersion, message);
        return Err(Box::new(v1::Problem { have: Some(hello.protocol), want: Some(PROTOCOL), ..problem }));
    }
    if let Some(unknown) = hello.must_understand.iter().find(|name| !MUST_UNDERSTAND.contains(&name.as_str())) {
        let shown: String = unknown.chars().filter(|c| !c.is_control()).take(64).collect();
        let message = format!("the client insists on {shown}, which is not known here; update the server");
        let problem = v1::Problem::of(Code::UnsupportedVersion, message);
        return Err(Box::new(v1::Problem { field: "must_understand".into(), want: Some(PROTOCOL), ..problem }));
    }
    let command = opening(hello, secret).map_err(|refusal| Box::new(problem(&refusal)))?;
    let seen = read_shown(&hello.shown, issuer).map_err(|refusal| Box::new(problem(&refusal)))?;
    let wall_ms = (hello.wall_ms != 0).then_some(hello.wall_ms);
    Ok(Arrival { command, seen, wall_ms, client: &hello.client })
}

fn opening(hello: &v1::Hello, secret: [u8; SECRET_BYTES]) -> Result<Command<'_>, Refusal> {
    use v1::hello::How;
    match hello.how.as_ref().ok_or(absent("how"))? {
        How::Open(open) => Ok(open.command(secret)),
        How::Resume(resume) => resume.command(),
    }
}

impl v1::OpenSession {
    /// The command, with a secret that the server drew.
    pub fn command(&self, secret: [u8; SECRET_BYTES]) -> Command<'_> {
        Command::OpenSession(OpenSession {
            holder: &self.holder,
            ttl_ms: self.ttl_ms,
            secret: secret.into(),
            waits_only: self.waits_only,
        })
    }
}

impl v1::ResumeSession {
    /// The command.
    pub fn command(&self) -> Result<Command<'static>, Refusal> {
        let secret = <[u8; SECRET_BYTES]>::try_from(self.secret.as_slice());
        let secret = secret.map_err(|_| Refusal::Invalid { field: "secret", reason: "the 32 bytes of the welcome" })?;
        Ok(Command::ResumeSession { session: session_id(self.session), secret: secret.into() })
    }
}

/// The highest token a client has seen; an empty text is none.
pub fn read_shown(text: &str, issuer: &Issuer) -> Result<Option<Token>, Refusal> {
    if text.is_empty() { Ok(None) } else { issuer.read(text).map(Some) }
}

/// The answer to a hello. The secret is told only to who opened the session.
pub fn welcome(grant: &SessionGrant, secret: Option<[u8; SECRET_BYTES]>, status: &Status) -> v1::Welcome {
    v1::Welcome {
        protocol: PROTOCOL,
        session: session_bits(grant.session),
        secret: secret.map(Into::into).unwrap_or_default(),
        cluster: status.cluster.to_string(),
        incarnation: status.incarnation.to_string(),
        rung: v1::Rung::from(status.rung).into(),
        max_ttl_ms: status.max_ttl_ms,
        ttl_ms: grant.ttl_ms,
        remaining_ms: grant.remaining_ms,
    }
}
