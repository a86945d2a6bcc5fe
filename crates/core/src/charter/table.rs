//! The charters of a cluster by prefix. The longest prefix that covers a name by whole segments applies.

use std::collections::BTreeMap;
use std::fmt;

use super::Charter;
use crate::limits;

/// All charters of a cluster, in the order of their prefixes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Charters {
    by_prefix: BTreeMap<Box<str>, OwnedCharter>,
}

/// A charter, and the number of the identity that set it first.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OwnedCharter {
    charter: Charter,
    owner: u32,
}

/// Error of [`Charters::set`]: the table is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyCharters;

impl fmt::Display for TooManyCharters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at most {} charters; remove one, or cover more with a shorter prefix", limits::CHARTERS)
    }
}

impl std::error::Error for TooManyCharters {}

impl Charters {
    /// Sets the charter of a validated prefix and returns the one it replaced. A replaced charter keeps its owner.
    pub fn set(&mut self, prefix: &str, charter: Charter, owner: u32) -> Result<Option<Charter>, TooManyCharters> {
        if let Some(there) = self.by_prefix.get_mut(prefix) {
            return Ok(Some(std::mem::replace(&mut there.charter, charter)));
        }
        if self.by_prefix.len() >= limits::CHARTERS {
            return Err(TooManyCharters);
        }
        self.by_prefix.insert(prefix.into(), OwnedCharter { charter, owner });
        Ok(None)
    }

    /// Removes and returns the charter of exactly this prefix, and its owner.
    pub fn remove(&mut self, prefix: &str) -> Option<(Charter, u32)> {
        self.by_prefix.remove(prefix).map(|OwnedCharter { charter, owner }| (charter, owner))
    }

    /// The owner of each charter, in the order of prefixes.
    pub fn owners(&self) -> impl Iterator<Item = u32> {
        self.by_prefix.values().map(|entry| entry.owner)
    }

    /// The same to change.
    pub fn owners_mut(&mut self) -> impl Iterator<Item = &mut u32> {
        self.by_prefix.values_mut().map(|entry| &mut entry.owner)
    }

    /// The charter of exactly this prefix.
    pub fn get(&self, prefix: &str) -> Option<&Charter> {
        self.by_prefix.get(prefix).map(|entry| &entry.charter)
    }

    /// The charter that applies to a resource, with its prefix.
    pub fn find(&self, name: &str) -> Option<(&str, &Charter)> {
        if self.by_prefix.is_empty() {
            return None;
        }
        let mut prefix = name;
        loop {
            if let Some((found, entry)) = self.by_prefix.get_key_value(prefix) {
                return Some((found, &entry.charter));
            }
            if prefix.is_empty() {
                return None;
            }
            prefix = prefix.rfind('/').map_or("", |end| &prefix[..end]);
        }
    }

    /// The charter that would apply to a prefix without one of its own.
    pub fn find_above(&self, prefix: &str) -> Option<(&str, &Charter)> {
        if prefix.is_empty() { None } else { self.find(prefix.rfind('/').map_or("", |end| &prefix[..end])) }
    }

