//! The check of queries: which names a caller may read with one action (A4, A5, A7).
//!
//! A caller without any grant for an action is refused. With one, names outside of its grants answer like names that do not exist,
//! so that no reply shows whether such a name exists.

use super::{Action, ActionScope, Caller, Permission, Rights};
use crate::mutants::{self, Mutant};
use crate::refusal::Refusal;

/// The names that a caller may read with one action.
#[derive(Clone, Copy, Debug)]
pub struct ReadScope<'a> {
    action: Action,
    rights: &'a Rights,
}

impl<'a> ReadScope<'a> {
    /// The names that a caller may read; a refusal if there are none.
    pub fn of(caller: &Caller<'a>, action: Action) -> Result<Self, Refusal> {
        let rights = caller.rights;
        let permission = match action.scope() {
            ActionScope::WholeCluster => rights.permission_everywhere(action),
            ActionScope::Names | ActionScope::Results | ActionScope::AnyGrant => rights.permission_anywhere(action),
        };
        match permission {
            Permission::Yes => Ok(Self { action, rights }),
            Permission::Own | Permission::No => Err(Refusal::Denied(action.missing_role())),
        }
    }

    /// Whether a name may be read. The empty name means what concerns no resource; it needs a grant for all names.
    pub fn covers(&self, name: &str) -> bool {
        self.rights.permission(self.action, name) == Permission::Yes || mutants::on(Mutant::QueryUnfiltered)
    }

    /// Whether every name may be read.
    pub fn covers_all(&self) -> bool {
        self.rights.permission_everywhere(self.action) == Permission::Yes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{AccessGrant, Role};

    fn rights(grants: &[(Role, &str)]) -> Rights {
        let grant = |(role, prefix): &(Role, &str)| AccessGrant { role: *role, prefix: (*prefix).into() };
        Rights::new(1, grants.iter().map(grant).collect())
    }

    fn scope(rights: &Rights, action: Action) -> Result<ReadScope<'_>, Refusal> {
        ReadScope::of(&Caller { principal: "dns:a", rights }, action)
    }

    #[test]
    fn a_scope_covers_the_names_of_grants_whose_roles_allow_the_action() {
        let rights = rights(&[(Role::Holder, "jobs"), (Role::Reporter, "disks")]);
        let show = scope(&rights, Action::Show).expect("a holder shows");
        assert!(show.covers("jobs") && show.covers("jobs/a"));
        assert!(!show.covers("jobsa") && !show.covers("disks/a") && !show.covers(""));
        assert!(!show.covers_all());
        let coverage = scope(&rights, Action::Coverage).expect("a reporter reads coverage");
        assert!(coverage.covers("disks/a") && !coverage.covers("jobs/a"));
    }

    #[test]
    fn without_a_scope_the_refusal_says_what_is_missing() {
        let cases = [
            (rights(&[]), Action::Status),
            (rights(&[(Role::Reporter, "")]), Action::Show),
            (rights(&[(Role::Observer, "jobs")]), Action::Usage),
        ];
        for (rights, action) in &cases {
            assert_eq!(scope(rights, *action).err(), Some(Refusal::Denied(action.missing_role())), "{action:?}");
        }
        assert!(scope(&rights(&[(Role::Observer, "")]), Action::Usage).is_ok());
        assert!(scope(Rights::UNRESTRICTED, Action::Backup).is_ok_and(|scope| scope.covers("") && scope.covers_all()));
    }
}
