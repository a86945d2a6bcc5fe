//! Signed heads of the audit log: an end of the log that a seal key of the cluster has signed (A13).
//!
//! The chain of entries has no key, so anyone who can write the files can cut the log or compute another one. A head that was signed
//! and copied elsewhere reveals both. Heads are lines of JSON; the newest are stored beside the log.

use std::fmt;
use std::io::BufRead;

use leasehold_core::token::Cluster;
use leasehold_seal::{Domain, Seal, SealError, SealKeys};
use leasehold_wire::v1;
use serde::{Deserialize, Serialize};

use super::{AuditHead, ExpectedEntry, Hash, hex, unhex};

/// Heads that are stored. Above it, every second one of the older half is removed.
pub const MAX_HEADS: usize = 1_000;
/// Longest line of a file with heads.
const MAX_LINE_BYTES: u64 = 4_096;
/// Most lines of a file with heads.
const MAX_LINES: u64 = 1_000_000;

/// The keys of a server, which sign heads and verify those of earlier tenures.
pub trait HeadSigner: fmt::Debug + Send + Sync {
    /// Signs bytes with the key that is active now; `None` if there is none.
    fn sign(&self, domain: Domain, bytes: &[u8]) -> Option<Seal>;

    /// All keys whose heads count.
    fn keys(&self) -> SealKeys;
}

/// An end of the audit log with its signature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignedHead {
    /// The cluster.
    pub cluster: String,
    /// Number of the last entry.
    pub entry: u64,
    /// Hash of that entry, in hexadecimal.
    pub hash: String,
    /// The journal position up to which the log was complete.
    pub position: u64,
    /// When it was signed, in milliseconds since 1970.
    pub wall_ms: u64,
    /// The id of the key.
    pub kid: String,
    /// The signature of everything above, in base64url.
    pub signature: String,
}

/// Why a head proves nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeadError {
    /// A field cannot be read.
    Field {
        /// The entry that it names.
        entry: u64,
        /// The field.
        field: &'static str,
    },
    /// It is of another cluster.
    Cluster {
        /// The entry that it names.
        entry: u64,
        /// Its cluster.
        found: String,
    },
    /// The signature does not count.
    Seal {
        /// The entry that it names.
        entry: u64,
        /// Why not.
        error: SealError,
    },
}

impl fmt::Display for HeadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field { entry, field } => write!(f, "the head of entry {entry} has an invalid {field}"),
            Self::Cluster { entry, found } => write!(f, "the head of entry {entry} is of another cluster, {found}"),
            Self::Seal { entry, error } => match error {
                SealError::UnknownKey { kid } => {
                    write!(f, "the head of entry {entry} is signed by the unknown key {kid}")
                }
                SealError::EndedKey { kid, end_ms } => {
                    write!(
                        f,
                        "the head of entry {entry} is signed by the key {kid} after its end at {end_ms} ms since 1970"
                    )
                }
                SealError::Signature { kid } => {
                    write!(f, "the signature of the head of entry {entry} is not of the key {kid}: a field was changed")
                }
                SealError::Token(_) | SealError::Unsealed => {
                    write!(f, "the head of entry {entry} has no valid signature")
                }
            },
        }
    }
}

impl std::error::Error for HeadError {}

impl SignedHead {
    /// Signs an end of the log; `None` without an active key.
    pub fn sign(signer: &dyn HeadSigner, cluster: Cluster, head: AuditHead, wall_ms: u64) -> Option<Self> {
        let seal = signer.sign(Domain::AUDIT_HEAD, &message(cluster, &head, wall_ms))?;
        let text = seal.to_string();
        let (kid, signature) = text.split_once('-')?;
        Some(Self {
            cluster: cluster.to_string(),
            entry: head.entries,
            hash: hex(&head.hash),
            position: head.position,
            wall_ms,
            kid: kid.to_owned(),
            signature: signature.to_owned(),
        })
    }

