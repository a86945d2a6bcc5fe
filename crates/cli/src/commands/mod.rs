//! The commands that call a server once, or work on files alone: one file per command.
//!
//! Larger commands have their own module in `src`: `serve`, `run`, `fence`, `coverage`, `bench`, `demo`, `dev_cluster`.

mod access_grant_args;
pub mod acquire;
mod alone_arg;
pub mod approve;
pub mod audit;
pub mod backup;
pub mod bearer;
pub mod ca;
pub mod charter;
pub mod check;
pub mod cluster;
pub mod comment_arg;
pub mod completions;
pub mod config;
pub mod deadlocks;
pub mod free;
pub mod handoff;
pub mod health;
pub mod held_by;
pub mod history;
pub mod init;
pub mod keys;
pub mod lease_text;
pub mod ls;
pub mod man_pages;
pub mod proposals;
pub mod quarantine;
pub mod release;
pub mod renew;
pub mod restore;
pub mod revoke;
mod secret_arg;
pub mod show;
pub mod status;
pub mod step_down;
pub mod token;
mod token_arg;
pub mod trace;
pub mod usage;
pub mod waiters;
pub mod watch;
