//! Tokens for the tests of all targets.

use leasehold_core::name::{Name, resource_hash};
use leasehold_core::token::{Cluster, Incarnation, Number, Token, TokenScope};

pub const CLUSTER: Cluster = Cluster(*b"testing!");
pub const RESOURCE: &str = "jobs/settle";

pub fn name() -> Name<'static> {
    Name::parse(RESOURCE).expect("a name")
}

pub fn number(number: u64) -> Number {
    Number::new(number).expect("numbers in tests are from 1 to below 2^63")
}

pub fn parts(n: u64) -> Token {
    let resource = resource_hash(RESOURCE);
    Token { cluster: CLUSTER, incarnation: Incarnation(7), resource, scope: TokenScope::Slot(0), number: number(n) }
}

/// Token text with this number.
pub fn token(number: u64) -> String {
    parts(number).to_string()
}
