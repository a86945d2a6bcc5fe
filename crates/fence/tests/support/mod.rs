//! Tokens for the tests of all targets.

use leasehold_core::name::resource_hash;
use leasehold_core::token::{Cluster, Incarnation, Number, Token, TokenScope};
use leasehold_fence::FenceId;

pub const CLUSTER: Cluster = Cluster(*b"testing!");
pub const RESOURCE: &str = "jobs/settle";

/// Slot 0 of [`RESOURCE`] in [`CLUSTER`].
pub fn fence_id() -> FenceId {
    id_of(CLUSTER, RESOURCE)
}

pub fn id_of(cluster: Cluster, resource: &str) -> FenceId {
    FenceId::new(cluster, resource).expect("a name")
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
