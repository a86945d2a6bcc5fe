//! Random nonces, by which a writer recognizes its own write when the reply was lost.

use std::io;

use crate::Error;

/// Returns 16 random bytes as hexadecimal digits.
pub(crate) fn nonce() -> Result<String, Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
}