    /// The end that it names, if one of these keys signed it. A key that ended after it was signed counts.
    pub fn verify(&self, keys: &SealKeys) -> Result<AuditHead, HeadError> {
        let entry = self.entry;
        let field = |field| HeadError::Field { entry, field };
        let cluster: Cluster = self.cluster.parse().map_err(|_| field("cluster"))?;
        let hash: Hash = unhex(&self.hash).ok_or(field("hash"))?;
        let seal: Seal = format!("{}-{}", self.kid, self.signature).parse().map_err(|_| field("signature"))?;
        let head = AuditHead { entries: entry, hash, position: self.position };
        keys.verify_bytes(Domain::AUDIT_HEAD, &message(cluster, &head, self.wall_ms), &seal, self.wall_ms)
            .map_err(|error| HeadError::Seal { entry, error })?;
        Ok(head)
    }

    /// The same, and it must be of this cluster.
    pub fn verify_for(&self, keys: &SealKeys, cluster: Cluster) -> Result<AuditHead, HeadError> {
        let head = self.verify(keys)?;
        if self.cluster != cluster.to_string() {
            return Err(HeadError::Cluster { entry: self.entry, found: self.cluster.clone() });
        }
        Ok(head)
    }

    /// One line of JSON.
    pub fn encode(&self, out: &mut Vec<u8>) {
        serde_json::to_writer(&mut *out, self).expect("writing to a buffer does not fail");
        out.push(b'\n');
    }
}

impl From<SignedHead> for v1::AuditHead {
    fn from(head: SignedHead) -> Self {
        let SignedHead { cluster, entry, hash, position, wall_ms, kid, signature } = head;
        Self { cluster, entry, hash, position, wall_ms, kid, signature }
    }
}

impl From<&AuditHead> for ExpectedEntry {
    fn from(head: &AuditHead) -> Self {
        Self { entry: head.entries, hash: head.hash }
    }
}

/// What is signed. Every field has a fixed length, so that no two heads have the same bytes.
fn message(cluster: Cluster, head: &AuditHead, wall_ms: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(64);
    bytes.extend_from_slice(&cluster.0);
    bytes.extend_from_slice(&head.entries.to_le_bytes());
    bytes.extend_from_slice(&head.hash);
    bytes.extend_from_slice(&head.position.to_le_bytes());
    bytes.extend_from_slice(&wall_ms.to_le_bytes());
    bytes
}

/// Heads as they are stored and served.
pub fn encode_heads(heads: &[SignedHead]) -> Vec<u8> {
    let mut out = Vec::new();
    heads.iter().for_each(|head| head.encode(&mut out));
    out
}

/// Adds a head. Old heads become sparser, so that a bounded number of them covers the whole log.
pub fn add_head(heads: &mut Vec<SignedHead>, head: SignedHead) {
    heads.push(head);
    if heads.len() > MAX_HEADS {
        let (mut at, half) = (0, heads.len() / 2);
        heads.retain(|_| {
            at += 1;
            // The oldest always stays.
            at > half || at % 2 == 1
        });
    }
}

/// The first invalid line of a file with heads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadLineError {
    /// Its number, from 1.
    pub line: u64,
    /// The error.
    pub reason: String,
}

impl fmt::Display for HeadLineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}; export the heads again with `leasehold audit heads`", self.line, self.reason)
    }
}

impl std::error::Error for HeadLineError {}

/// Reads heads, one per line; empty lines are skipped.
pub fn parse_heads(mut from: impl BufRead) -> Result<Vec<SignedHead>, HeadLineError> {
    let (mut heads, mut line) = (Vec::new(), Vec::new());
    for number in 1..=MAX_LINES {
        line.clear();
        let invalid = |reason: String| HeadLineError { line: number, reason };
        let got = std::io::Read::take(&mut from, MAX_LINE_BYTES).read_until(b'\n', &mut line);
        match got.map_err(|error| invalid(error.to_string()))? {
            0 => return Ok(heads),
            got if got as u64 == MAX_LINE_BYTES => return Err(invalid("line too long".to_owned())),
            _ if line.trim_ascii().is_empty() => {}
            _ => heads.push(serde_json::from_slice(&line).map_err(|error| invalid(format!("not a head: {error}")))?),
        }
    }
    Err(HeadLineError { line: MAX_LINES, reason: "too many lines".to_owned() })
}

