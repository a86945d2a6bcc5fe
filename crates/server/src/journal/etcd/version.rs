//! Versions of etcd: which are supported, in which a linearizable read may be stale, and which protect the leader's lease.

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

    /// Whether etcd enforces its own access control for leases: before, anyone who reaches it may end the leader's lease although
    /// authentication is enabled (GHSA-q8m4-xhhv-38mg), or attach keys to it in a transaction (CVE-2026-44283).
    pub fn protects_leases(self) -> bool {
        self.has_fix([44, 30, 11])
    }

    /// Whether etcd ends no lease that is renewed: before, a member that was its leader and stalled may revoke leases that its successor
    /// renews (etcd-io/etcd#15247).
    pub fn keeps_renewed_leases(self) -> bool {
        self.has_fix([31, 13, 0])
    }

    /// Whether reads are linearizable even after a member was paused (etcd-io/etcd#20418).
    pub fn reads_are_fresh(self) -> bool {
        self.has_fix([42, 28, 9])
    }

    /// Whether the version contains a fix that was released in these patch versions of 3.4, 3.5 and 3.6.
    fn has_fix(self, [in_3_4, in_3_5, in_3_6]: [u32; 3]) -> bool {
        match (self.0, self.1) {
            (3, 4) => self.2 >= in_3_4,
            (3, 5) => self.2 >= in_3_5,
            (3, 6) => self.2 >= in_3_6,
            minor => minor > (3, 6),
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
    fn only_versions_with_the_fixes_protect_the_leaders_lease() {
        for (text, protects, keeps) in [
            ("3.4.23", false, false),
            ("3.4.31", false, true),
            ("3.4.43", false, true),
            ("3.4.44", true, true),
            ("3.5.12", false, false),
            ("3.5.29", false, true),
            ("3.5.30", true, true),
            ("3.6.0", false, true),
            ("3.6.11", true, true),
            ("3.7.0", true, true),
            ("4.0.0", true, true),
        ] {
            let version = version(text);
            assert_eq!((version.protects_leases(), version.keeps_renewed_leases()), (protects, keeps), "{text}");
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
