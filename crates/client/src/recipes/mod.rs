//! Leases shaped for a purpose, one small file each. `docs/recipes.md` says what each promises and what it does not.

pub mod cache;
#[cfg(any(test, feature = "credential"))]
pub mod credential;
pub mod delivery;
pub mod leader;
pub mod lock;
pub mod pin;
pub mod reservation;
pub mod session;
pub mod shard;

/// Waits for what other threads do, with a generous bound.
#[cfg(test)]
#[track_caller]
fn until(mut happened: impl FnMut() -> bool) {
    let over = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !happened() {
        assert!(std::time::Instant::now() < over, "it never happened");
        std::thread::yield_now();
    }
}
