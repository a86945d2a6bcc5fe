//! Owners: the identities that were granted sessions and leases, each stored once.
//!
//! An owner is never removed while the process runs. There are as many as identities that the access rules ever named.

use std::sync::Arc;

use crate::access::{IdentityUsage, LOCAL_OWNER, LOCAL_PRINCIPAL};
use crate::store::index::{Index, NameHash};

/// All owners by number and by name.
pub(crate) struct Owners {
    names: Vec<Arc<str>>,
    /// What each of them has. Derived from the sessions, leases and waits.
    usage: Vec<IdentityUsage>,
    index: Index,
    hash: NameHash,
    /// The last identity that was looked up, with its number: requests of one caller come in batches. Not part of the state.
    last: (String, Option<u32>),
}

impl Owners {
    pub fn new(hash: NameHash) -> Self {
        let mut owners = Self {
            names: Vec::new(),
            usage: Vec::new(),
            index: Index::new(),
            hash,
            last: (LOCAL_PRINCIPAL.to_owned(), Some(LOCAL_OWNER)),
        };
        owners.add(LOCAL_PRINCIPAL);
        owners
    }

    /// The number of an owner; `None` is `local`. It is added if it is new.
    pub fn intern(&mut self, owner: Option<&str>) -> u32 {
        match owner {
            None => LOCAL_OWNER,
            Some(name) => self.find(name).unwrap_or_else(|| self.add(name)),
        }
    }

    /// The number of an identity, if it ever was given anything.
    #[inline]
    pub fn resolve(&mut self, principal: &str) -> Option<u32> {
        if self.last.0 != principal {
            self.last.1 = self.find(principal);
            self.last.0.clear();
            self.last.0.push_str(principal);
        }
        self.last.1
    }

    /// The name of an owner as it is recorded: `None` for `local`.
    pub fn recorded(&self, owner: u32) -> Option<&Arc<str>> {
        if owner == LOCAL_OWNER { None } else { Some(&self.names[owner as usize]) }
    }

    /// Whether nothing was ever granted to another identity than `local`.
    pub fn is_local_only(&self) -> bool {
        self.names.len() == 1
    }

    pub fn len(&self) -> usize {
        self.names.len()
    }

    pub fn name(&self, owner: u32) -> &str {
        &self.names[owner as usize]
    }

    /// What an identity has.
    pub fn usage_of(&self, principal: &str) -> IdentityUsage {
        let owner = if self.last.0 == principal { self.last.1 } else { self.find(principal) };
        owner.map_or_else(IdentityUsage::default, |owner| self.usage[owner as usize])
    }

    pub fn usage_mut(&mut self, owner: u32) -> &mut IdentityUsage {
        &mut self.usage[owner as usize]
    }

    /// All owners with what they have.
    pub fn usages(&self) -> impl Iterator<Item = (&str, &IdentityUsage)> {
        self.names.iter().map(|name| &**name).zip(&self.usage)
    }

    /// The number of an identity, if it was ever given anything.
    pub fn find(&self, name: &str) -> Option<u32> {
        self.index.find(self.hash.hash(name.as_bytes()), |at| *self.names[at as usize] == *name)
    }

    fn add(&mut self, name: &str) -> u32 {
        let at = u32::try_from(self.names.len()).expect("fewer than 2^32 identities");
        self.names.push(name.into());
        self.usage.push(IdentityUsage::default());
        let (names, hash) = (&self.names, &self.hash);
        self.index.insert(hash.hash(name.as_bytes()), at, |other| hash.hash(names[other as usize].as_bytes()));
        self.last = (name.to_owned(), Some(at));
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_has_one_number_and_an_unknown_identity_has_none_until_it_is_added() {
        let mut owners = Owners::new(NameHash::new(7));
        assert_eq!(
            (owners.resolve("local"), owners.intern(None), owners.recorded(LOCAL_OWNER)),
            (Some(LOCAL_OWNER), LOCAL_OWNER, None)
        );
        assert_eq!(owners.resolve("uid:1000"), None);
        assert!(owners.is_local_only());
        let first = owners.intern(Some("uid:1000"));
        assert_eq!(owners.resolve("uid:1000"), Some(first), "a remembered miss is forgotten when the owner is added");
        let second = owners.intern(Some("uid:1001"));
        assert!(first != second && first != LOCAL_OWNER && second != LOCAL_OWNER);
        assert_eq!((owners.intern(Some("uid:1000")), owners.resolve("uid:1001")), (first, Some(second)));
        assert_eq!((owners.name(first), owners.recorded(second).map(|name| &**name)), ("uid:1000", Some("uid:1001")));
        assert_eq!(owners.resolve("uid:100"), None);
        assert!(!owners.is_local_only());
    }
}
