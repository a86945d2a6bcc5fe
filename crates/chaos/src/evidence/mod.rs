//! Evidence that remains after a run: the journal, the targets and the holders' logs.

pub mod applied_writes;
pub mod history;
pub mod journal;
pub mod sent_writes;
pub mod summary;
#[cfg(test)]
mod tests;
pub mod wall_clock;
