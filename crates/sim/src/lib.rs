//! BREAKS: a world in which everything goes wrong, on purpose and from a seed, and the checks of what must hold in it.
//!
//! One seed, one trace. Grantors are the real core on simulated journals, holders run the real renewal logic, targets ask
//! the real rule; clocks, network, disks and chance are the world's. What happened is a history; checkers read nothing else.

#![forbid(unsafe_code)]

pub mod ask;
pub mod chance;
pub mod check;
pub mod clock;
pub mod fault;
pub mod history;
pub mod holder;
pub mod journal;
pub mod killing;
mod nemesis;
pub mod planted;
pub mod runs;
pub mod server;
pub mod shows;
pub mod stage;
pub mod target;
pub mod trace;
pub mod world;
