//! Metadata of a request: the idempotency key, the highest token that the caller has seen, secrets, and the reason to act alone.

use leasehold_core::command::RequestId;
use leasehold_core::refusal::Refusal;
use leasehold_core::secret::{LeaseSecret, SecretDigest, SessionSecret};
use leasehold_wire::headers::{
    ALONE, IDEMPOTENCY_KEY, IdempotencyKey, LEASE_SECRET, SESSION_SECRET, TOKEN_SEEN, TOKEN_SEEN_RESOURCE,
    percent_decode,
};

use super::Api;
use crate::request::SeenToken;

/// Metadata of a unary request, from HTTP headers or gRPC metadata.
#[derive(Clone, Debug, Default)]
pub struct RequestMetadata {
    /// The key that identifies a retry.
    pub key: Option<IdempotencyKey>,
    /// The highest token that the caller has seen.
    pub token_seen: Option<SeenToken>,
    /// The secret of the lease that the request is about.
    pub lease_secret: Option<LeaseSecret>,
    /// The digest of the secret of the session that the request is about.
    pub session_secret: Option<SecretDigest>,
    /// Why the caller executes a dangerous command without a second identity.
    pub alone: Option<Box<str>>,
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
        let lease_secret = match header(LEASE_SECRET)? {
            None => None,
            Some(text) => Some(LeaseSecret::parse_hex(text).ok_or(Refusal::Invalid {
                field: LEASE_SECRET,
                reason: "must be the 32 hexadecimal digits of the field secret of the grant",
            })?),
        };
        let session_secret = match header(SESSION_SECRET)? {
            None => None,
            Some(text) => {
                let secret = SessionSecret::parse_hex(text).ok_or(Refusal::Invalid {
                    field: SESSION_SECRET,
                    reason: "must be the 64 hexadecimal digits of the field secret of the opened session",
                })?;
                Some(secret.digest())
            }
        };
        let alone = header(ALONE)?.map(|text| {
            let reason = "must be the reason to act alone, percent-encoded where it is not plain ASCII";
            percent_decode(text).ok_or(Refusal::Invalid { field: ALONE, reason })
        });
        let alone = alone.transpose()?.map(Into::into);
        Ok(Self { key, token_seen, lease_secret, session_secret, alone })
    }

    /// Whether a retry of the request is recognized.
    pub fn has_key(&self) -> bool {
        self.key.is_some()
    }

    /// The id under which the request can be retried.
    pub fn request_id(&self) -> Option<RequestId> {
        self.key.map(|key| key.id(0))
    }
}
