//! String arena: texts packed as length and bytes in chunks, with free blocks merged and reused.

use std::num::NonZeroU32;

/// Texts start at multiples of this many bytes.
const GRANULE: usize = 8;
/// Granules of one chunk, 1 MiB: far more than the longest text. No text spans two chunks.
const CHUNK: u32 = 1 << 17;
/// Granules of the first chunk, 16 KiB, so that a small table is created fast. A longer text skips it.
const FIRST_CHUNK: u32 = 1 << 11;
/// Bytes of the length prefix of each text.
const HEAD: usize = 2;
/// Blocks below this many granules have one class per size; larger ones share eight classes per power of two.
const EXACT: u32 = 64;
/// Classes of free blocks, up to a whole chunk.
const CLASSES: usize = class(CHUNK) + 1;
/// End of a free list; granule zero is never allocated.
const NONE: u32 = 0;

/// Reference to a text. It has four bytes, also as an `Option`, and addresses 32 GiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StringRef(NonZeroU32);

/// Texts of up to 65,535 bytes. Adjacent free blocks merge, so space of short texts serves long ones and vice versa.
pub struct StringArena {
    chunks: Vec<ArenaChunk>,
    /// The first free block of each class.
    heads: [u32; CLASSES],
    /// Bit set of classes with a free block.
    filled: [u64; CLASSES.div_ceil(64)],
}

/// A free block stores the next and previous block of its list in its first granule, and its size in its second and last
/// granule. One bit per granule marks where free blocks begin and another where they end, so merging needs no search.
struct ArenaChunk {
    bytes: Box<[u8]>,
    starts: Box<[u64]>,
    ends: Box<[u64]>,
}

impl StringArena {
    /// An empty arena without memory.
    pub const fn new() -> Self {
        Self { chunks: Vec::new(), heads: [NONE; CLASSES], filled: [0; CLASSES.div_ceil(64)] }
    }

    /// Stores a text.
    pub fn put(&mut self, text: &str) -> StringRef {
        let len = u16::try_from(text.len()).expect("a text has at most 65,535 bytes");
        let size = block_size(text.len());
        let at = loop {
            match self.fit(class(size)) {
                Some(at) => break at,
                None => self.grow(),
            }
        };
        let free = self.free_size(at);
        self.unlink(at, free);
        self.mark(at, free, false);
        let rest = free - size;
        if rest > 0 {
            self.link(at + size, rest);
        }
        let (chunk, from) = locate(at);
        let bytes = &mut self.chunks[chunk].bytes[from..];
        bytes[..HEAD].copy_from_slice(&len.to_le_bytes());
        bytes[HEAD..HEAD + text.len()].copy_from_slice(text.as_bytes());
        StringRef(NonZeroU32::new(at).expect("granule zero is never allocated"))
    }

    /// The bytes of a text, for comparing and hashing.
    pub fn bytes(&self, at: StringRef) -> &[u8] {
        let (chunk, from) = locate(at.0.get());
        let (len, bytes) = self.chunks[chunk].bytes[from..].split_first_chunk().expect("a text has a length");
        &bytes[..usize::from(u16::from_le_bytes(*len))]
    }

    /// The text.
    pub fn get(&self, at: StringRef) -> &str {
        std::str::from_utf8(self.bytes(at)).expect("put as text")
    }

    /// Frees a text.
    pub fn free(&mut self, at: StringRef) {
        let mut size = block_size(self.bytes(at).len());
        let mut at = at.0.get();
        assert!(!self.starts_free_block(at), "a text is freed once");
        // After the last granule of the last chunk it wraps to zero, which is a chunk start.
        let after = at.wrapping_add(size);
        if !after.is_multiple_of(CHUNK) && after != FIRST_CHUNK && self.starts_free_block(after) {
            let free = self.free_size(after);
            self.unlink(after, free);
            self.mark(after, free, false);
            size += free;
        }
        if !at.is_multiple_of(CHUNK) && self.ends_free_block(at - 1) {
            let free = if self.starts_free_block(at - 1) { 1 } else { self.word(at - 1, 0) };
            at -= free;
            // Names added together are often freed together, so usually the previous block just grows.
            if class(free) == class(free + size) {
                self.grow_block(at, free, size);
                return;
            }
            self.mark(at, free, false);
            self.unlink(at, free);
            size += free;
        }
        self.link(at, size);
    }

    /// The first free block of the smallest non-empty class, from this one up.
    fn fit(&self, class: usize) -> Option<u32> {
        let mut filled = self.filled[class / 64] & (u64::MAX << (class % 64));
        for word in class / 64.. {
            if filled != 0 {
                return Some(self.heads[word * 64 + filled.trailing_zeros() as usize]);
            }
            filled = *self.filled.get(word + 1)?;
        }
        None
    }

