//! Metadata of a request: the idempotency key and the highest token that the caller has seen.

use leasehold_core::command::RequestId;
use leasehold_core::refusal::Refusal;
use leasehold_wire::headers::{IDEMPOTENCY_KEY, IdempotencyKey, TOKEN_SEEN, TOKEN_SEEN_RESOURCE, percent_decode};

use super::Api;
use crate::request::SeenToken;

/// Metadata of a unary request, from HTTP headers or gRPC metadata.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestMetadata {
    /// The key that identifies a retry.
    pub key: Option<IdempotencyKey>,
    /// The highest token that the caller has seen.
    pub token_seen: Option<SeenToken>,
}

impl RequestMetadata {
    /// Parses the metadata; `header` returns the value of a header as text, or fails if it is not text.
    pub fn parse<'a>(
        api: &Api,
        header: impl Fn(&'static str) -> Result<Option<&'a str>, Refusal>,
    ) -> Result<Self, Refusal> {
        let key = match header(IDEMPOTENCY_KEY)? {
            None => None,
            Some(key) => Some(IdempotencyKey::parse(key).map_err(|_| Refusal::Invalid {
                field: IDEMPOTENCY_KEY,
                reason: "<session>:<sequence>, for example 17.0:42; without a session a retry is not detected",
            })?),
        };
        let resource = header(TOKEN_SEEN_RESOURCE)?.map(|text| {
            let reason = "must be the name of the token's resource, percent-encoded";
            percent_decode(text).ok_or(Refusal::Invalid { field: TOKEN_SEEN_RESOURCE, reason })
        });
        let resource = resource.transpose()?.unwrap_or_default();
        let token_seen = api.seen_token(header(TOKEN_SEEN)?.unwrap_or_default(), &resource)?;
        Ok(Self { key, token_seen })
    }

    /// The id under which the request can be retried.
    pub fn request_id(&self) -> Option<RequestId> {
        self.key.map(|key| key.id(0))
    }
}
