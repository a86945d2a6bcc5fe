//! The process around a grantor: it drains, steps, appends, and only then tells.
//!
//! The journals, the turn ([`driver`]), the doors ([`door`], [`api`]) and the figures ([`meter`]) are here; and, behind the
//! turns, snapshots ([`keep`]), the audit trail ([`trail`]), backup and restore ([`backup`]). Several servers over one journal: [`cluster`].

#![forbid(unsafe_code)]

pub mod api;
pub mod backup;
pub mod clock;
pub mod cluster;
pub mod desk;
pub mod door;
pub mod driver;
pub mod entrance;
pub mod inbox;
pub mod journal;
pub mod keep;
pub mod meter;
pub mod pace;
pub mod room;
pub mod secret;
pub mod server;
pub mod trail;
pub mod watch;
