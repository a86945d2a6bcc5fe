//! Bearer tokens: own tokens, of which a file keeps digests, and JWT that issuers sign (A3).
//!
//! A request presents a token in `Authorization: Bearer …`. [`BearerVerifier`] finds its principal; [`PresentedBearer`] is the token
//! of the current request, with which a stream compares itself until it ends (A10). No error and no log line contains a token.

mod bearer_file;
mod error;
mod jwks;
mod jwt;
mod presented;
mod timestamp;
mod token_text;
mod verifier;

pub use bearer_file::{BearerEntry, BearerFile};
pub use error::BearerError;
pub use jwt::JwtIssuer;
pub use presented::PresentedBearer;
pub use timestamp::timestamp_text;
pub use token_text::{NewToken, is_own};
pub use verifier::{BearerSettings, BearerSettingsError, BearerVerifier};
