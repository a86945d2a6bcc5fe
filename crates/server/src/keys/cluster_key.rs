//! The cluster key, and the secrets of leases that it makes (A6).
//!
//! A secret is an HMAC over what identifies a grant, so no server stores it, and every server with the key verifies it: after a
//! restart, and after a failover.

use std::fmt;

use aws_lc_rs::hmac;
use leasehold_core::secret::{LEASE_SECRET_BYTES, LeaseSecret, Secret};
use leasehold_core::token::{Cluster, Incarnation, Number};
use leasehold_wire::TokenIssuer;

use crate::random;

/// Bytes of a cluster key.
pub const KEY_BYTES: usize = 32;
/// Bytes of a check value.
pub const CHECK_BYTES: usize = 16;

/// Begins the message of every lease secret, so that no other use of the key gives the same value.
const LEASE_DOMAIN: &[u8] = b"leasehold lease secret 1\0";
/// The message of a check value.
const CHECK_DOMAIN: &[u8] = b"leasehold cluster key check 1\0";

/// The key of a cluster. Its `Debug` shows nothing of it.
#[derive(Clone)]
pub struct ClusterKey(hmac::Key);

impl ClusterKey {
    /// A key from its bytes.
    pub fn new(bytes: &Secret<KEY_BYTES>) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, bytes.expose()))
    }

    /// A random key of this process.
    pub fn random() -> Self {
        Self::new(&Secret::new(random::bytes()))
    }

    /// The secret of a grant.
    pub fn lease_secret(&self, issuer: &TokenIssuer, number: Number, resource: &str) -> LeaseSecret {
        let mac = self.lease_mac(issuer.cluster, issuer.incarnation, number, resource);
        LeaseSecret::from_slice(&mac.as_ref()[..LEASE_SECRET_BYTES]).expect("a digest is longer than a secret")
    }

    /// Whether a secret is that of the grant. The time does not depend on the secret.
    pub fn verify_lease(&self, presented: &LeaseSecret, issuer: &TokenIssuer, number: Number, resource: &str) -> bool {
        self.lease_secret(issuer, number, resource).matches(presented)
    }

    /// A value that is equal for equal keys, and from which the key cannot be computed.
    pub fn check_value(&self) -> [u8; CHECK_BYTES] {
        let tag = hmac::sign(&self.0, CHECK_DOMAIN);
        std::array::from_fn(|at| tag.as_ref()[at])
    }

    /// The name is last, so that every message has one reading.
    fn lease_mac(&self, cluster: Cluster, incarnation: Incarnation, number: Number, resource: &str) -> hmac::Tag {
        let mut context = hmac::Context::with_key(&self.0);
        context.update(LEASE_DOMAIN);
        context.update(&cluster.0);
        context.update(&incarnation.0.to_be_bytes());
        context.update(&number.get().to_be_bytes());
        context.update(resource.as_bytes());
        context.sign()
    }
}

impl fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> ClusterKey {
        ClusterKey::new(&Secret::new([byte; KEY_BYTES]))
    }

    fn issuer(cluster: &[u8; 8], incarnation: u32) -> TokenIssuer {
        TokenIssuer { cluster: Cluster(*cluster), incarnation: Incarnation(incarnation) }
    }

    fn number(value: u64) -> Number {
        Number::new(value).expect("a number")
    }

    /// Computed with Python's `hmac`. A server of another version must give the same.
    #[test]
    fn a_secret_is_the_same_in_every_version() {
        let secret = key(7).lease_secret(&issuer(b"cluster1", 0x0102_0304), number(0x0a0b_0c0d_0e0f_1011), "jobs/a");
        assert_eq!(secret.expose_hex(), "27457e08487051013d46810a7b2dd64b");
    }

    #[test]
    fn a_secret_is_of_one_key_cluster_incarnation_number_and_name() {
        let (one, at, n) = (key(1), issuer(b"cluster1", 1), number(1 << 40));
        let secret = one.lease_secret(&at, n, "jobs/a");
        assert!(one.verify_lease(&secret, &at, n, "jobs/a"));
        assert!(!key(2).verify_lease(&secret, &at, n, "jobs/a"));
        assert!(!one.verify_lease(&secret, &issuer(b"cluster2", 1), n, "jobs/a"));
        assert!(!one.verify_lease(&secret, &issuer(b"cluster1", 2), n, "jobs/a"));
        assert!(!one.verify_lease(&secret, &at, number((1 << 40) + 1), "jobs/a"));
        for name in ["jobs/b", "jobs/aa", "jobs/", "", "Jobs/a"] {
            assert!(!one.verify_lease(&secret, &at, n, name), "{name}");
        }
        for at_byte in 0..LEASE_SECRET_BYTES {
            let mut bytes = *secret.expose();
            bytes[at_byte] ^= 1;
            assert!(!one.verify_lease(&LeaseSecret::new(bytes), &at, n, "jobs/a"), "byte {at_byte} is compared");
        }
    }

    #[test]
    fn a_check_value_differs_for_different_keys_and_shows_no_key() {
        assert_eq!(key(1).check_value(), key(1).check_value());
        assert_ne!(key(1).check_value(), key(2).check_value());
        assert_eq!(format!("{:?}", key(0x61)), "ClusterKey(..)");
    }
}
