//! Frame of a batch in a simulated file: length and checksum, to detect torn writes.

/// Length of the frame header.
pub const HEAD: usize = 12;

/// Encodes a batch.
pub fn write(batch: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD + batch.len());
    bytes.extend((batch.len() as u32).to_be_bytes());
    bytes.extend(sum(batch).to_be_bytes());
    bytes.extend(batch);
    bytes
}

/// Decodes a batch; `None` if it is torn or corrupt.
pub fn read(bytes: &[u8]) -> Option<&[u8]> {
    let (head, batch) = bytes.split_at_checked(HEAD)?;
    let length = u32::from_be_bytes(head[..4].try_into().ok()?);
    let expected = u64::from_be_bytes(head[4..].try_into().ok()?);
    (batch.len() == length as usize && sum(batch) == expected && length > 0).then_some(batch)
}

fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complete_frame_is_read_and_a_torn_or_corrupt_one_is_not() {
        let whole = write(b"a batch");
        assert_eq!(read(&whole), Some(&b"a batch"[..]));
        for length in 0..whole.len() {
            assert_eq!(read(&whole[..length]), None);
        }
        for at in 0..whole.len() {
            let mut rotten = whole.clone();
            rotten[at] ^= 4;
            assert_eq!(read(&rotten), None);
        }
    }
}
