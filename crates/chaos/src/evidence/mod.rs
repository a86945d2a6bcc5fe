//! Evidence that remains after a run: the journal, the targets and the holders' logs.

pub mod applied_writes;
pub mod derived_history;
pub mod journal;
pub mod measured_time;
pub mod sent_writes;
pub mod summary;
#[cfg(test)]
mod tests;
