//! Metadata of a request: the idempotency key, the highest token that the caller has seen, secrets, the reason to act alone, and the
//! trace that it belongs to.

use leasehold_core::command::RequestId;
use leasehold_core::refusal::Refusal;
use leasehold_core::secret::{LeaseSecret, SecretDigest, SessionSecret};
use leasehold_core::trace_context::TraceContext;
use leasehold_wire::headers::{
    ALONE, IDEMPOTENCY_KEY, IdempotencyKey, LEASE_SECRET, SESSION_SECRET, TOKEN_SEEN, TOKEN_SEEN_RESOURCE, TRACEPARENT,
    percent_decode,
};

use super::Api;
use crate::identity::current_or_local;
use crate::request::SeenToken;

/// Metadata of a unary request, from HTTP headers or gRPC metadata.
#[derive(Clone, Debug, Default)]
pub struct RequestMetadata {
    /// The key that identifies a retry.
    pub key: Option<IdempotencyKey>,
    /// Digest of the caller's identity and a key that the caller made itself, instead of `key`.
    pub client_key: Option<SecretDigest>,
    /// The highest token that the caller has seen.
    pub token_seen: Option<SeenToken>,
    /// The secret of the lease that the request is about.
    pub lease_secret: Option<LeaseSecret>,
    /// The digest of the secret of the session that the request is about.
    pub session_secret: Option<SecretDigest>,
    /// Why the caller executes a dangerous command without a second identity.
    pub alone: Option<Box<str>>,
    /// The trace that the request belongs to.
    pub trace: Option<TraceContext>,
}

impl RequestMetadata {
    /// Parses the metadata; `header` returns the value of a header as text, or fails if it is not text.
    pub fn parse<'a>(
        api: &Api,
        header: impl Fn(&'static str) -> Result<Option<&'a str>, Refusal>,
    ) -> Result<Self, Refusal> {
        let text = header(IDEMPOTENCY_KEY)?;
        let key = text.and_then(|text| IdempotencyKey::parse(text).ok());
        let client_key = text.filter(|_| key.is_none()).map(client_key).transpose()?;
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
        // An invalid one is ignored, as its specification requires; so is one that is repeated.
        let trace = header(TRACEPARENT).ok().flatten().and_then(TraceContext::parse);
        Ok(Self { key, client_key, token_seen, lease_secret, session_secret, alone, trace })
    }

    /// Whether a retry of the request is recognized.
    pub fn has_key(&self) -> bool {
        self.key.is_some() || self.client_key.is_some()
    }

    /// The id under which the request can be retried.
    pub fn request_id(&self) -> Option<RequestId> {
        self.key.map(|key| key.id(0))
    }
}

/// Length of an idempotency key that a client makes.
const CLIENT_KEY_LENGTH: std::ops::RangeInclusive<usize> = 16..=128;

/// The digest of a key that a client made, for example a UUID. It covers the identity, so that no other identity finds what is stored
/// under the key (A6).
fn client_key(text: &str) -> Result<SecretDigest, Refusal> {
    let is_visible = text.bytes().all(|byte| byte.is_ascii_graphic());
    if !CLIENT_KEY_LENGTH.contains(&text.len()) || !is_visible || is_like_session_key(text) {
        let reason = "<session>:<sequence>, for example 17.0:42, or 16 to 128 visible ASCII characters such as a UUID";
        return Err(Refusal::Invalid { field: IDEMPOTENCY_KEY, reason });
    }
    let principal = &current_or_local().principal;
    // A principal has no zero byte, so that the two parts are distinct.
    Ok(SecretDigest::of(&[principal.as_bytes(), b"\0", text.as_bytes()].concat()))
}

/// Whether a text looks like the key of a session that has a mistake, and not like one that a client made.
fn is_like_session_key(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b':')) && text.contains(':')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_makes_keys_of_16_to_128_visible_characters() {
        for good in ["0c7f2c7e-8f9b-4b52-9f2e-6d1a5f0c9c11", "0123456789abcdef", &"k".repeat(128)] {
            assert!(client_key(good).is_ok(), "{good}");
        }
        for bad in ["", "short", "0123456789abcde", &"k".repeat(129), "0123456789 abcdef", "17.0:99999999999999999999"]
        {
            assert!(client_key(bad).is_err(), "{bad}");
        }
        assert!(client_key("0123456789abcdef").ok() != client_key("0123456789abcdeg").ok());
    }
}
