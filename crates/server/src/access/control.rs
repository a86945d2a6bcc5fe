//! The access rules in effect: the rights of each identity, replaced as a whole by a reload.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use leasehold_core::access::{AccessGrant, ApprovalRules, Caller, Rights};
use tokio::sync::watch;

use super::{AccessFile, PrincipalLimits};
use crate::identity::Identity;
use crate::transport::{TrafficLimiter, TrafficRules};

/// The rules between two reloads.
#[derive(Debug)]
pub struct AccessRules {
    epoch: u32,
    /// The rights of each principal with a grant; none on a server without an access file.
    rights: Option<HashMap<Box<str>, Arc<Rights>>>,
    /// The rights of everyone else.
    other: Arc<Rights>,
    /// Limits of each identity, and of those with limits of their own.
    limits: PrincipalLimits,
    own_limits: BTreeMap<Box<str>, PrincipalLimits>,
    approval: ApprovalRules,
    /// Identities that may act without a second one.
    alone: BTreeSet<Box<str>>,
}

impl AccessRules {
    /// Rules of a server without an access file: identities of this machine may do everything, others nothing.
    fn unrestricted() -> Self {
        let (limits, own_limits, approval, alone) = Default::default();
        Self {
            epoch: 0,
            rights: None,
            other: Arc::new(Rights::new(0, Vec::new())),
            limits,
            own_limits,
            approval,
            alone,
        }
    }

    fn of_file(file: &AccessFile, epoch: u32) -> Self {
        let mut grants: HashMap<Box<str>, Vec<AccessGrant>> = HashMap::new();
        for entry in file.grants() {
            grants.entry(entry.principal.clone()).or_default().push(entry.grant.clone());
        }
        let (limits, own_limits) = (*file.limits(), file.own_limits().clone());
        let of = |principal: &str| own_limits.get(principal).unwrap_or(&limits).state;
        let rights = grants.into_iter().map(|(principal, grants)| {
            let rights =
                Rights::new(epoch, grants).with_limits(of(&principal)).with_approval(file.approval_of(&principal));
            (principal, Arc::new(rights))
        });
        let rights = Some(rights.collect());
        let (approval, alone) = (*file.approval(), file.acting_alone().clone());
        Self { epoch, rights, other: Arc::new(Rights::new(epoch, Vec::new())), limits, own_limits, approval, alone }
    }

    /// The rights of a principal.
    pub fn rights_of(&self, principal: &str) -> &Rights {
        match &self.rights {
            Some(rights) => rights.get(principal).unwrap_or(&self.other),
            // Without an access file only connections that others can make are anonymous.
            None if principal == Identity::ANONYMOUS => &self.other,
            None => Rights::UNRESTRICTED,
        }
    }

    /// The limits of what identities send.
    fn traffic(&self) -> TrafficRules {
        let principals = self.own_limits.iter().map(|(principal, limits)| (principal.clone(), limits.traffic));
        TrafficRules { principals: principals.collect(), others: self.limits.traffic }
    }

    /// An identity as the caller of a request.
    pub fn caller<'a>(&'a self, identity: &'a Identity) -> Caller<'a> {
        Caller { principal: &identity.principal, rights: self.rights_of(&identity.principal) }
    }

    /// Whether an identity has any right.
    pub fn knows(&self, principal: &str) -> bool {
        let rights = self.rights_of(principal);
        rights.is_unrestricted() || !rights.grants().is_empty()
    }

    /// Rises with every reload; zero without an access file.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }
}

/// Access rules of a server, shared by all of its connections.
#[derive(Debug)]
pub struct AccessControl {
    rules: RwLock<Arc<AccessRules>>,
    epoch: watch::Sender<u32>,
    is_restricted: bool,
    traffic: Arc<TrafficLimiter>,
}

impl Default for AccessControl {
    fn default() -> Self {
        Self::unrestricted()
    }
}

impl AccessControl {
    /// Rules of a server without an access file.
    pub fn unrestricted() -> Self {
        let rules = RwLock::new(Arc::new(AccessRules::unrestricted()));
        Self { rules, epoch: watch::Sender::new(0), is_restricted: false, traffic: TrafficLimiter::unlimited() }
    }

    /// Rules of an access file.
    pub fn new(file: &AccessFile) -> Self {
        let rules = AccessRules::of_file(file, 1);
        let traffic = TrafficLimiter::new(rules.traffic());
        Self { rules: RwLock::new(Arc::new(rules)), epoch: watch::Sender::new(1), is_restricted: true, traffic }
    }

    /// Whether an access file restricts access.
    pub fn is_restricted(&self) -> bool {
        self.is_restricted
    }

    /// What identities send, counted by identity.
    pub fn traffic(&self) -> &Arc<TrafficLimiter> {
        &self.traffic
    }

