//! What is said on the wire, tried from outside.

mod bodies;
mod errors;
mod garbage;
mod golden;
mod round_trips;
mod support;
