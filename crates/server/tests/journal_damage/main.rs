//! Damaged journal files: a torn end is truncated with a warning, all other damage is refused with file and offset (V2).

mod fixture;
mod identity;
#[path = "../journal_support/mod.rs"]
mod journal_support;
mod random;
mod segments;
mod snapshots;
