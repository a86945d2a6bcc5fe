//! The registered instances of a service, from lists, reads and events in any order. Applying one twice changes nothing.

use std::collections::BTreeMap;

use leasehold_wire::json::LeaseBody;

/// A registered instance.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Instance {
    /// Name within the service.
    pub name: String,
    /// Holder that registered it.
    pub holder: String,
    /// Details of the registration.
    pub details: String,
    /// Token number: of two instances with the same name, the later one has the higher number.
    pub number: u64,
}

/// A change of the registered instances.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InstanceChange {
    /// The instance was registered.
    Joined(Instance),
    /// The registration ended.
    Left(Instance),
}

/// The registrations of one service by resource and token number. Numbers are unique, so an end is final.
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

    /// Applies a complete list: an instance that is not on it has left.
    pub(super) fn apply_list(&mut self, leases: &[LeaseBody]) -> Vec<InstanceChange> {
        self.replace(|_| true, leases)
    }

    /// Applies the state of one resource.
    pub(super) fn apply_resource(&mut self, resource: &str, leases: &[LeaseBody]) -> Vec<InstanceChange> {
        self.replace(|known| known == resource, leases)
    }

    /// Applies the end of one lease.
    pub(super) fn apply_end(&mut self, resource: &str, number: u64) -> Option<InstanceChange> {
        self.known.remove(&(resource.to_owned(), number)).map(InstanceChange::Left)
    }

    /// Replaces the instances of the resources in scope. Departures are reported before arrivals, so that no name exists twice.
    fn replace(&mut self, in_scope: impl Fn(&str) -> bool, leases: &[LeaseBody]) -> Vec<InstanceChange> {
        let found: BTreeMap<_, _> = leases.iter().filter_map(|lease| self.instance(lease)).collect();
        let gone = self.known.extract_if(.., |key, _| in_scope(&key.0) && !found.contains_key(key));
        let mut changes: Vec<_> = gone.map(|(_, instance)| InstanceChange::Left(instance)).collect();
        for (key, instance) in found {
            if self.known.insert(key, instance.clone()).is_none() {
                changes.push(InstanceChange::Joined(instance));
            }
        }
        changes
    }

    fn instance(&self, lease: &LeaseBody) -> Option<((String, u64), Instance)> {
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

    fn names(changes: &[InstanceChange]) -> Vec<String> {
        let name = |change: &InstanceChange| match change {
            InstanceChange::Joined(one) => format!("+{}:{}", one.name, one.number),
            InstanceChange::Left(one) => format!("-{}:{}", one.name, one.number),
        };
        changes.iter().map(name).collect()
    }

    #[test]
    fn a_list_that_is_read_again_reports_exactly_the_missed_changes() {
        let mut roster = Roster::new("db");
        assert_eq!(names(&roster.apply_list(&[lease("db/a", 1), lease("db/b", 2)])), ["+a:1", "+b:2"]);
        assert_eq!(
            names(&roster.apply_list(&[lease("db/a", 1), lease("db/b", 5), lease("db/c", 6)])),
            ["-b:2", "+b:5", "+c:6"]
        );
        assert!(roster.apply_list(&[lease("db/a", 1), lease("db/b", 5), lease("db/c", 6)]).is_empty());
        assert_eq!(roster.instances().count(), 3);
    }

    #[test]
    fn a_duplicate_or_late_update_changes_nothing() {
        let mut roster = Roster::new("db");
        assert_eq!(names(&roster.apply_resource("db/a", &[lease("db/a", 1)])), ["+a:1"]);
        assert!(roster.apply_resource("db/a", &[lease("db/a", 1)]).is_empty());
        assert_eq!(names(&roster.apply_resource("db/a", &[lease("db/a", 4)])), ["-a:1", "+a:4"]);
        // The end of the first instance arrives after its successor.
        assert_eq!(roster.apply_end("db/a", 1), None);
        assert_eq!(roster.instances().map(|one| one.number).collect::<Vec<_>>(), [4]);
        assert_eq!(names(&roster.apply_end("db/a", 4).into_iter().collect::<Vec<_>>()), ["-a:4"]);
    }

    #[test]
    fn only_resources_below_the_service_belong_to_it() {
        let mut roster = Roster::new("db");
        assert_eq!(names(&roster.apply_list(&[lease("db", 1), lease("db/a/x", 2), lease("dbs/a", 3)])), ["+a/x:2"]);
    }
}
