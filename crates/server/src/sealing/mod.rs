//! Sealed tokens: the keys of a server, the texts that it signs and stamps, and which presented tokens are proven (A8, A9).
//!
//! Replies are sealed where they are encoded, in the task of the connection, never in a turn.

mod key_ring;
mod sealer;

pub use key_ring::{KeyRingError, SealKeyProblem, SealKeyRing, key_file_name, stamp_file_name};
pub use sealer::TokenSealer;
