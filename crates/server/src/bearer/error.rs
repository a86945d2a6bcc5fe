//! Why a bearer token is refused. The reasons name no token, no issuer and no principal.

use std::fmt;

use leasehold_wire::{Code, v1};

/// A bearer token, or a request without one, is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BearerError {
    /// A connection without a client certificate presents no token.
    Missing,
    /// The header is repeated or has another scheme.
    Header,
    /// The server is not configured for this kind of token.
    NotAccepted,
    /// The connection is plain and leaves this machine.
    Plain,
    /// The token names another principal than the certificate or the user id of its connection.
    OtherPrincipal,
    /// The text is neither an own token nor a JWT.
    Malformed,
    /// The check at the end of an own token does not match.
    Checksum,
    /// No own token has this id and secret.
    Unknown,
    /// The own token was revoked.
    Revoked,
    /// The token is over.
    Expired,
    /// The JWT is not valid yet.
    NotYetValid,
    /// The algorithm of the JWT is not that of its key.
    Algorithm,
    /// The issuer of the JWT is not configured.
    Issuer,
    /// The issuer of the JWT has no such key.
    Key,
    /// The signature of the JWT does not verify.
    Signature,
    /// The JWT is for another audience.
    Audience,
    /// A claim of the JWT is missing or invalid.
    Claim(&'static str),
    /// The JWT is valid for longer than 24 hours.
    Lifetime,
}

impl BearerError {
    /// The reason in log lines and problems.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Missing => "neither a client certificate nor a bearer token",
            Self::Header => "the header authorization is not one bearer token",
            Self::NotAccepted => "this server accepts no bearer token of this kind",
            Self::Plain => "a bearer token on a plain connection from another machine",
            Self::OtherPrincipal => "the bearer token names another principal than the connection",
            Self::Malformed => "the bearer token is malformed",
            Self::Checksum => "the bearer token is incomplete or mistyped",
            Self::Unknown => "unknown bearer token",
            Self::Revoked => "the bearer token was revoked",
            Self::Expired => "the bearer token has expired",
            Self::NotYetValid => "the JWT is not valid yet",
            Self::Algorithm => "the algorithm of the JWT is not that of its key",
            Self::Issuer => "unknown issuer of the JWT",
            Self::Key => "unknown key of the JWT",
            Self::Signature => "the signature of the JWT is invalid",
            Self::Audience => "the JWT is for another audience",
            Self::Claim(_) => "a claim of the JWT is missing or invalid",
            Self::Lifetime => "the JWT is valid for more than 24 hours",
        }
    }

    const fn next_step(self) -> &'static str {
        match self {
            Self::Missing => "connect with a client certificate, or send authorization: Bearer with a token",
            Self::Header => "send the header once, as Bearer and one token",
            Self::NotAccepted => "remove the token, or configure the server's settings bearers or jwt",
            Self::Plain => "the token may be known to others now, so revoke it, and connect with TLS",
            Self::OtherPrincipal => {
                "present one identity: the certificate or user id, or the token over TLS without one"
            }
            Self::Malformed | Self::Checksum => "copy the whole token",
            Self::Unknown | Self::Revoked | Self::Expired | Self::Lifetime => "get a new token",
            Self::NotYetValid => "compare the clocks of the issuer and of this server",
            Self::Algorithm | Self::Key | Self::Signature => {
                "compare the issuer's keys with the JWKS file of this server; RS256, ES256 and EdDSA are accepted"
            }
            Self::Issuer | Self::Audience => "get a token of a configured issuer for the audience of this server",
            Self::Claim(_) => "get a token with iss, sub, aud, exp and iat",
        }
    }

    /// The refusal of a request, and the reason for the end of a stream.
    pub fn problem(self) -> v1::Problem {
        let reason = match self {
            Self::Claim(claim) => format!("{}: {claim}", self.reason()),
            _ => self.reason().to_owned(),
        };
        let next_step = self.next_step();
        let message = format!("authorization: {reason}; nothing happened, {next_step}");
        let mut sentence = format!("{next_step}.");
        sentence[..1].make_ascii_uppercase();
        v1::Problem {
            field: "authorization".into(),
            reason,
            next_step: sentence,
            ..v1::Problem::of(Code::Unauthenticated, message)
        }
    }
}

impl fmt::Display for BearerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason())
    }
}

impl std::error::Error for BearerError {}
