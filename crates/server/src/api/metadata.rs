//! Metadata of a request: the idempotency key and the highest token that the caller has seen.

use leasehold_core::command::RequestId;
use leasehold_core::refusal::Refusal;
use leasehold_core::token::Token;
use leasehold_wire::headers::{IDEMPOTENCY_KEY, IdempotencyKey, TOKEN_SEEN};
use leasehold_wire::{TokenIssuer, decode_highest_token};

/// Metadata of a unary request, from HTTP headers or gRPC metadata.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestMetadata {
    /// The key that identifies a retry.
    pub key: Option<IdempotencyKey>,
    /// The highest token that the caller has seen.
    pub token_seen: Option<Token>,
}

impl RequestMetadata {
    /// Parses the metadata; `header` returns the value of a header as text, or fails if it is not text.
    pub fn parse<'a>(
        issuer: &TokenIssuer,
        header: impl Fn(&'static str) -> Result<Option<&'a str>, Refusal>,
    ) -> Result<Self, Refusal> {
        let key = match header(IDEMPOTENCY_KEY)? {
            None => None,
            Some(key) => Some(IdempotencyKey::parse(key).map_err(|_| Refusal::Invalid {
                field: IDEMPOTENCY_KEY,
                reason: "<session>:<sequence>, for example 17.0:42; without a session a retry is not detected",
            })?),
        };
        let token_seen = decode_highest_token(header(TOKEN_SEEN)?.unwrap_or_default(), issuer)?;
        Ok(Self { key, token_seen })
    }

    /// The id under which the request can be retried.
    pub fn request_id(&self) -> Option<RequestId> {
        self.key.map(|key| key.id(0))
    }
}
