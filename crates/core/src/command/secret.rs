//! Session secret that never appears in logs or debug output.

use std::fmt;

/// The secret that lets a client resume its session. `Debug` prints a placeholder.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret(pub [u8; 32]);

impl From<[u8; 32]> for Secret {
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Command, OpenSession};
    use crate::ids::SessionId;

    #[test]
    fn debug_output_contains_no_secret() {
        let secret = Secret([0xab; 32]);
        let open = OpenSession { holder: "w", ttl_ms: 1_000, secret, waits_only: false };
        let session = SessionId { slot: 1, reuse: 0 };
        for command in [Command::OpenSession(open), Command::ResumeSession { session, secret }] {
            let text = format!("{command:?}");
            assert!(text.contains("Secret(..)") && !text.contains("171"), "{text}");
        }
    }
}
