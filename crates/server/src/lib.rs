//! The process around a grantor: it drains, steps, appends, and only then tells.
//!
//! Nothing is served yet. The turn (`driver.rs`), the journals, the API and the metrics come with the server; the journal
//! on etcd and the standbys come when one machine is not enough. What they will drive is there: [`leasehold_core`].

pub mod journal;
