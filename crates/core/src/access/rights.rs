//! The rights of one identity, and the caller of a request.

use super::{Action, ApprovalRules, IdentityLimits, Permission, Role};
use crate::mutants::{self, Mutant};

/// One role under one prefix of whole segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessGrant {
    /// The role.
    pub role: Role,
    /// The prefix, in whole segments; empty for all names.
    pub prefix: Box<str>,
}

impl AccessGrant {
    /// Whether the grant's prefix covers a name: `team/a` covers `team/a` and `team/a/b`, and not `team/ab`.
    pub fn covers(&self, name: &str) -> bool {
        let rest = name.strip_prefix(&*self.prefix);
        let whole = |rest: &str| rest.is_empty() || rest.starts_with('/') || mutants::on(Mutant::PrefixByBytes);
        self.prefix.is_empty() || rest.is_some_and(whole)
    }
}

/// Everything that one identity may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    epoch: u32,
    grants: Vec<AccessGrant>,
    limits: IdentityLimits,
    approval: ApprovalRules,
    /// Whether every action on every name is allowed, because access is not restricted.
    unrestricted: bool,
}

impl Rights {
    /// Rights of a server without access rules.
    pub const UNRESTRICTED: &'static Self = &Self {
        epoch: 0,
        grants: Vec::new(),
        limits: IdentityLimits::UNLIMITED,
        approval: ApprovalRules::NONE,
        unrestricted: true,
    };

    /// Rights from grants. The epoch changes whenever the rights of any identity change; zero is reserved for unrestricted access
    /// and counts as one.
    pub fn new(epoch: u32, grants: Vec<AccessGrant>) -> Self {
        Self {
            epoch: epoch.max(1),
            grants,
            limits: IdentityLimits::UNLIMITED,
            approval: ApprovalRules::NONE,
            unrestricted: false,
        }
    }

    /// The same rights with limits on what the identity may have.
    pub const fn with_limits(mut self, limits: IdentityLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Whether every action on every name is allowed.
    pub const fn is_unrestricted(&self) -> bool {
        self.unrestricted
    }

    /// Changes whenever the rights of any identity change.
    pub const fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The same rights, where some actions need the approval of a second identity.
    pub const fn with_approval(mut self, approval: ApprovalRules) -> Self {
        self.approval = approval;
        self
    }

    /// Which actions need the approval of a second identity.
    pub const fn approval(&self) -> &ApprovalRules {
        &self.approval
    }

    /// How much the identity may have at the same time.
    pub const fn limits(&self) -> &IdentityLimits {
        &self.limits
    }

    /// The grants.
    pub fn grants(&self) -> &[AccessGrant] {
        &self.grants
    }

    /// Whether an action on a name is allowed, and whether only on what is the identity's own.
    pub fn permission(&self, action: Action, name: &str) -> Permission {
        self.strongest(action, |grant| grant.covers(name))
    }

    /// The same for an action that concerns no name in particular: any grant is enough.
    pub fn permission_anywhere(&self, action: Action) -> Permission {
        self.strongest(action, |_| true)
    }

    /// The same for an action that concerns the whole cluster.
    pub fn permission_everywhere(&self, action: Action) -> Permission {
        self.strongest(action, |grant| grant.prefix.is_empty())
    }

    /// Whether the identity is an administrator of the whole cluster, or access is not restricted.
    pub fn is_administrator(&self) -> bool {
        self.unrestricted || self.grants.iter().any(|grant| grant.role == Role::Admin && grant.prefix.is_empty())
    }

    /// Whether a name, and what is under it, may be seen. What may not be seen is answered like what does not exist (A5).
    pub fn sees(&self, name: &str) -> bool {
        self.permission(Action::Show, name) != Permission::No
    }

    fn strongest(&self, action: Action, applies: impl Fn(&AccessGrant) -> bool) -> Permission {
        if self.unrestricted {
            return Permission::Yes;
        }
        let mut strongest = Permission::No;
        for grant in self.grants.iter().filter(|grant| applies(grant)) {
            match action.permission(grant.role) {
                Permission::Yes => return Permission::Yes,
                Permission::Own => strongest = Permission::Own,
                Permission::No => {}
            }
        }
        strongest
    }
}

/// The identity of callers on a server without access rules, and of the server itself. It owns what was granted before
/// leases had owners.
pub const LOCAL_PRINCIPAL: &str = "local";

/// Who sends a request, and what it may do.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    /// The identity: `spiffe://…`, `dns:NAME`, `uid:1000`, `local`.
    pub principal: &'a str,
    /// Its rights.
    pub rights: &'a Rights,
}

impl Caller<'_> {
    /// A caller on a server without access rules, and the server itself.
    pub const LOCAL: Caller<'static> = Caller { principal: LOCAL_PRINCIPAL, rights: Rights::UNRESTRICTED };
}

impl Default for Caller<'_> {
    fn default() -> Self {
        Caller::LOCAL
    }
}
