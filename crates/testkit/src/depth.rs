//! How thorough a test is: `LEASEHOLD_DEPTH` is `quick`, `full` (the default) or `deep`.

/// Selects one of three values by `LEASEHOLD_DEPTH`.
pub fn depth<T>(quick: T, full: T, deep: T) -> T {
    match std::env::var("LEASEHOLD_DEPTH").as_deref() {
        Ok("quick") => quick,
        Ok("deep") => deep,
        _ => full,
    }
}
