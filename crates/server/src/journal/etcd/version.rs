//! Which versions of etcd keep what they promise, and in which of them a read may be stale.

use std::fmt;

/// A version of etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(u32, u32, u32);

impl Version {
    /// Reads it as etcd tells it.
    pub fn parse(text: &str) -> Option<Self> {
        let plain = text.split(['-', '+']).next()?;
        let mut numbers = plain.split('.').map(|number| number.parse().ok());
        Some(Self(numbers.next()??, numbers.next()??, numbers.next()??))
    }

    /// 3.5.0 to 3.5.2 may lose what they had answered when they are killed (etcd-io/etcd#13766); before 3.4 nothing here
    /// was tried.
    pub fn is_supported(self) -> bool {
        self >= Self(3, 4, 0) && !(Self(3, 5, 0)..Self(3, 5, 3)).contains(&self)
    }

    /// Whether a linearizable read is one also after a member stood still (etcd-io/etcd#20418).
    pub fn reads_are_fresh(self) -> bool {
        match (self.0, self.1) {
            (3, 4) => self.2 >= 42,
            (3, 5) => self.2 >= 28,
            (3, 6) => self.2 >= 9,
            _ => self > Self(3, 6, 9),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> Version {
        Version::parse(text).expect(text)
    }

    #[test]
    fn versions_that_lose_answers_are_refused_and_the_others_taken() {
        for text in ["3.4.0", "3.4.23", "3.5.3", "3.5.28", "3.6.0", "3.6.0-rc.1", "4.0.0"] {
            assert!(version(text).is_supported(), "{text}");
        }
        for text in ["2.3.8", "3.0.0", "3.3.25", "3.5.0", "3.5.1", "3.5.2"] {
            assert!(!version(text).is_supported(), "{text}");
        }
        for text in ["", "3", "3.4", "three", "3.x.1"] {
            assert_eq!(Version::parse(text), None, "{text}");
        }
    }

    #[test]
    fn reads_are_trusted_only_where_the_stale_ones_were_mended() {
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
