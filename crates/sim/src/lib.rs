//! Deterministic simulator: worlds with faults from a seed, and a checker for each promise.
//!
//! One seed gives one trace. Grantors are the real core on simulated journals, holders run the real renewal logic, and targets
//! apply the real fence rule. Clocks, network, disks and randomness are simulated. A run produces a [`history`]; checkers read
//! nothing else.
//!
//! Start at [`world::World`] for a run, [`runner`] for many seeds, [`check`] for the checkers.

#![forbid(unsafe_code)]

pub mod check;
pub mod clock;
pub mod fault;
pub mod fenced_target;
pub mod history;
pub mod holder;
pub mod impostor;
pub mod journal;
pub mod message;
pub mod mutants;
pub mod mutation_run;
mod nemesis;
mod network;
pub mod operators;
pub mod reported_view;
pub mod request;
pub mod rng;
pub mod run_constants;
pub mod runner;
pub mod scheduler;
pub mod server;

pub mod trace;
pub mod world;
