//! Names of the keys in etcd. They are text, so that `etcdctl get --prefix` lists them in order.

/// Digits of a number in a key: fixed, so that keys sort like their numbers.
const DIGITS: usize = 20;

/// The keys under one prefix.
#[derive(Clone, Debug)]
pub struct JournalKeys {
    prefix: String,
}

impl JournalKeys {
    /// The keys under `/prefix/`.
    pub fn under(prefix: &str) -> Self {
        Self { prefix: format!("/{}/", prefix.trim_matches('/')) }
    }

    /// The common prefix, with slashes.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    fn named(&self, rest: &str) -> Vec<u8> {
        format!("{}{rest}", self.prefix).into_bytes()
    }

    /// Address and nonce of the leader; leased.
    pub fn leader(&self) -> Vec<u8> {
        self.named("leader")
    }

    /// Id of the journal and its newest snapshot.
    pub fn meta(&self) -> Vec<u8> {
        self.named("meta")
    }

    /// Exists after a server found that etcd was rolled back; no server leads until one accepts it.
    pub fn rolled_back(&self) -> Vec<u8> {
        self.named("rolled_back")
    }

    /// Written when a restore is accepted: its last change shows whether a server read the journal before or after it.
    pub fn accepted(&self) -> Vec<u8> {
        self.named("accepted")
    }

    /// The ids of the keys that the servers share.
    pub fn key_digests(&self) -> Vec<u8> {
        self.named("keys")
    }

    /// Written to confirm the leader where a read may be stale.
    pub fn confirm(&self) -> Vec<u8> {
        self.named("confirm")
    }

    /// A batch.
    pub fn log(&self, sequence: u64) -> Vec<u8> {
        self.named(&format!("log/{sequence:0DIGITS$}"))
    }

    /// The end of the range of batches.
    pub fn log_end(&self) -> Vec<u8> {
        self.named("log0")
    }

    /// The sequence in the key of a batch.
    pub fn sequence(&self, key: &[u8]) -> Option<u64> {
        let rest = str::from_utf8(key).ok()?.strip_prefix(self.prefix())?.strip_prefix("log/")?;
        rest.parse().ok().filter(|_| rest.len() == DIGITS)
    }

    /// A part of a batch that is too large for one request.
    pub fn part(&self, sequence: u64, part: u64) -> Vec<u8> {
        self.named(&format!("part/{sequence:0DIGITS$}/{part:0DIGITS$}"))
    }

    /// The range of parts of the batches from one sequence to before another.
    pub fn parts(&self, from: u64, before: u64) -> (Vec<u8>, Vec<u8>) {
        (self.named(&format!("part/{from:0DIGITS$}/")), self.named(&format!("part/{before:0DIGITS$}/")))
    }

    /// A chunk of a snapshot.
    pub fn chunk(&self, sequence: u64, chunk: u64) -> Vec<u8> {
        self.named(&format!("snap/{sequence:0DIGITS$}/{chunk:0DIGITS$}"))
    }

    /// The range of chunks of one snapshot.
    pub fn chunks(&self, sequence: u64) -> (Vec<u8>, Vec<u8>) {
        // In ASCII, `0` follows `/`.
        (self.named(&format!("snap/{sequence:0DIGITS$}/")), self.named(&format!("snap/{sequence:0DIGITS$}0")))
    }

    /// The range of all snapshots.
    pub fn snapshots(&self) -> (Vec<u8>, Vec<u8>) {
        (self.named("snap/"), self.named("snap0"))
    }

    /// A server that may lead.
    pub fn member(&self, nonce: &str) -> Vec<u8> {
        self.named(&format!("member/{nonce}"))
    }

    /// The range of all servers that may lead.
    pub fn members(&self) -> (Vec<u8>, Vec<u8>) {
        (self.named("member/"), self.named("member0"))
    }

    /// The range of all keys.
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
    fn keys_sort_like_their_numbers_and_parse_back() {
        let keys = JournalKeys::under("/a/b/");
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
