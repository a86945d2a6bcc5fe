//! Value of a batch in etcd: its writer, its checksum, and its bytes or the number of its parts.

use super::leadership::Generation;

/// Most bytes of one value, far below etcd's limit of a request.
pub const CHUNK_BYTES: usize = 512 << 10;

const WHOLE: u8 = 1;
const IN_PARTS: u8 = 2;
const NONCE_BYTES: usize = 32;
/// Kind, revision, nonce, checksum.
const HEAD_BYTES: usize = 1 + 8 + NONCE_BYTES + 4;

/// A decoded value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchValue<'a> {
    /// The batch.
    Whole(&'a [u8]),
    /// The batch is stored in parts.
    Parts {
        /// Number of parts.
        parts: u64,
        /// Checksum of the whole batch.
        checksum: u32,
    },
}

/// Encodes a batch. Two writers never write equal bytes, so equal bytes prove that they are the writer's own.
pub fn encode(generation: &Generation, batch: &[u8]) -> Vec<u8> {
    let whole = batch.len() <= CHUNK_BYTES;
    let mut value = Vec::with_capacity(HEAD_BYTES + if whole { batch.len() } else { 8 });
    value.push(if whole { WHOLE } else { IN_PARTS });
    value.extend(generation.revision.to_be_bytes());
    let nonce = generation.value.len().saturating_sub(NONCE_BYTES);
    value.extend(&generation.value[nonce..]);
    value.extend(crc32fast::hash(batch).to_be_bytes());
    if whole {
        value.extend(batch);
    } else {
        value.extend((batch.len().div_ceil(CHUNK_BYTES) as u64).to_be_bytes());
    }
    value
}

/// Decodes a value.
pub fn decode(value: &[u8]) -> Result<BatchValue<'_>, &'static str> {
    let (head, body) = value.split_at_checked(HEAD_BYTES).ok_or("too short")?;
    let checksum = u32::from_be_bytes(*head.last_chunk().expect("the head ends with a checksum"));
    match head[0] {
        WHOLE if crc32fast::hash(body) == checksum => Ok(BatchValue::Whole(body)),
        WHOLE => Err("wrong checksum of the batch"),
        IN_PARTS => {
            let parts = body.try_into().map(u64::from_be_bytes).map_err(|_| "invalid number of parts")?;
            Ok(BatchValue::Parts { parts, checksum })
        }
        _ => Err("unknown format of the batch"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writer(revision: i64, nonce: char) -> Generation {
        Generation { revision, value: format!("host:1 {}", nonce.to_string().repeat(NONCE_BYTES)).into_bytes() }
    }

    #[test]
    fn a_batch_decodes_and_a_damaged_one_does_not() {
        let value = encode(&writer(7, 'a'), b"batch");
        assert_eq!(decode(&value), Ok(BatchValue::Whole(b"batch")));
        for at in [0, HEAD_BYTES - 1, HEAD_BYTES, value.len() - 1] {
            let mut damaged = value.clone();
            damaged[at] ^= 0x40;
            assert!(decode(&damaged).is_err(), "byte {at}");
        }
        assert!(decode(&value[..HEAD_BYTES - 1]).is_err());
        let large = vec![3; CHUNK_BYTES * 2 + 1];
        let value = encode(&writer(7, 'a'), &large);
        assert_eq!(decode(&value), Ok(BatchValue::Parts { parts: 3, checksum: crc32fast::hash(&large) }));
    }

    #[test]
    fn two_writers_never_write_the_same_bytes() {
        let value = encode(&writer(7, 'a'), b"batch");
        assert_ne!(value, encode(&writer(8, 'a'), b"batch"));
        assert_ne!(value, encode(&writer(7, 'b'), b"batch"));
        assert_eq!(value, encode(&writer(7, 'a'), b"batch"));
    }
}
