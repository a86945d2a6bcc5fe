//! Versions of etcd: which are supported, and in which a linearizable read may be stale.

use std::fmt;

/// A version of etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EtcdVersion(u32, u32, u32);

impl EtcdVersion {
    /// Parses the version that etcd reports.
    pub fn parse(text: &str) -> Option<Self> {
        let plain = text.split(['-', '+']).next()?;
        let mut numbers = plain.split('.').map(|number| number.parse().ok());
        Some(Self(numbers.next()??, numbers.next()??, numbers.next()??))
    }

    /// Whether the version is supported. 3.5.0 to 3.5.2 may lose acknowledged writes when they are killed (etcd-io/etcd#13766);
    /// versions before 3.4 are not tested.
    pub fn is_supported(self) -> bool {
        self >= Self(3, 4, 0) && !(Self(3, 5, 0)..Self(3, 5, 3)).contains(&self)
    }

    /// Whether reads are linearizable even after a member was paused (etcd-io/etcd#20418).
    pub fn reads_are_fresh(self) -> bool {
        match (self.0, self.1) {
            (3, 4) => self.2 >= 42,
            (3, 5) => self.2 >= 28,
            (3, 6) => self.2 >= 9,
            _ => self > Self(3, 6, 9),
        }
    }
}

impl fmt::Display for EtcdVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> EtcdVersion {
        EtcdVersion::parse(text).expect(text)
    }

    #[test]
    fn versions_that_lose_acknowledged_writes_are_not_supported() {
        for text in ["3.4.0", "3.4.23", "3.5.3", "3.5.28", "3.6.0", "3.6.0-rc.1", "4.0.0"] {
            assert!(version(text).is_supported(), "{text}");
        }
        for text in ["2.3.8", "3.0.0", "3.3.25", "3.5.0", "3.5.1", "3.5.2"] {
            assert!(!version(text).is_supported(), "{text}");
        }
        for text in ["", "3", "3.4", "three", "3.x.1"] {
            assert_eq!(EtcdVersion::parse(text), None, "{text}");
        }
    }

    #[test]
    fn reads_are_trusted_only_in_versions_without_stale_reads() {
        for (text, fresh) in [
            ("3.4.23", false),
            ("3.4.42", true),
            ("3.5.27", false),
            ("3.5.28", true),
            ("3.6.8", false),
            ("3.6.9", true),
        ] {
            assert_eq!(version(text).reads_are_fresh(), fresh, "{text}");
        }
        assert!(version("3.7.0").reads_are_fresh());
    }
}