    /// The rules in effect.
    pub fn rules(&self) -> Arc<AccessRules> {
        // A thread that panicked while it held the lock left one set of rules or the other.
        self.rules.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The rights of a principal.
    pub fn rights_of(&self, principal: &str) -> Arc<Rights> {
        let rules = self.rules();
        match rules.rights.as_ref().map(|rights| rights.get(principal)) {
            Some(found) => found.unwrap_or(&rules.other).clone(),
            None => Arc::new(rules.rights_of(principal).clone()),
        }
    }

    /// Replaces the rules. Streams and watches compare themselves with the new ones (A10). False if nothing changed, or if the
    /// server was started without an access file.
    pub fn reload(&self, file: &AccessFile) -> bool {
        if !self.is_restricted {
            return false;
        }
        let mut rules = self.rules.write().unwrap_or_else(PoisonError::into_inner);
        let new = AccessRules::of_file(file, rules.epoch.saturating_add(1));
        if !differ(&rules, &new) {
            return false;
        }
        let epoch = new.epoch;
        self.traffic.set(new.traffic());
        *rules = Arc::new(new);
        drop(rules);
        self.epoch.send_replace(epoch);
        true
    }

    /// Notifies of every reload that changed the rules.
    pub fn subscribe(&self) -> watch::Receiver<u32> {
        self.epoch.subscribe()
    }
}

/// Whether any principal has other grants or limits.
fn differ(old: &AccessRules, new: &AccessRules) -> bool {
    let rules = |rules: &AccessRules| (rules.limits, rules.own_limits.clone(), rules.approval, rules.alone.clone());
    if rules(old) != rules(new) {
        return true;
    }
    let (Some(old), Some(new)) = (&old.rights, &new.rights) else { return true };
    let is_same =
        |principal: &str, rights: &Rights| old.get(principal).is_some_and(|before| before.grants() == rights.grants());
    old.len() != new.len() || !new.iter().all(|(principal, rights)| is_same(principal, rights))
}

#[cfg(test)]
mod tests {
    use leasehold_core::access::{Action, IdentityLimits, Permission};

    use super::*;

    fn file(grants: &[(&str, &str, &str)]) -> AccessFile {
        let text: String = grants
            .iter()
            .map(|(principal, role, prefix)| {
                format!("[[grant]]\nprincipal = {principal:?}\nrole = {role:?}\nprefix = {prefix:?}\n")
            })
            .collect();
        AccessFile::parse(&text).expect("the file is valid")
    }

    #[test]
    fn without_a_file_everyone_but_anonymous_callers_may_do_everything() {
        let control = AccessControl::unrestricted();
        for principal in ["local", "uid:1000"] {
            assert_eq!(
                control.rights_of(principal).permission_everywhere(Action::Backup),
                Permission::Yes,
                "{principal}"
            );
            assert!(control.rules().knows(principal));
        }
        assert_eq!(control.rights_of("anonymous").permission_anywhere(Action::Status), Permission::No);
        assert!(!control.rules().knows("anonymous"));
        assert!(!control.reload(&file(&[("uid:1", "admin", "")])), "a file is not introduced by a reload");
        assert_eq!(control.rights_of("local").epoch(), 0);
    }

    #[test]
    fn with_a_file_only_its_grants_count() {
        let control = AccessControl::new(&file(&[("uid:1", "holder", "jobs"), ("uid:1", "observer", "disks")]));
        let rights = control.rights_of("uid:1");
        assert_eq!(rights.permission(Action::Acquire, "jobs/a"), Permission::Yes);
        assert_eq!(rights.permission(Action::Acquire, "disks/a"), Permission::No);
        assert_eq!(rights.permission(Action::Audit, "disks/a"), Permission::Yes);
        for other in ["local", "anonymous", "uid:2", "uid:10", ""] {
            assert_eq!(control.rights_of(other).permission_anywhere(Action::Status), Permission::No, "{other}");
            assert!(!control.rules().knows(other));
        }
    }

    #[test]
    fn limits_come_with_the_rights_and_a_reload_changes_them() {
        let parse = |limits: &str| {
            let text = format!("[[grant]]\nprincipal = \"uid:1\"\nrole = \"holder\"\nprefix = \"\"\n{limits}");
            AccessFile::parse(&text).expect("the file is valid")
        };
        let control = AccessControl::new(&parse(""));
        assert_eq!(*control.rights_of("uid:1").limits(), PrincipalLimits::default().state);
        assert!(control.reload(&parse("[limits]\nleases = 5\n")));
        assert_eq!(control.rights_of("uid:1").limits().leases, 5);
        assert!(control.reload(&parse("[limits]\nleases = 5\n[[limit]]\nprincipal = \"uid:1\"\nleases = 6\n")));
        assert_eq!(control.rights_of("uid:1").limits().leases, 6);
        assert!(!control.reload(&parse("[limits]\nleases = 5\n[[limit]]\nprincipal = \"uid:1\"\nleases = 6\n")));
        let unrestricted = AccessControl::unrestricted();
        assert_eq!(*unrestricted.rights_of("uid:1").limits(), IdentityLimits::UNLIMITED);
        assert!(unrestricted.traffic().of(&Identity::local(None)).is_none());
    }

    #[test]
    fn a_reload_replaces_all_rules_and_raises_the_epoch_only_if_they_differ() {
        let control = AccessControl::new(&file(&[("uid:1", "holder", "jobs"), ("uid:2", "admin", "")]));
        let mut epochs = control.subscribe();
        assert!(!control.reload(&file(&[("uid:2", "admin", ""), ("uid:1", "holder", "jobs")])));
        assert!(!epochs.has_changed().expect("the control exists"));
        assert!(control.reload(&file(&[("uid:1", "holder", "jobs/a")])));
        assert!(epochs.has_changed().expect("the control exists"));
        assert_eq!(*epochs.borrow_and_update(), 2);
        assert_eq!(control.rights_of("uid:1").epoch(), 2);
        assert!(!control.rules().knows("uid:2"));
        assert_eq!(control.rights_of("uid:1").permission(Action::Acquire, "jobs/b"), Permission::No);
    }
}