#[cfg(test)]
mod tests {
    use leasehold_seal::SealKey;

    use super::*;

    #[derive(Debug)]
    struct OneKey(SealKey);

    impl HeadSigner for OneKey {
        fn sign(&self, domain: Domain, bytes: &[u8]) -> Option<Seal> {
            Some(self.0.sign_bytes(domain, bytes))
        }

        fn keys(&self) -> SealKeys {
            SealKeys::new([self.0.public()]).expect("one key")
        }
    }

    fn signer() -> OneKey {
        OneKey(SealKey::generate(0).expect("a key"))
    }

    fn signed(signer: &OneKey, entries: u64) -> SignedHead {
        let head = AuditHead { entries, hash: [entries as u8; 32], position: entries + 5 };
        SignedHead::sign(signer, Cluster(*b"cluster1"), head, 1_770_000_000_000).expect("signed")
    }

    #[test]
    fn a_head_is_verified_with_every_field() {
        let signer = signer();
        let head = signed(&signer, 7);
        let keys = signer.keys();
        assert_eq!(head.verify(&keys), Ok(AuditHead { entries: 7, hash: [7; 32], position: 12 }));
        assert!(matches!(head.verify_for(&keys, Cluster(*b"cluster2")), Err(HeadError::Cluster { entry: 7, .. })));
        let changed = [
            SignedHead { cluster: Cluster(*b"cluster2").to_string(), ..head.clone() },
            SignedHead { entry: 8, ..head.clone() },
            SignedHead { hash: hex(&[8; 32]), ..head.clone() },
            SignedHead { position: 13, ..head.clone() },
            SignedHead { wall_ms: 1_770_000_000_001, ..head.clone() },
        ];
        for changed in changed {
            let error = changed.verify(&keys).expect_err("a changed field");
            assert!(matches!(error, HeadError::Seal { error: SealError::Signature { .. }, .. }), "{error:?}");
        }
        let other = super::tests::signer().keys();
        assert!(head.verify(&other).expect_err("another key").to_string().contains("unknown key"));
        let field = SignedHead { signature: "??".to_owned(), ..head }.verify(&keys);
        assert_eq!(field, Err(HeadError::Field { entry: 7, field: "signature" }));
    }

    #[test]
    fn heads_are_read_as_written_and_a_wrong_line_is_named() {
        let signer = signer();
        let heads: Vec<_> = (1..4).map(|entry| signed(&signer, entry)).collect();
        let text = encode_heads(&heads);
        assert_eq!(parse_heads(&text[..]).as_ref(), Ok(&heads));
        assert_eq!(parse_heads(&b"\n\n"[..]), Ok(Vec::new()));
        let wrong = [&text[..], b"{}\n"].concat();
        assert_eq!(parse_heads(&wrong[..]).expect_err("no head").line, 4);
        let long = "x".repeat(MAX_LINE_BYTES as usize + 1);
        assert_eq!(parse_heads(long.as_bytes()).expect_err("too long").reason, "line too long");
    }

    #[test]
    fn a_bounded_number_of_heads_keeps_the_newest_and_some_of_every_age() {
        let head = signed(&signer(), 1);
        let mut heads = Vec::new();
        for entry in 1..=100_000 {
            add_head(&mut heads, SignedHead { entry, ..head.clone() });
            assert!(heads.len() <= MAX_HEADS);
        }
        let numbers: Vec<u64> = heads.iter().map(|head| head.entry).collect();
        assert!(numbers.is_sorted() && numbers.ends_with(&[99_998, 99_999, 100_000]));
        assert!(numbers[0] < 50_000, "the oldest is {}", numbers[0]);
    }
}
