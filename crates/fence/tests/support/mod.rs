//! The tokens that the tests of all targets show.

use leasehold_core::name::{Name, resource_hash};
use leasehold_core::token::{Cluster, Incarnation, Number, Reach, Token};

pub const CLUSTER: Cluster = Cluster(*b"testing!");
pub const RESOURCE: &str = "jobs/settle";

pub fn name() -> Name<'static> {
    Name::parse(RESOURCE).expect("a name")
}

pub fn number(number: u64) -> Number {
    Number::new(number).expect("tests show numbers from 1 to below 2^63")
}

pub fn parts(n: u64) -> Token {
    let resource = resource_hash(RESOURCE);
    Token { cluster: CLUSTER, incarnation: Incarnation(7), resource, reach: Reach::Slot(0), number: number(n) }
}

/// The text that the holder of this number shows.
pub fn token(number: u64) -> String {
    parts(number).to_string()
}
