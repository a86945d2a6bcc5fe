//! What is left when a run is over, read past everybody who wrote it: the journal, the targets, and what holders said.

pub mod ghost;
pub mod history;
pub mod journal;
pub mod measured;
pub mod tally;
#[cfg(test)]
mod tests;
