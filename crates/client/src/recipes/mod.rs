//! Recipes: leases shaped for common tasks. The how-to pages in `docs/how-to/recipes` say what each one guarantees.
//!
//! | recipe | for |
//! |---|---|
//! | [`lock`] | mutual exclusion: exclusive, shared, slots, several locks at once |
//! | [`leader`] | leader election with planned handoff |
//! | [`discovery`] | service registration and discovery |
//! | [`shard`] | N shards over M workers, with checkpoints |
//! | [`delivery`] | message queues |
//! | [`cache`] | caches that are consistent with writes |
//! | [`reservation`] | units that are reserved, then confirmed or canceled |
//! | [`pin`] | readers that protect data from a garbage collector |
//! | `credential` | signed credentials that prove a lease offline (feature `credential`) |

pub mod cache;
#[cfg(any(test, feature = "credential"))]
#[cfg_attr(docsrs, doc(cfg(feature = "credential")))]
pub mod credential;
pub mod delivery;
pub mod discovery;
pub mod leader;
pub mod lock;
pub mod pin;
pub mod reservation;
pub mod shard;

/// Waits for other threads, with a generous bound.
#[cfg(test)]
#[track_caller]
fn wait_until(mut condition: impl FnMut() -> bool) {
    let timeout = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !condition() {
        assert!(std::time::Instant::now() < timeout, "the condition did not become true in time");
        std::thread::yield_now();
    }
}
