//! Random bytes from the kernel, for session secrets and new clusters.

/// Random bytes.
pub fn bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        // The kernel's pool is ready long before a server starts; a call returns fewer bytes only when it is interrupted.
        match rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(more) => filled += more,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("getrandom failed: {error}"),
        }
    }
    bytes
}
