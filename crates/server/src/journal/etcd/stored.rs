//! A batch as it lies under its key: whose it is, its checksum, and its bytes or where they are.

use super::hold::Generation;

/// The most bytes under one key, far below what etcd takes in one request.
pub const CHUNK: usize = 512 << 10;

const WHOLE: u8 = 1;
const IN_PARTS: u8 = 2;
const NONCE: usize = 32;
/// Kind, revision, nonce, checksum.
const HEAD: usize = 1 + 8 + NONCE + 4;

/// What a key of the log holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored<'a> {
    /// The batch.
    Whole(&'a [u8]),
    /// It lies in so many parts.
    Parts {
        /// How many.
        parts: u64,
        /// The checksum of all of it.
        checksum: u32,
    },
}

/// The value for a batch. Two writers never write the same bytes, so equal bytes are one's own.
pub fn encode(mine: &Generation, batch: &[u8]) -> Vec<u8> {
    let whole = batch.len() <= CHUNK;
    let mut value = Vec::with_capacity(HEAD + if whole { batch.len() } else { 8 });
    value.push(if whole { WHOLE } else { IN_PARTS });
    value.extend(mine.revision.to_be_bytes());
    let nonce = mine.value.len().saturating_sub(NONCE);
    value.extend(&mine.value[nonce..]);
    value.extend(crc32fast::hash(batch).to_be_bytes());
    if whole {
        value.extend(batch);
    } else {
        value.extend((batch.len().div_ceil(CHUNK) as u64).to_be_bytes());
    }
    value
}

/// What a value says, or what is wrong with it.
pub fn decode(value: &[u8]) -> Result<Stored<'_>, &'static str> {
    let (head, body) = value.split_at_checked(HEAD).ok_or("too short for a batch")?;
    let checksum = u32::from_be_bytes(*head.last_chunk().expect("a head has a checksum"));
    match head[0] {
        WHOLE if crc32fast::hash(body) == checksum => Ok(Stored::Whole(body)),
        WHOLE => Err("the checksum of the batch is wrong"),
        IN_PARTS => {
            let parts = body.try_into().map(u64::from_be_bytes).map_err(|_| "the number of parts is not one")?;
            Ok(Stored::Parts { parts, checksum })
        }
        _ => Err("not a batch of this version"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writer(revision: i64, nonce: char) -> Generation {
        Generation { revision, value: format!("host:1 {}", nonce.to_string().repeat(NONCE)).into_bytes() }
    }

    #[test]
    fn a_batch_comes_back_and_a_damaged_one_does_not() {
        let value = encode(&writer(7, 'a'), b"batch");
        assert_eq!(decode(&value), Ok(Stored::Whole(b"batch")));
        for at in [0, HEAD - 1, HEAD, value.len() - 1] {
            let mut damaged = value.clone();
            damaged[at] ^= 0x40;
            assert!(decode(&damaged).is_err(), "byte {at}");
        }
        assert!(decode(&value[..HEAD - 1]).is_err());
        let large = vec![3; CHUNK * 2 + 1];
        let value = encode(&writer(7, 'a'), &large);
        assert_eq!(decode(&value), Ok(Stored::Parts { parts: 3, checksum: crc32fast::hash(&large) }));
    }

    #[test]
    fn two_writers_never_write_the_same_bytes() {
        let value = encode(&writer(7, 'a'), b"batch");
        assert_ne!(value, encode(&writer(8, 'a'), b"batch"));
        assert_ne!(value, encode(&writer(7, 'b'), b"batch"));
        assert_eq!(value, encode(&writer(7, 'a'), b"batch"));
    }
}