    /// Adds a free chunk.
    fn grow(&mut self) {
        let start = u32::try_from(self.chunks.len()).ok().and_then(|n| n.checked_mul(CHUNK));
        let start = start.expect("all texts fit in 32 GiB");
        let size = if start == 0 { FIRST_CHUNK } else { CHUNK };
        self.chunks.push(ArenaChunk {
            bytes: vec![0; size as usize * GRANULE].into(),
            starts: vec![0; size as usize / 64].into(),
            ends: vec![0; size as usize / 64].into(),
        });
        let at = start.max(NONE + 1);
        self.link(at, size - (at - start));
    }

    /// Adds a free block to the front of its class list.
    fn link(&mut self, at: u32, size: u32) {
        let class = class(size);
        let next = std::mem::replace(&mut self.heads[class], at);
        self.filled[class / 64] |= 1 << (class % 64);
        self.set_word(at, 0, next);
        self.set_word(at, 1, NONE);
        if next != NONE {
            self.set_word(next, 1, at);
        }
        self.set_size(at, size);
        self.mark(at, size, true);
    }

    /// Stores the size of a free block; a single granule is recognized by its bits.
    fn set_size(&mut self, at: u32, size: u32) {
        if size > 1 {
            self.set_word(at + 1, 0, size);
            self.set_word(at + (size - 1), 0, size);
        }
    }

    /// Extends a free block within its class.
    fn grow_block(&mut self, at: u32, size: u32, more: u32) {
        let chunk = &mut self.chunks[locate(at).0];
        set_bit(&mut chunk.ends, at + (size - 1), false);
        set_bit(&mut chunk.ends, at + (size + more - 1), true);
        self.set_size(at, size + more);
    }

    /// Removes a free block of this size from its list.
    fn unlink(&mut self, at: u32, size: u32) {
        let (next, previous) = (self.word(at, 0), self.word(at, 1));
        if next != NONE {
            self.set_word(next, 1, previous);
        }
        if previous != NONE {
            self.set_word(previous, 0, next);
            return;
        }
        let class = class(size);
        self.heads[class] = next;
        if next == NONE {
            self.filled[class / 64] &= !(1 << (class % 64));
        }
    }

    fn free_size(&self, at: u32) -> u32 {
        if self.ends_free_block(at) { 1 } else { self.word(at + 1, 0) }
    }

    fn starts_free_block(&self, at: u32) -> bool {
        bit(&self.chunks[locate(at).0].starts, at)
    }

    fn ends_free_block(&self, at: u32) -> bool {
        bit(&self.chunks[locate(at).0].ends, at)
    }

    /// Sets or clears the bits of a free block.
    fn mark(&mut self, at: u32, size: u32, free: bool) {
        let chunk = &mut self.chunks[locate(at).0];
        set_bit(&mut chunk.starts, at, free);
        set_bit(&mut chunk.ends, at + (size - 1), free);
    }

    /// The first or second half of a granule.
    fn word(&self, at: u32, half: usize) -> u32 {
        let (chunk, from) = locate(at);
        let bytes = self.chunks[chunk].bytes[from + 4 * half..].first_chunk();
        u32::from_le_bytes(*bytes.expect("a granule is within its chunk"))
    }

    fn set_word(&mut self, at: u32, half: usize, word: u32) {
        let (chunk, from) = locate(at);
        self.chunks[chunk].bytes[from + 4 * half..][..4].copy_from_slice(&word.to_le_bytes());
    }
}

impl Default for StringArena {
    fn default() -> Self {
        Self::new()
    }
}

/// The chunk of a granule, and its byte offset in the chunk.
const fn locate(at: u32) -> (usize, usize) {
    ((at / CHUNK) as usize, (at % CHUNK) as usize * GRANULE)
}

/// Granules that a text of this many bytes needs: the smallest size of a class, so that any block of the class fits.
const fn block_size(len: usize) -> u32 {
    let size = (HEAD + len).div_ceil(GRANULE) as u32;
    if size < EXACT { size } else { size.next_multiple_of(1 << (size.ilog2() - 3)) }
}

/// The class of free blocks of this size.
const fn class(size: u32) -> usize {
    if size < EXACT {
        return size as usize;
    }
    let doubling = size.ilog2();
    (EXACT + (doubling - EXACT.ilog2()) * 8 + (size >> (doubling - 3)) % 8) as usize
}

fn bit(bits: &[u64], at: u32) -> bool {
    let at = at % CHUNK;
    bits[at as usize / 64] >> (at % 64) & 1 == 1
}

