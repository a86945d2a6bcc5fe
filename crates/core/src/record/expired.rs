//! Many leases whose ttl ran out at once, in few bytes: each differs little from the one before it.

use crate::codec::{Malformed, Reader, Write};
use crate::token::Number;

/// Leases that are over by their ttl, in the order of their deadlines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expired(
    /// Each by its place, guarded by its token.
    pub Vec<(u32, Number)>,
);

/// The least that one end takes.
const LEAST_BYTES: usize = 2;

impl Expired {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.num(self.0.len() as u64);
        let (mut place, mut number) = (0, 0);
        for (lease, token) in &self.0 {
            out.num(step(place, u64::from(*lease)));
            out.num(step(number, token.get()));
            (place, number) = (u64::from(*lease), token.get());
        }
    }

    pub(super) fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let count = from.num()?;
        if count > (from.left() / LEAST_BYTES) as u64 {
            return Err(from.wrong("more ends than there are bytes for"));
        }
        let mut ends = Vec::with_capacity(count as usize);
        let (mut place, mut number) = (0, 0);
        for _ in 0..count {
            place = after(place, from.num()?);
            number = after(number, from.num()?);
            let lease = u32::try_from(place).map_err(|_| from.wrong("no such place"))?;
            let number = Number::new(number).ok_or_else(|| from.wrong("no such number"))?;
            ends.push((lease, number));
        }
        Ok(Self(ends))
    }
}

/// The way from one number to another; short ways have small numbers, forth and back.
const fn step(from: u64, to: u64) -> u64 {
    let way = to.wrapping_sub(from) as i64;
    ((way << 1) ^ (way >> 63)) as u64
}

/// Where a way leads.
const fn after(from: u64, step: u64) -> u64 {
    from.wrapping_add((step >> 1) ^ (step & 1).wrapping_neg())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_was_written_is_read(ends in prop::collection::vec((any::<u32>(), 1..=Number::MAX.get()), 0..50)) {
            let ends = Expired(ends.into_iter().map(|(lease, n)| (lease, Number::new(n).unwrap())).collect());
            let mut bytes = Vec::new();
            ends.encode(&mut bytes);
            let mut from = Reader::new(&bytes);
            prop_assert_eq!(Expired::decode(&mut from).unwrap(), ends);
            from.finish().unwrap();
        }
    }

    #[test]
    fn neighbours_take_two_bytes() {
        let number = |n: u64| Number::new((1 << 60) + n).unwrap();
        let mut bytes = Vec::new();
        Expired((0..1_000).map(|n| (n, number(u64::from(n)))).collect()).encode(&mut bytes);
        assert!(bytes.len() < 2_020, "{}", bytes.len());
    }

    #[test]
    fn a_claimed_count_is_not_believed() {
        let mut bytes = Vec::new();
        bytes.num(u64::MAX);
        assert!(Expired::decode(&mut Reader::new(&bytes)).is_err());
    }
}
