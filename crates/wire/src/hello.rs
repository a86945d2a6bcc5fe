//! Decoding of the hello that opens a session stream, and the welcome that answers it.

use std::fmt;

use leasehold_core::command::{Command, OpenSession, SessionGrant};
use leasehold_core::grantor::Status;
use leasehold_core::refusal::Refusal;
use leasehold_core::secret::{SESSION_SECRET_BYTES, SecretDigest, SessionSecret};
use leasehold_core::token::Token;

use crate::command_context::TokenIssuer;
use crate::enums::missing_field;
use crate::problem::problem;
use crate::{Code, session_bits, session_id, v1};

/// Supported protocol version.
pub const PROTOCOL: u32 = 1;
/// Additions to this protocol version that a client may require.
pub const FEATURES: [&str; 0] = [];

/// A decoded [`Hello`](v1::Hello).
#[derive(Clone)]
pub struct HelloRequest<'a> {
    /// Opens or resumes a session.
    pub command: Command<'a>,
    /// The highest token that the client has seen.
    pub seen: Option<Token>,
    /// Wall clock of the holder in Unix milliseconds, if it was sent.
    pub wall_ms: Option<u64>,
    /// Name and version of the client.
    pub client: &'a str,
}

/// Omits the command, which contains the digest of the secret.
impl fmt::Debug for HelloRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HelloRequest").field("client", &self.client).field("seen", &self.seen).finish_non_exhaustive()
    }
}

/// Omits the secret.
impl fmt::Debug for v1::Welcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let session = session_id(self.session);
        f.debug_struct("Welcome").field("session", &session).field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

/// Omits the secret.
impl fmt::Debug for v1::ResumeSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResumeSession").field("session", &session_id(self.session)).finish_non_exhaustive()
    }
}

/// Decodes a hello. `secret` is the digest of fresh randomness from the server, used if a session is opened.
pub fn decode_hello<'a>(
    hello: &'a v1::Hello,
    secret: SecretDigest,
    issuer: &TokenIssuer,
) -> Result<HelloRequest<'a>, Box<v1::Problem>> {
    if hello.protocol != PROTOCOL {
        let message =
            format!("protocol version {} is not supported, only {PROTOCOL}; update the older side", hello.protocol);
        let problem = v1::Problem::of(Code::UnsupportedVersion, message);
        return Err(Box::new(v1::Problem { have: Some(hello.protocol), want: Some(PROTOCOL), ..problem }));
    }
    if let Some(unknown) = hello.required_features.iter().find(|name| !FEATURES.contains(&name.as_str())) {
        let shown: String = unknown.chars().filter(|c| !c.is_control()).take(64).collect();
        let message =
            format!("the client requires feature {shown}, which this server does not have; update the server");
        let problem = v1::Problem::of(Code::UnsupportedVersion, message);
        return Err(Box::new(v1::Problem { field: "required_features".into(), want: Some(PROTOCOL), ..problem }));
    }
    let command = session_command(hello, secret).map_err(|refusal| Box::new(problem(&refusal)))?;
    let seen = decode_highest_token(&hello.highest_token, issuer).map_err(|refusal| Box::new(problem(&refusal)))?;
    let wall_ms = (hello.wall_ms != 0).then_some(hello.wall_ms);
    Ok(HelloRequest { command, seen, wall_ms, client: &hello.client })
}

fn session_command(hello: &v1::Hello, secret: SecretDigest) -> Result<Command<'_>, Refusal> {
    use v1::hello::Session;
    match hello.session.as_ref().ok_or(missing_field("session"))? {
        Session::Open(open) => Ok(open.command(secret)),
        Session::Resume(resume) => resume.command(),
    }
}

impl v1::OpenSession {
    /// Converts into a command, with the digest of a secret from the server.
    pub fn command(&self, secret: SecretDigest) -> Command<'_> {
        Command::OpenSession(OpenSession {
            holder: &self.holder,
            ttl_ms: self.ttl_ms,
            secret,
            waits_only: self.waits_only,
        })
    }
}

impl v1::ResumeSession {
    /// Converts into a command.
    pub fn command(&self) -> Result<Command<'static>, Refusal> {
        if self.secret.len() != SESSION_SECRET_BYTES {
            return Err(Refusal::Invalid { field: "secret", reason: "must be the 32 bytes from the welcome" });
        }
        Ok(Command::ResumeSession { session: session_id(self.session), secret: SecretDigest::of(&self.secret) })
    }
}

/// Decodes the highest token that a client has seen; empty text means none.
pub fn decode_highest_token(text: &str, issuer: &TokenIssuer) -> Result<Option<Token>, Refusal> {
    if text.is_empty() { Ok(None) } else { issuer.parse_token(text).map(Some) }
}

/// Builds the answer to a hello. The secret is included only when the session was opened.
pub fn welcome(grant: &SessionGrant, secret: Option<&SessionSecret>, status: &Status) -> v1::Welcome {
    v1::Welcome {
        protocol: PROTOCOL,
        session: session_bits(grant.session),
        secret: secret.map(|secret| secret.expose().to_vec()).unwrap_or_default(),
        cluster: status.cluster.to_string(),
        incarnation: status.incarnation.to_string(),
        validity: v1::Validity::from(status.validity).into(),
        max_ttl_ms: status.max_ttl_ms,
        ttl_ms: grant.ttl_ms,
        remaining_ms: grant.remaining_ms,
    }
}