fn set_bit(bits: &mut [u64], at: u32, on: bool) {
    let at = at % CHUNK;
    let word = &mut bits[at as usize / 64];
    *word = *word & !(1 << (at % 64)) | u64::from(on) << (at % 64);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Every free block, by walking the lists.
    fn free_blocks(texts: &StringArena) -> Vec<(u32, u32)> {
        let mut blocks = Vec::new();
        for (of, &head) in texts.heads.iter().enumerate() {
            assert_eq!(texts.filled[of / 64] >> (of % 64) & 1 == 1, head != NONE);
            let mut at = head;
            while at != NONE {
                assert_eq!(class(texts.free_size(at)), of);
                blocks.push((at, texts.free_size(at)));
                at = texts.word(at, 0);
            }
        }
        blocks.sort_unstable();
        blocks
    }

    #[test]
    fn a_name_of_28_bytes_costs_32() {
        let mut texts = StringArena::new();
        let name = "orders/eu-west/customer-0017";
        assert_eq!(name.len(), 28);
        let (first, second) = (texts.put(name), texts.put(name));
        assert_eq!((second.0.get() - first.0.get()) as usize * GRANULE, 32);
        assert_eq!(size_of::<Option<StringRef>>(), 4);
        assert_eq!(texts.get(first), name);
        assert_eq!(texts.bytes(second), name.as_bytes());
    }

    #[test]
    fn the_empty_and_the_longest_text_are_stored() {
        let mut texts = StringArena::new();
        let long = "x".repeat(65_535);
        let kept: Vec<_> = (0..40).map(|_| (texts.put(""), texts.put(&long))).collect();
        assert!(texts.chunks.len() > 1);
        for &(empty, longest) in &kept {
            assert_eq!(texts.get(empty), "");
            assert_eq!(texts.get(longest), long);
        }
    }

    #[test]
    #[should_panic(expected = "a text has at most 65,535 bytes")]
    fn a_longer_text_is_refused() {
        StringArena::new().put(&"x".repeat(65_536));
    }

    #[test]
    #[should_panic(expected = "a text is freed once")]
    fn a_double_free_is_detected() {
        let mut texts = StringArena::new();
        let at = texts.put("once");
        texts.free(at);
        texts.free(at);
    }

    #[test]
    fn space_of_short_texts_serves_long_ones_and_vice_versa() {
        let mut texts = StringArena::new();
        for len in [28, 4_000, 5, 600, 65_535, 28] {
            let text = "n".repeat(len);
            let count = 900_000 / (block_size(len) as usize * GRANULE);
            let kept: Vec<_> = (0..count).map(|_| texts.put(&text)).collect();
            assert!(texts.chunks.len() <= 2, "texts of {len} bytes");
            kept.iter().step_by(2).chain(kept.iter().skip(1).step_by(2)).for_each(|&at| texts.free(at));
            assert_eq!(free_blocks(&texts), [(1, FIRST_CHUNK - 1), (CHUNK, CHUNK)]);
        }
    }

    #[test]
    fn every_block_of_a_class_fits_the_requested_size() {
        for len in 0..=65_535 {
            let size = block_size(len);
            assert!(size as usize * GRANULE >= len + HEAD && size <= CHUNK);
            assert!(size == 1 || class(size - 1) < class(size), "{size} is not the least of its class");
        }
    }

    proptest! {
        #[test]
        fn texts_stay_unchanged_and_free_blocks_merge(
            steps in prop::collection::vec((any::<bool>(), prop_oneof![0..40_usize, 0..700_usize, 0..=65_535_usize], any::<u16>()), 1..200),
        ) {
            let mut texts = StringArena::new();
            let mut model: Vec<(StringRef, String)> = Vec::new();
            for (n, (put, len, pick)) in steps.into_iter().enumerate() {
                if put || model.is_empty() {
                    let text: String = char::from(b'a' + (n % 26) as u8).to_string().repeat(len);
                    model.push((texts.put(&text), text));
                } else {
                    let (at, text) = model.swap_remove(usize::from(pick) % model.len());
                    prop_assert_eq!(texts.get(at), text);
                    texts.free(at);
                }
            }
            for (at, text) in &model {
                prop_assert_eq!(texts.get(*at), text);
            }
            let free = free_blocks(&texts);
            let used: u32 = model.iter().map(|(_, text)| block_size(text.len())).sum();
            let all = texts.chunks.iter().map(|chunk| (chunk.bytes.len() / GRANULE) as u32).sum::<u32>();
            prop_assert_eq!(free.iter().map(|(_, size)| size).sum::<u32>() + used + u32::from(all > 0), all);
            for pair in free.windows(2) {
                let end = pair[0].0 + pair[0].1;
                prop_assert!(end < pair[1].0 || end.is_multiple_of(CHUNK), "free neighbours were not joined");
            }
        }
    }
}
