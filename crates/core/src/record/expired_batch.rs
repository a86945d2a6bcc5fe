//! Delta-encoded batch of leases whose ttl ended in the same turn.

use crate::codec::{DecodeError, Reader, Write};
use crate::token::Number;

/// Leases whose ttl ended, in the order of their deadlines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExpiredBatch(
    /// The slot of each lease, and its token number as a guard.
    pub Vec<(u32, Number)>,
);

/// Smallest encoding of one entry.
const MIN_BYTES: usize = 2;

impl ExpiredBatch {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.num(self.0.len() as u64);
        let (mut slot, mut number) = (0, 0);
        for (lease, token) in &self.0 {
            out.num(delta(slot, u64::from(*lease)));
            out.num(delta(number, token.get()));
            (slot, number) = (u64::from(*lease), token.get());
        }
    }

    pub(super) fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let count = from.num()?;
        if count > (from.left() / MIN_BYTES) as u64 {
            return Err(from.wrong("more expired leases than bytes"));
        }
        let mut expired = Vec::with_capacity(count as usize);
        let (mut slot, mut number) = (0, 0);
        for _ in 0..count {
            slot = apply_delta(slot, from.num()?);
            number = apply_delta(number, from.num()?);
            let lease = u32::try_from(slot).map_err(|_| from.wrong("invalid lease slot"))?;
            let number = Number::new(number).ok_or_else(|| from.wrong("invalid token number"))?;
            expired.push((lease, number));
        }
        Ok(Self(expired))
    }
}

/// Zigzag-encoded difference: small differences in either direction have small codes.
const fn delta(from: u64, to: u64) -> u64 {
    let difference = to.wrapping_sub(from) as i64;
    ((difference << 1) ^ (difference >> 63)) as u64
}

/// Inverse of [`delta`].
const fn apply_delta(from: u64, delta: u64) -> u64 {
    from.wrapping_add((delta >> 1) ^ (delta & 1).wrapping_neg())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn an_encoded_batch_decodes_to_itself(leases in prop::collection::vec((any::<u32>(), 1..=Number::MAX.get()), 0..50)) {
            let batch = ExpiredBatch(leases.into_iter().map(|(lease, n)| (lease, Number::new(n).unwrap())).collect());
            let mut bytes = Vec::new();
            batch.encode(&mut bytes);
            let mut from = Reader::new(&bytes);
            prop_assert_eq!(ExpiredBatch::decode(&mut from).unwrap(), batch);
            from.finish().unwrap();
        }
    }

    #[test]
    fn adjacent_leases_take_two_bytes_each() {
        let number = |n: u64| Number::new((1 << 60) + n).unwrap();
        let mut bytes = Vec::new();
        ExpiredBatch((0..1_000).map(|n| (n, number(u64::from(n)))).collect()).encode(&mut bytes);
        assert!(bytes.len() < 2_020, "{}", bytes.len());
    }

    #[test]
    fn a_count_above_the_remaining_bytes_is_refused() {
        let mut bytes = Vec::new();
        bytes.num(u64::MAX);
        assert!(ExpiredBatch::decode(&mut Reader::new(&bytes)).is_err());
    }
}
