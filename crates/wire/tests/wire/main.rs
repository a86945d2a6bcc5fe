//! Tests of the public interface of leasehold-wire.

mod errors;
mod generators;
mod golden;
mod json_bodies;
mod malformed_input;
mod round_trips;