    /// Every prefix and its charter, in the order of prefixes.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Charter)> {
        self.by_prefix.iter().map(|(prefix, entry)| (&**prefix, &entry.charter))
    }

    /// The number of charters.
    pub fn len(&self) -> usize {
        self.by_prefix.len()
    }

    /// Whether no charter is set.
    pub fn is_empty(&self) -> bool {
        self.by_prefix.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sized(units: u32) -> Charter {
        Charter { capacity: Some(units), ..Charter::default() }
    }

    fn with_prefixes(prefixes: &[&str]) -> Charters {
        let mut charters = Charters::default();
        for prefix in prefixes {
            assert_eq!(charters.set(prefix, Charter::default(), 0), Ok(None));
        }
        charters
    }

    fn found<'a>(charters: &'a Charters, name: &str) -> Option<&'a str> {
        charters.find(name).map(|(prefix, _)| prefix)
    }

    #[test]
    fn the_longest_covering_prefix_wins() {
        let charters = with_prefixes(&["team", "team/a", "team/a/b/c"]);
        assert_eq!(found(&charters, "team/a/b"), Some("team/a"));
        assert_eq!(found(&charters, "team/a/b/c"), Some("team/a/b/c"));
        assert_eq!(found(&charters, "team/a/b/c/d"), Some("team/a/b/c"));
        assert_eq!(found(&charters, "team/z"), Some("team"));
        assert_eq!(found(&charters, "other"), None);
    }

    #[test]
    fn a_prefix_covers_whole_segments_only() {
        let charters = with_prefixes(&["team/a"]);
        assert_eq!(found(&charters, "team/ab"), None);
        assert_eq!(found(&charters, "team"), None);
        assert_eq!(found(&charters, "team/a"), Some("team/a"));
    }

    #[test]
    fn the_empty_prefix_covers_all_other_names() {
        let charters = with_prefixes(&["", "team"]);
        assert_eq!(found(&charters, "other/x"), Some(""));
        assert_eq!(found(&charters, "team/x"), Some("team"));
        assert_eq!(found(&Charters::default(), "team/x"), None);
    }

    #[test]
    fn the_charter_above_a_prefix_is_the_one_that_applies_without_its_own() {
        let charters = with_prefixes(&["", "team", "team/a/b"]);
        let above = |prefix| charters.find_above(prefix).map(|(found, _)| found);
        assert_eq!(above("team/a/b"), Some("team"));
        assert_eq!(above("team"), Some(""));
        assert_eq!(above("other/x"), Some(""));
        assert_eq!(above(""), None);
    }

    #[test]
    fn set_replaces_a_charter_and_remove_exposes_the_shorter_prefix() {
        let mut charters = Charters::default();
        assert_eq!(charters.set("", sized(1), 0), Ok(None));
        assert_eq!(charters.set("team", sized(2), 0), Ok(None));
        assert_eq!(charters.set("team", sized(3), 7), Ok(Some(sized(2))));
        assert_eq!(charters.owners().collect::<Vec<_>>(), [0, 0], "a replaced charter keeps its owner");
        assert_eq!(charters.find("team/x"), Some(("team", &sized(3))));
        assert_eq!(charters.remove("team"), Some((sized(3), 0)));
        assert_eq!(charters.remove("team"), None);
        assert_eq!(charters.find("team/x"), Some(("", &sized(1))));
        assert_eq!(charters.get("team"), None);
    }

    #[test]
    fn a_full_table_refuses_a_new_prefix_but_still_replaces_an_existing_one() {
        let mut charters = Charters::default();
        for n in 0..limits::CHARTERS {
            assert_eq!(charters.set(&format!("p{n}"), Charter::default(), 0), Ok(None));
        }
        assert_eq!(charters.set("one-more", sized(1), 0), Err(TooManyCharters));
        assert_eq!(charters.len(), limits::CHARTERS);
        assert_eq!(charters.set("p7", sized(1), 0), Ok(Some(Charter::default())));
    }

    #[test]
    fn charters_are_listed_in_prefix_order() {
        let charters = with_prefixes(&["b", "a/b", "", "a"]);
        assert_eq!(charters.iter().map(|(prefix, _)| prefix).collect::<Vec<_>>(), ["", "a", "a/b", "b"]);
        assert!(!charters.is_empty());
    }

    proptest! {
        #[test]
        fn find_agrees_with_trying_every_prefix(
            prefixes in prop::collection::btree_set("([ab]{1,2}(/[ab]{1,2}){0,3})?", 0..12),
            name in "[ab]{1,2}(/[ab]{1,2}){0,4}",
        ) {
            let charters = with_prefixes(&prefixes.iter().map(String::as_str).collect::<Vec<_>>());
            let covers = |p: &&String| {
                p.is_empty() || **p == name || name.strip_prefix(p.as_str()).is_some_and(|rest| rest.starts_with('/'))
            };
            let expected = prefixes.iter().filter(covers).max_by_key(|p| p.len());
            prop_assert_eq!(found(&charters, &name), expected.map(String::as_str));
        }
    }
}
