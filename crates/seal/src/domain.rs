//! Domain tags: what a signature is for. A signature of one domain is worth nothing in another.

/// A domain tag. The signed bytes start with it and a zero byte, so that no domain is the beginning of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Domain(&'static str);

impl Domain {
    /// Sealed token texts. Not public: only [`crate::SealKey::seal`] signs tokens.
    pub(crate) const TOKEN: Self = Self("leasehold token 2");
    /// Heads of the audit log.
    pub const AUDIT_HEAD: Self = Self("leasehold audit head 1");

    /// A domain of the caller's own.
    ///
    /// # Panics
    /// If the tag is empty, has a zero byte, or starts with `leasehold`: those are reserved. In a constant the compiler
    /// reports it.
    pub const fn new(tag: &'static str) -> Self {
        let (bytes, reserved) = (tag.as_bytes(), b"leasehold");
        assert!(!bytes.is_empty(), "a domain tag must not be empty");
        let (mut at, mut equal) = (0, true);
        while at < bytes.len() {
            assert!(bytes[at] != 0, "a domain tag must have no zero byte");
            if at < reserved.len() && bytes[at] != reserved[at] {
                equal = false;
            }
            at += 1;
        }
        assert!(!equal || bytes.len() < reserved.len(), "domain tags that start with `leasehold` are reserved");
        Self(tag)
    }

    /// The bytes that are signed for `parts` in this domain.
    pub(crate) fn message(self, parts: &[&[u8]]) -> Vec<u8> {
        let mut message = Vec::with_capacity(self.0.len() + 1 + parts.iter().map(|part| part.len()).sum::<usize>());
        message.extend_from_slice(self.0.as_bytes());
        message.push(0);
        for part in parts {
            message.extend_from_slice(part);
        }
        message
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_of_a_domain_is_its_tag_a_zero_byte_and_the_parts() {
        assert_eq!(Domain::new("mine").message(&[b"a", b"bc"]), b"mine\0abc");
        assert_eq!(Domain::TOKEN.message(&[]), b"leasehold token 2\0");
    }

    #[test]
    fn reserved_and_unusable_tags_are_refused() {
        for tag in ["", "a\0b", "leasehold", "leasehold token 2", "leaseholder"] {
            assert!(std::panic::catch_unwind(|| Domain::new(tag)).is_err(), "{tag:?}");
        }
        for tag in ["lease", "leaseh", "x leasehold", "L"] {
            assert_eq!(Domain::new(tag), Domain(tag));
        }
    }
}
