//! What the keys of a journal are called: text, so that `etcdctl get --prefix` shows what is there, and in order.

/// Digits of a number in a key: as many as the largest has, so that the order of the keys is that of the numbers.
const DIGITS: usize = 20;

/// The keys under one prefix.
#[derive(Clone, Debug)]
pub struct Keys {
    prefix: String,
}

impl Keys {
    /// The keys under `/prefix/`.
    pub fn under(prefix: &str) -> Self {
        Self { prefix: format!("/{}/", prefix.trim_matches('/')) }
    }

    /// What they all begin with.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    fn named(&self, rest: &str) -> Vec<u8> {
        format!("{}{rest}", self.prefix).into_bytes()
    }

    /// Who leads: an address and a nonce, leased.
    pub fn leader(&self) -> Vec<u8> {
        self.named("leader")
    }

    /// Which journal this is, and its newest snapshot.
    pub fn meta(&self) -> Vec<u8> {
        self.named("meta")
    }

    /// Written to know that the writer still leads, where a read cannot tell.
    pub fn confirm(&self) -> Vec<u8> {
        self.named("confirm")
    }

    /// A batch.
    pub fn log(&self, sequence: u64) -> Vec<u8> {
        self.named(&format!("log/{sequence:0DIGITS$}"))
    }

    /// Behind the last batch.
    pub fn log_end(&self) -> Vec<u8> {
        self.named("log0")
    }

    /// The sequence of a batch's key.
    pub fn sequence(&self, key: &[u8]) -> Option<u64> {
        let rest = str::from_utf8(key).ok()?.strip_prefix(self.prefix())?.strip_prefix("log/")?;
        rest.parse().ok().filter(|_| rest.len() == DIGITS)
    }

    /// A part of a batch that is too large for one request.
    pub fn part(&self, sequence: u64, part: u64) -> Vec<u8> {
        self.named(&format!("part/{sequence:0DIGITS$}/{part:0DIGITS$}"))
    }

    /// The parts of the batches from one sequence to before another.
    pub fn parts(&self, from: u64, before: u64) -> (Vec<u8>, Vec<u8>) {
        (self.named(&format!("part/{from:0DIGITS$}/")), self.named(&format!("part/{before:0DIGITS$}/")))
    }

    /// A chunk of a snapshot.
    pub fn chunk(&self, sequence: u64, chunk: u64) -> Vec<u8> {
        self.named(&format!("snap/{sequence:0DIGITS$}/{chunk:0DIGITS$}"))
    }

    /// All chunks of one snapshot.
    pub fn chunks(&self, sequence: u64) -> (Vec<u8>, Vec<u8>) {
        // After a slash comes a zero.
        (self.named(&format!("snap/{sequence:0DIGITS$}/")), self.named(&format!("snap/{sequence:0DIGITS$}0")))
    }

    /// All snapshots.
    pub fn snapshots(&self) -> (Vec<u8>, Vec<u8>) {
        (self.named("snap/"), self.named("snap0"))
    }

    /// A server that may lead.
    pub fn member(&self, nonce: &str) -> Vec<u8> {
        self.named(&format!("member/{nonce}"))
    }

    /// All servers that may lead.
    pub fn members(&self) -> (Vec<u8>, Vec<u8>) {
        (self.named("member/"), self.named("member0"))
    }

    /// Everything.
    pub fn all(&self) -> (Vec<u8>, Vec<u8>) {
        let mut end = self.prefix.clone().into_bytes();
        *end.last_mut().expect("a prefix has a slash") += 1;
        (self.prefix.clone().into_bytes(), end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_in_the_order_of_their_numbers_and_tell_them() {
        let keys = Keys::under("/a/b/");
        assert_eq!(keys.prefix(), "/a/b/");
        assert!(keys.log(9) < keys.log(10) && keys.log(u64::MAX) < keys.log_end());
        assert_eq!(keys.sequence(&keys.log(17)), Some(17));
        assert_eq!(keys.sequence(b"/a/b/log/17"), None);
        let (from, end) = keys.chunks(7);
        assert!(from < keys.chunk(7, 0) && keys.chunk(7, u64::MAX) < end && end < keys.chunk(8, 0));
        let (from, end) = keys.all();
        assert!(from < keys.leader() && keys.snapshots().1 < end && end == b"/a/b0");
    }
}
