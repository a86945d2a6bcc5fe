//! Who is registered, by what was listed, shown and heard: told twice it is the same, and an end is for ever.

use std::collections::BTreeMap;

use leasehold_wire::json::LeaseBody;

/// One registration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Its name within the service.
    pub name: String,
    /// Who registered it.
    pub holder: String,
    /// The words it registered with.
    pub details: String,
    /// Its place in the order of all grants: of two of one name the later one has the higher number.
    pub number: u64,
}

/// What became different.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It can be found from now on.
    Joined(Instance),
    /// It is over.
    Left(Instance),
}

/// The registrations of one service, by resource and number. Numbers are given once, so an end cannot be taken back.
#[derive(Clone, Debug)]
pub(super) struct Roster {
    service: String,
    known: BTreeMap<(String, u64), Instance>,
}

impl Roster {
    pub(super) fn new(service: &str) -> Self {
        Self { service: service.to_owned(), known: BTreeMap::new() }
    }

    pub(super) fn service(&self) -> &str {
        &self.service
    }

    pub(super) fn instances(&self) -> impl Iterator<Item = &Instance> {
        self.known.values()
    }

    /// Takes in the whole list: who is not on it has left.
    pub(super) fn listed(&mut self, found: &[LeaseBody]) -> Vec<Change> {
        self.replace(|_| true, found)
    }

    /// Takes in what stands at one resource.
    pub(super) fn shown(&mut self, resource: &str, found: &[LeaseBody]) -> Vec<Change> {
        self.replace(|known| known == resource, found)
    }

    /// Takes in one end.
    pub(super) fn ended(&mut self, resource: &str, number: u64) -> Option<Change> {
        self.known.remove(&(resource.to_owned(), number)).map(Change::Left)
    }

    /// Whoever leaves is told before anybody joins, so that no name is there twice.
    fn replace(&mut self, among: impl Fn(&str) -> bool, found: &[LeaseBody]) -> Vec<Change> {
        let found: BTreeMap<_, _> = found.iter().filter_map(|lease| self.read(lease)).collect();
        let gone = self.known.extract_if(.., |key, _| among(&key.0) && !found.contains_key(key));
        let mut changes: Vec<_> = gone.map(|(_, instance)| Change::Left(instance)).collect();
        for (key, instance) in found {
            if self.known.insert(key, instance.clone()).is_none() {
                changes.push(Change::Joined(instance));
            }
        }
        changes
    }

    fn read(&self, lease: &LeaseBody) -> Option<((String, u64), Instance)> {
        let rest = if self.service.is_empty() {
            lease.resource.as_str()
        } else {
            lease.resource.strip_prefix(&self.service)?.strip_prefix('/')?
        };
        let number = lease.token_number.parse().ok()?;
        let (holder, details) = (lease.holder.clone(), lease.metadata.clone());
        Some(((lease.resource.clone(), number), Instance { name: rest.to_owned(), holder, details, number }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_wire::v1;

    fn lease(resource: &str, number: u64) -> LeaseBody {
        let (holder, metadata) = ("w".to_owned(), b"10.0.0.1:80".to_vec());
        let resource = resource.to_owned();
        v1::LeaseView { resource, holder, metadata, token_number: number, ..Default::default() }.into()
    }

    fn names(changes: &[Change]) -> Vec<String> {
        let name = |change: &Change| match change {
            Change::Joined(one) => format!("+{}:{}", one.name, one.number),
            Change::Left(one) => format!("-{}:{}", one.name, one.number),
        };
        changes.iter().map(name).collect()
    }

    #[test]
    fn a_list_read_anew_tells_exactly_what_was_missed() {
        let mut roster = Roster::new("db");
        assert_eq!(names(&roster.listed(&[lease("db/a", 1), lease("db/b", 2)])), ["+a:1", "+b:2"]);
        assert_eq!(
            names(&roster.listed(&[lease("db/a", 1), lease("db/b", 5), lease("db/c", 6)])),
            ["-b:2", "+b:5", "+c:6"]
        );
        assert!(roster.listed(&[lease("db/a", 1), lease("db/b", 5), lease("db/c", 6)]).is_empty());
        assert_eq!(roster.instances().count(), 3);
    }

    #[test]
    fn what_is_told_twice_or_late_changes_nothing() {
        let mut roster = Roster::new("db");
        assert_eq!(names(&roster.shown("db/a", &[lease("db/a", 1)])), ["+a:1"]);
        assert!(roster.shown("db/a", &[lease("db/a", 1)]).is_empty());
        assert_eq!(names(&roster.shown("db/a", &[lease("db/a", 4)])), ["-a:1", "+a:4"]);
        // The end of the first one comes after its successor was seen.
        assert_eq!(roster.ended("db/a", 1), None);
        assert_eq!(roster.instances().map(|one| one.number).collect::<Vec<_>>(), [4]);
        assert_eq!(names(&roster.ended("db/a", 4).into_iter().collect::<Vec<_>>()), ["-a:4"]);
    }

    #[test]
    fn only_what_lies_below_the_service_belongs_to_it() {
        let mut roster = Roster::new("db");
        assert_eq!(names(&roster.listed(&[lease("db", 1), lease("db/a/x", 2), lease("dbs/a", 3)])), ["+a/x:2"]);
    }
}
