//! Random bytes from the kernel, for session secrets and new clusters.

/// Draws random bytes.
pub fn draw<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        // The kernel's pool is ready long before a server starts; it gives fewer bytes only when interrupted.
        match rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(more) => filled += more,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("the kernel has no random bytes: {error}"),
        }
    }
    bytes
}
