//! What stands beside a body: the key under which a retry is recognised, and the tokens shown.

use std::fmt;

use leasehold_core::command::RequestId;
use leasehold_core::ids::SessionId;
use leasehold_core::limits::REQUESTS_PER_SESSION;

/// Carries `<session>:<sequence>`, in HTTP and in gRPC metadata.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// Carries the text of the lease's token.
pub const LEASE_TOKEN: &str = "lease-token";
/// Carries the journal position that an answer depends on.
pub const POSITION: &str = "leasehold-position";
/// Carries the least journal position from which a server that stands by may answer a look. Without it only the leader does.
pub const STANDBY: &str = "leasehold-standby";
/// Carries the text of the highest token the caller has seen.
pub const TOKEN_SEEN: &str = "lease-token-seen";

/// How many sequences back a key still finds its answer. A key has no room for the lowest outstanding sequence, so it is
/// taken to be this far back.
pub const KEYS_KEPT: u64 = 512;

const _: () = assert!((KEYS_KEPT as usize) < REQUESTS_PER_SESSION, "keys alone never fill a session's memory");

/// The key of a request: which of a session's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// The session.
    pub session: SessionId,
    /// Its own counting, from 1.
    pub sequence: u64,
}

impl Key {
    /// Reads a key. Any other form than `17.0:42` is refused.
    pub fn parse(text: &str) -> Result<Self, NotAKey> {
        let (session, sequence) = text.split_once(':').ok_or(NotAKey)?;
        let plain = sequence.bytes().all(|b| b.is_ascii_digit()) && !sequence.starts_with('0');
        if !plain {
            return Err(NotAKey);
        }
        let session = session.parse().map_err(|_| NotAKey)?;
        Ok(Self { session, sequence: sequence.parse().map_err(|_| NotAKey)? })
    }

    /// The request id for a body with this digest.
    pub const fn id(self, digest: u64) -> RequestId {
        let lowest = if self.sequence > KEYS_KEPT { self.sequence - KEYS_KEPT } else { 1 };
        RequestId { session: self.session, sequence: self.sequence, lowest, digest }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.session, self.sequence)
    }
}

/// Text that is not `session:sequence`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAKey;

impl fmt::Display for NotAKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not <session>:<sequence>; count the session's requests from 1 and write it like 17.0:42")
    }
}

impl std::error::Error for NotAKey {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_a_session_and_a_sequence_and_nothing_else() {
        let key = Key::parse("17.0:42").unwrap();
        assert_eq!(key, Key { session: SessionId { slot: 17, reuse: 0 }, sequence: 42 });
        assert_eq!(key.to_string(), "17.0:42");
        for bad in
            ["", "42", "17.0", "17.0:", "17.0:0", "17.0:042", "17.0:-1", "17.0:4 2", "17.0:1:2", "17:42", "a.b:1"]
        {
            assert_eq!(Key::parse(bad), Err(NotAKey), "{bad:?}");
        }
        assert_eq!(Key::parse("17.0:18446744073709551616"), Err(NotAKey));
    }

    #[test]
    fn a_key_keeps_a_window_of_earlier_answers() {
        let id = |sequence| Key { session: SessionId { slot: 1, reuse: 0 }, sequence }.id(7);
        assert_eq!((id(1).lowest, id(512).lowest, id(513).lowest), (1, 1, 1));
        assert_eq!((id(514).lowest, id(10_000).lowest), (2, 9_488));
        assert_eq!((id(5).sequence, id(5).digest), (5, 7));
    }
}
