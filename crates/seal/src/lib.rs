//! Sealed fencing tokens: a target verifies that a token was granted by its cluster, without a call to the server (A8).
//!
//! A plain token detects mistakes, not forgery: anyone who knows a resource and a number can write its text. A server with a
//! [`SealKey`] prints sealed texts instead, and a target with the public [`SealKeys`] calls [`verify`].
//!
//! A sealed text has 172 bytes. The first 76 are those of a plain text with `lh2-` instead of `lh1-`, so that SQL and Lua
//! read the same positions (counted from 1):
//!
//! | from | length | content |
//! |---|---|---|
//! | 1 | 76 | version, cluster, incarnation, resource, scope and number, as in [`Token`] |
//! | 78 | 8 | the id of the key, hexadecimal |
//! | 87 | 86 | the Ed25519 signature, base64url without padding |
//!
//! Signed is `"leasehold token 2\0" ‖ bytes 1 to 76 ‖ key id ‖ SHA-256(resource name)`. The text holds 64 bits of the
//! name's hash. Anyone who may choose resource names can find one that shares these bits with a foreign name; the signature
//! covers all 256, so the token of one is refused for the other.
//!
//! The text names no algorithm. A key id belongs to one key permanently, because it is derived from the public key.
//!
//! ```
//! use leasehold_seal::{SealKey, SealKeys, verify};
//! # use leasehold_core::name::resource_hash;
//! # use leasehold_core::token::{Cluster, Incarnation, Number, Token, TokenScope};
//! # let token = Token {
//! #     cluster: Cluster([7; 8]),
//! #     incarnation: Incarnation(1),
//! #     resource: resource_hash("db/orders"),
//! #     scope: TokenScope::Slot(0),
//! #     number: Number::FIRST,
//! # };
//! let key = SealKey::generate(0)?;
//! let text = key.seal(&token, "db/orders").to_string();
//!
//! let keys = SealKeys::new([key.public()])?;
//! assert_eq!(verify(&keys, &text, "db/orders"), Ok(token));
//! assert!(verify(&keys, &text, "db/users").is_err());
//! # Ok::<(), leasehold_seal::SealKeyError>(())
//! ```

mod base64url;
mod domain;
mod error;
mod key_file;
mod key_set;
mod kid;
mod private_key;
mod public_key;
mod sealed_token;
mod signature;
mod stamp_key;

pub use domain::Domain;
pub use error::{SealError, SealKeyError};
pub use key_set::{MAX_KEYS, SealKeys};
pub use kid::{Kid, ParseKidError};
pub use leasehold_core::token::Token;
pub use private_key::SealKey;
pub use public_key::PublicSealKey;
pub use sealed_token::{SealedToken, verify, verify_at};
pub use signature::Seal;
pub use stamp_key::{StampKey, TargetStampKey};

use std::time::{SystemTime, UNIX_EPOCH};

/// The wall clock in milliseconds since 1970, the unit of every time in key files; 0 if it is earlier.
pub fn wall_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis().try_into().unwrap_or(u64::MAX))
}
