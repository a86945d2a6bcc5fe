//! Access control: which identity may perform which action on which names.
//!
//! The core decides. Identities and rights come from outside with each request, so replaying records needs none of them: a
//! record is a decision that was already taken. Without a grant nothing is allowed, and there are no deny rules.

mod action;
mod approval;
mod attribution;
mod identity_limits;
mod owner;
mod read_scope;
mod rights;
mod role;

pub use action::{
    Action, ActionScope, MAY_NOT_ACT_ALONE, NO_LEASE_PROOF, NO_SESSION_PROOF, NOT_BOUND, NOT_OWNER, Permission,
    SAME_IDENTITY, SECRET_DIFFERS,
};
pub use approval::{ApprovalRules, DangerousAction, Replacement, ReplacementCase};
pub use attribution::{Attribution, RequestOrigin, Via};
pub(crate) use identity_limits::KEY_HOLDER;
pub use identity_limits::{IdentityLimits, IdentityUsage};
pub(crate) use owner::{LOCAL_OWNER, check_principal, decode_owner, recorded_owner};
pub use read_scope::ReadScope;
pub use rights::{AccessGrant, Caller, LOCAL_PRINCIPAL, Rights};
pub use role::Role;
