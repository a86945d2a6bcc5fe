//! Random nonces, by which a writer recognizes its own write when the reply was lost.

use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

use crate::Error;

/// Returns 16 random bytes as hexadecimal digits.
pub(crate) fn nonce() -> Result<String, Error> {
    let mut bytes = [0; 16];
    getrandom(&mut bytes, GetRandomFlags::empty()).map_err(io::Error::from)?;
    Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
}
