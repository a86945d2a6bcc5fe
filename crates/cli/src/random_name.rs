//! Random parts of file names, so that no other user can plant a file under a name in advance.

use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

/// Sixteen random hexadecimal digits.
pub fn random_hex() -> io::Result<String> {
    let mut random = [0; 8];
    getrandom(&mut random, GetRandomFlags::empty())?;
    Ok(format!("{:016x}", u64::from_ne_bytes(random)))
}
