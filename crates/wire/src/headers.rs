//! Header and metadata names, and the idempotency key that identifies a request across retries.

use std::fmt;

use leasehold_core::command::RequestId;
use leasehold_core::ids::SessionId;
use leasehold_core::limits::REQUESTS_PER_SESSION;

/// Why a dangerous command is executed without the approval of a second identity, percent-encoded where it is not plain ASCII.
pub const ALONE: &str = "leasehold-alone";
/// Idempotency key `<session>:<sequence>`, in HTTP headers and gRPC metadata.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// Secret of the lease, in hexadecimal.
pub const LEASE_SECRET: &str = "lease-secret";
/// Text of the lease's token.
pub const LEASE_TOKEN: &str = "lease-token";
/// Journal position that an answer depends on.
pub const POSITION: &str = "leasehold-position";
/// Secret of the session, in hexadecimal.
pub const SESSION_SECRET: &str = "session-secret";
/// Minimum journal position from which a standby may answer a query. Without it only the leader answers.
pub const STANDBY: &str = "leasehold-standby";
/// The operation of a distributed trace that caused the request (W3C Trace Context). An invalid one is ignored.
pub const TRACEPARENT: &str = "traceparent";
/// Text of the highest token that the caller has seen.
pub const TOKEN_SEEN: &str = "lease-token-seen";
/// Name of the resource of that token, percent-encoded.
pub const TOKEN_SEEN_RESOURCE: &str = "lease-token-seen-resource";

/// A name as the value of a header: every byte that is not visible ASCII, and the percent sign, as `%` and two digits.
pub fn percent_encode(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'!'..=b'~' if byte != b'%' => text.push(byte.into()),
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

/// The name in the value of a header; `None` if it is not percent-encoded UTF-8.
pub fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        bytes.push(match (byte, after) {
            (b'%', [high, low, after @ ..]) => {
                rest = after;
                let digit = |c: u8| char::from(c).to_digit(16);
                u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()?
            }
            (b'%', _) => return None,
            _ => *byte,
        });
    }
    String::from_utf8(bytes).ok()
}

/// How many earlier sequence numbers of a session still find their answers. A key does not carry the lowest pending
/// sequence number, so it is assumed to be this far back.
pub const KEY_WINDOW: u64 = 512;

const _: () = assert!(
    (KEY_WINDOW as usize) < REQUESTS_PER_SESSION,
    "requests with keys never exceed the replies that a session stores"
);

/// Identifies a request of a session across retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IdempotencyKey {
    /// Session of the request.
    pub session: SessionId,
    /// Number of the request in its session, from 1.
    pub sequence: u64,
}

impl IdempotencyKey {
    /// Parses a key of the form `17.0:42`.
    pub fn parse(text: &str) -> Result<Self, ParseKeyError> {
        let (session, sequence) = text.split_once(':').ok_or(ParseKeyError)?;
        let plain = sequence.bytes().all(|b| b.is_ascii_digit()) && !sequence.starts_with('0');
        if !plain {
            return Err(ParseKeyError);
        }
        let session = session.parse().map_err(|_| ParseKeyError)?;
        Ok(Self { session, sequence: sequence.parse().map_err(|_| ParseKeyError)? })
    }

    /// Returns the request id for a body with this digest.
    pub const fn id(self, digest: u64) -> RequestId {
        let lowest = if self.sequence > KEY_WINDOW { self.sequence - KEY_WINDOW } else { 1 };
        RequestId { session: self.session, sequence: self.sequence, lowest, digest }
    }
}

impl fmt::Display for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.session, self.sequence)
    }
}

/// Invalid text of an idempotency key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseKeyError;

impl fmt::Display for ParseKeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not <session>:<sequence>; number the requests of a session from 1 and write it like 17.0:42")
    }
}

impl std::error::Error for ParseKeyError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_a_session_and_a_sequence_and_nothing_else() {
        let key = IdempotencyKey::parse("17.0:42").unwrap();
        assert_eq!(key, IdempotencyKey { session: SessionId { slot: 17, reuse: 0 }, sequence: 42 });
        assert_eq!(key.to_string(), "17.0:42");
        for bad in
            ["", "42", "17.0", "17.0:", "17.0:0", "17.0:042", "17.0:-1", "17.0:4 2", "17.0:1:2", "17:42", "a.b:1"]
        {
            assert_eq!(IdempotencyKey::parse(bad), Err(ParseKeyError), "{bad:?}");
        }
        assert_eq!(IdempotencyKey::parse("17.0:18446744073709551616"), Err(ParseKeyError));
    }

    #[test]
    fn a_name_survives_a_header() {
        for name in ["db/orders", "a b", "100%", "größe/鍵", "%41"] {
            let text = percent_encode(name);
            assert!(text.bytes().all(|b| b.is_ascii_graphic()), "{text}");
            assert_eq!(percent_decode(&text).as_deref(), Some(name));
        }
        for bad in ["%", "%4", "%zz", "%FF", "a%+1"] {
            assert_eq!(percent_decode(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_key_implies_a_window_of_earlier_answers() {
        let id = |sequence| IdempotencyKey { session: SessionId { slot: 1, reuse: 0 }, sequence }.id(7);
        assert_eq!((id(1).lowest, id(512).lowest, id(513).lowest), (1, 1, 1));
        assert_eq!((id(514).lowest, id(10_000).lowest), (2, 9_488));
        assert_eq!((id(5).sequence, id(5).digest), (5, 7));
    }
}
